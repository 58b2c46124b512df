//! The cache, as the commands need it: the one file that knows how values are kept.
//!
//! Each tenant is a group of a [`Runtime`], each value an entry of one [`Cache`], charged to its
//! key's tenant. There is no other size anywhere: who may keep how much follows from the budget,
//! the tenants' limits, and who uses what.

mod edit;
mod key_hash;
pub mod namespace;
pub mod prefix_stats;
mod removal_stats;
mod report;
mod runtime;
pub mod tenant;
#[cfg(test)]
mod tests;
pub mod update;
mod watchers;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use lowwater::cache::{Op, Visit};
use lowwater::{ByteSize, Cache, RemovalCause, Runtime};
use tokio::sync::mpsc;

use crate::protocol::expiry::Expiry;
use crate::settings::limits::Limits;
use crate::settings::Settings;
use crate::value::data::Data;
use crate::value::item_flags::ItemFlags;
use crate::value::piece_pool::PiecePool;
use crate::value::Value;

use key_hash::{BuildIdentityHasher, KeyHash, KeyHasher};
use removal_stats::RemovalStats;
use tenant::Tenants;

pub use edit::{Edit, Existing, OutOfMemory};
pub use removal_stats::RemovalCounts;
pub use report::TenantReport;

/// A key lies with its value.
type Values = Cache<KeyHash, Value, BuildIdentityHasher>;

/// Values by key, in one budget, each charged to its key's tenant.
#[derive(Debug)]
pub struct Store {
    runtime: Runtime,
    cache: Values,
    hasher: KeyHasher,
    tenants: Arc<Tenants>,
    pool: Arc<PiecePool>,
    removal_stats: Arc<RemovalStats>,
    /// The youngest value's number.
    unique: AtomicU64,
    /// Values of numbers up to this are not there any more, whether they have been dropped already
    /// or not.
    flushed: AtomicU64,
    /// Uses are noted in seconds since then.
    started: Instant,
    /// Drop values when the memory is full.
    evict: bool,
}

/// A key in a listing of all keys.
#[derive(Debug)]
pub struct ListedKey {
    pub key: Box<[u8]>,
    /// It came in base64.
    pub binary: bool,
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    ///
    /// A sentence: what the runtime or the cache is missing.
    pub fn new(settings: &Settings, pool: &Arc<PiecePool>) -> Result<Self, String> {
        let runtime = runtime::build(settings)?;
        let tenants = Arc::new(Tenants::new(&runtime, settings.delimiter, &settings.limits, settings.evict)?);
        let removal_stats = Arc::new(RemovalStats::default());
        let started = Instant::now();
        let (bereaved, noted) = (Arc::clone(&tenants), Arc::clone(&removal_stats));
        let cache = Cache::<KeyHash, Value>::builder(&runtime)
            .name("values")
            .hasher(BuildIdentityHasher::default())
            .weigher(|_, value| weight(value))
            .eviction_listener(move |_, value, cause| match cause {
                RemovalCause::Size => {
                    bereaved.count_eviction(value.key());
                    noted.evicted(value.key(), value, idle_seconds(value, started));
                }
                RemovalCause::Expired => noted.expired(value),
                _ => {}
            })
            .build()
            .map_err(|why| why.to_string())?;
        let (unique, flushed, evict) = (AtomicU64::new(0), AtomicU64::new(0), settings.evict);
        let pool = Arc::clone(pool);
        let hasher = KeyHasher::new();
        Ok(Self { runtime, cache, hasher, tenants, pool, removal_stats, unique, flushed, started, evict })
    }

    /// What `look` sees of the value under `key`: counts for its tenant, and as a use of the value.
    /// Memory that is freed meanwhile waits.
    pub fn read<R>(&self, key: &[u8], look: impl FnOnce(&Value) -> R) -> Option<R> {
        let pinned = self.cache.pin();
        let value = pinned.get(&self.hasher.hash(key)).filter(|value| self.is_live_at(value, key));
        self.tenants.count_read(key, value.is_some());
        value.map(|value| {
            value.last_access.record_fetch(self.now_seconds());
            look(value)
        })
    }

    /// Returns the value under `key`, as [`read`](Self::read) does, but leaves its last access to
    /// [`mark_fetched`](Self::mark_fetched).
    pub fn find(&self, key: &[u8]) -> Option<Value> {
        let pinned = self.cache.pin();
        let value = pinned.get(&self.hasher.hash(key)).filter(|value| self.is_live_at(value, key));
        self.tenants.count_read(key, value.is_some());
        value.cloned()
    }

    /// As [`find`](Self::find), but no use of the value.
    pub fn peek(&self, key: &[u8]) -> Option<Value> {
        let pinned = self.cache.pin();
        let value = pinned.peek(&self.hasher.hash(key)).filter(|value| self.is_live_at(value, key));
        self.tenants.count_read(key, value.is_some());
        value.cloned()
    }

    /// Records a fetch of the value under `key`, and returns whether there is one.
    pub fn mark_fetched(&self, key: &[u8]) -> bool {
        let pinned = self.cache.pin();
        let value = pinned.peek(&self.hasher.hash(key)).filter(|value| self.is_live_at(value, key));
        value.inspect(|value| value.last_access.record_fetch(self.now_seconds())).is_some()
    }

    /// What `look` sees of the value under `key` and of the time left to it; it may be asked more
    /// than once. No use of the value.
    pub fn inspect<R>(&self, key: &[u8], mut look: impl FnMut(Existing<'_>) -> R) -> Option<R> {
        let mut seen = None;
        // Nothing is put there, so nothing can be in its way.
        let _kept = self.cache.entry(self.hasher.hash(key)).and_compute(|current| {
            seen = current.filter(|there| self.is_live_at(there.value(), key)).map(|there| look(Existing::of(&there)));
            Op::Keep
        });
        seen
    }

    /// The keys of a part of all values, to be asked for until [`Visit::is_done`].
    pub fn keys(&self, at: &mut Visit) -> Vec<ListedKey> {
        let mut keys = Vec::new();
        self.cache.visit(at, |_, value| {
            if self.is_live(value) {
                keys.push(ListedKey { key: value.key().into(), binary: value.item_flags().binary });
            }
        });
        keys
    }

    /// Removes all expired values.
    pub fn reap_expired(&self) {
        self.cache.retain(|_, _| true);
    }

    /// Gives the value under `key` another time, which is a use of it; whether there is one.
    pub fn touch(&self, key: &[u8], expiry: Expiry) -> bool {
        self.mark_fetched(key) && self.set_expiry(key, expiry)
    }

    /// Gives the value under `key` another expiry, as [`touch`](Self::touch) does, but leaves its
    /// last access.
    pub fn set_expiry(&self, key: &[u8], expiry: Expiry) -> bool {
        match expiry {
            Expiry::Past => self.remove(key),
            Expiry::Never => self.cache.touch(&self.hasher.hash(key), None),
            Expiry::In(time) => self.cache.touch(&self.hasher.hash(key), Some(time)),
        }
    }

    /// Drops the value under `key`; whether there was one.
    pub fn remove(&self, key: &[u8]) -> bool {
        self.cache.remove(&self.hasher.hash(key)).is_some_and(|value| self.is_live_at(&value, key))
    }

    /// The budget.
    pub fn budget(&self) -> ByteSize {
        self.runtime.root().max()
    }

    /// Another budget, at once; what is above it is reclaimed in the background.
    pub fn set_budget(&self, budget: ByteSize) {
        self.runtime.set_budget(budget);
    }

    /// A tenant's limits, if there is such a tenant.
    pub fn limits(&self, name: &str) -> Option<Limits> {
        self.tenants.find(name.as_bytes()).map(|tenant| tenant.limits())
    }

    /// Other limits for a tenant, which is made if it is not there; what is above them is reclaimed
    /// in the background.
    ///
    /// # Errors
    ///
    /// A sentence: there can be no other tenant.
    pub fn set_limits(&self, name: &str, limits: Limits) -> Result<(), String> {
        let tenant = self.tenants.get_or_create(name.as_bytes()).ok_or("there are too many tenants already")?;
        tenant.set_limits(limits);
        self.runtime.reclaimer().charged(&tenant.group);
        Ok(())
    }

    /// From now on, a line for each value that has to make room; none if too many watch already.
    pub fn watch_evictions(&self) -> Option<mpsc::Receiver<String>> {
        self.removal_stats.watchers.subscribe()
    }

    /// From now on, no value that was put there before is there. Their memory comes back with
    /// [`drop_flushed`](Self::drop_flushed).
    pub fn flush(&self) {
        // Release: meets the Acquire in `is_there`. Of two flushes the younger holds.
        self.flushed.fetch_max(self.next_unique(), Ordering::Release);
    }

    /// Drops the values that [`flush`](Self::flush) has ended.
    pub fn drop_flushed(&self) {
        self.cache.retain(|_, value| self.is_live(value));
    }

    /// Returns the counts of evicted and expired values.
    pub fn removal_counts(&self) -> RemovalCounts {
        self.removal_stats.removal_counts()
    }

    /// Returns whether `value` is the value of `key`, and no flush has ended it.
    fn is_live_at(&self, value: &Value, key: &[u8]) -> bool {
        value.key() == key && self.is_live(value)
    }

    /// Returns whether no flush has ended `value`.
    fn is_live(&self, value: &Value) -> bool {
        // Acquire: meets the Release in `flush`. Who hears of a flush from whoever asked for it
        // finds nothing from before.
        value.unique() > self.flushed.load(Ordering::Acquire)
    }

    /// What the cache lives in.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Creates a value to be stored, with the next unique number and an access now.
    pub fn new_value(&self, key: &[u8], flags: u32, item_flags: ItemFlags, data: &Data) -> Value {
        let value = Value::new(key, flags, item_flags, self.next_unique(), data);
        value.last_access.record_store(self.now_seconds());
        value
    }

    /// Returns a unique number that no value had.
    pub fn next_unique(&self) -> u64 {
        // Relaxed: only that no number is given twice matters.
        self.unique.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How long nobody used it.
    pub fn idle_seconds(&self, value: &Value) -> u32 {
        idle_seconds(value, self.started)
    }

    fn now_seconds(&self) -> u32 {
        seconds_since(self.started)
    }
}

fn weight(value: &Value) -> ByteSize {
    ByteSize::new(value.heap_bytes() as u64)
}

fn idle_seconds(value: &Value, started: Instant) -> u32 {
    seconds_since(started).saturating_sub(value.last_access.last_used_seconds())
}

fn seconds_since(started: Instant) -> u32 {
    started.elapsed().as_secs() as u32
}
