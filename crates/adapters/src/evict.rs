//! The interface of a foreign cache: its weight, and a way to make it lighter.
//!
//! Nothing else is needed of a cache, so that its policy, keys and locks stay its own.
//!
//! A change must ensure that a cache needs no more than these two functions, and that `shrink_to`
//! is not called on two threads at once.

use lowwater::ByteSize;

/// A cache that knows its weight, and evicts on request.
///
/// ```
/// use std::sync::Mutex;
/// use lowwater::ByteSize;
/// use lowwater_adapters::Evict;
///
/// /// Parsed templates, the oldest first.
/// struct Templates(Mutex<Vec<String>>);
///
/// impl Evict for Templates {
///     fn weight(&self) -> ByteSize {
///         self.0.lock().unwrap().iter().map(|text| ByteSize::from(text.capacity())).sum()
///     }
///
///     fn shrink_to(&self, target: ByteSize) {
///         let mut templates = self.0.lock().unwrap();
///         let mut weight: ByteSize = templates.iter().map(|text| ByteSize::from(text.capacity())).sum();
///         while weight > target && !templates.is_empty() {
///             weight -= templates.remove(0).capacity().into();
///         }
///     }
/// }
/// ```
pub trait Evict: Send + Sync + 'static {
    /// Returns the bytes that the cache holds. Called after each update, so it should be O(1).
    fn weight(&self) -> ByteSize;

    /// Evicts, by the cache's own policy, until the cache weighs no more than `target` or nothing
    /// more can be evicted. Entries that are inserted meanwhile need not be evicted: each update
    /// checks the weight again. Leaves no lower capacity behind, because the runtime bounds the
    /// cache: an implementation that evicts by a lower capacity sets the old one back, also after a
    /// panic. Exception: where the weight is the capacity (see [`evict_by`]).
    ///
    /// Called on any thread, but not on two at once (`eviction.rs`). It may take the cache's locks,
    /// so a thread must not hold them when it charges:
    /// [`Adapted::update`](crate::Adapted::update) charges after its closure has returned. A panic
    /// in a call by reclaim excludes the cache from reclaim. A panic in an update or a settlement
    /// reaches the caller, and the cache stays in reclaim.
    ///
    /// # Deadlocks
    ///
    /// An implementation may evict on other threads and wait for them. Code that runs there, such
    /// as the drop of a value or a listener, must not drop the [`Adapted`](crate::Adapted) handle:
    /// the drop waits for the scan, and the scan for that thread. On the thread of the call it may.
    fn shrink_to(&self, target: ByteSize);
}

/// A cache that is described by two closures; from [`evict_by`].
#[derive(Clone, Copy)]
pub struct EvictBy<W, S> {
    weight: W,
    shrink_to: S,
}

/// Returns an [`Evict`] of two closures: the weight in bytes, and the eviction down to a weight.
///
/// For memory that can be resized and is no cache of keys and values:
///
/// | memory | weight | eviction | test |
/// |---|---|---|---|
/// | a pool of `BytesMut` | capacities of the free buffers | drop some | `tests/pool.rs` |
/// | unused pages of jemalloc | `stats.arenas.4096.pdirty`, in pages | `arena.4096.purge` | `ci/adapters` |
/// | SQLite's page cache | `SQLITE_DBSTATUS_CACHE_USED` | `PRAGMA cache_size`, set back | `ci/adapters` |
/// | RocksDB's block cache | `Cache::get_usage` | `Cache::set_capacity`, set back | `ci/adapters` |
///
/// If only a capacity can be set and the bytes are unknown, the weight is the capacity. The runtime
/// then lowers it, and the program raises it in [`Adapted::update`](crate::Adapted::update).
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use lowwater_adapters::{evict_by, Evict};
///
/// static CAPACITY: AtomicUsize = AtomicUsize::new(1 << 20);
/// let blocks = evict_by(
///     || CAPACITY.load(Ordering::Relaxed),
///     |target| CAPACITY.store(target.get() as usize, Ordering::Relaxed),
/// );
/// blocks.shrink_to(lowwater::ByteSize::kib(64));
/// assert_eq!(blocks.weight(), lowwater::ByteSize::kib(64));
/// ```
pub fn evict_by<B, W, S>(weight: W, shrink_to: S) -> EvictBy<W, S>
where
    B: Into<ByteSize>,
    W: Fn() -> B + Send + Sync + 'static,
    S: Fn(ByteSize) + Send + Sync + 'static,
{
    EvictBy { weight, shrink_to }
}

impl<B, W, S> Evict for EvictBy<W, S>
where
    B: Into<ByteSize>,
    W: Fn() -> B + Send + Sync + 'static,
    S: Fn(ByteSize) + Send + Sync + 'static,
{
    fn weight(&self) -> ByteSize {
        (self.weight)().into()
    }

    fn shrink_to(&self, target: ByteSize) {
        (self.shrink_to)(target);
    }
}

impl<W, S> std::fmt::Debug for EvictBy<W, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvictBy").finish_non_exhaustive()
    }
}
