//! The public handle of a cache.
//!
//! A handle is a reference-counted pointer to the state in `inner.rs`. The methods are in the files
//! of the operations (`lookup.rs`, `insert.rs`, ..). A change must keep [`Cache`], its `Clone` and
//! its `Debug` free of bounds.

use std::hash::{BuildHasher, Hash};

use hashbrown::DefaultHashBuilder;
use lowwater_lru_core::{ByteSize, Memcg, NodeId};

use super::record::Record;
use super::shared::SharedInner;
use super::stats::CacheStats;
use crate::Runtime;

/// A keyed cache in a [`Runtime`]. This is a handle: clones are the same cache, and the drop of the
/// last one drops the entries.
///
/// The drop of the last handle waits for other threads that run callbacks of the cache or drop its
/// removed entries, also by inserts into other caches, by charges and by
/// [`ManualClock::advance`](crate::runtime::ManualClock::advance); when it returns, all functions
/// that the cache has captured are dropped. So the caller must hold no lock that a callback or the
/// `Drop` of a value takes. The listener is called only for entries that a [`clear`](Self::clear)
/// has left. Of more than 4,096 entries, none is dropped by this call: they are uncharged and count
/// as [retired](crate::runtime::RuntimeStats::retired), and the runtime's housekeeper drops them
/// soon, with the hasher; at the latest the drop of the runtime does, or an insert that finds no
/// room. O(1) then, with limits O(caches of the runtime); but O(entries) if the cache has ever had
/// an entry of another group than its own, if its own group has ended, with
/// [`charge_held_values`](super::CacheBuilder::charge_held_values), or with a listener while a
/// [`clear`](Self::clear) has left entries. Inside a callback of any cache
/// or shrinker, in the code of a load ([`CallbackScope`](crate::CallbackScope)), or in the `Drop`
/// of a value that such a thread drops, the drop waits for nothing: no callback of the cache begins
/// any more, except for entries that another thread is already removing, and the last thread that
/// works on the cache drops it.
///
/// A cache has no capacity of its own, unless the builder sets limits. It is bounded by its groups'
/// limits and the runtime's budget, and gives up entries, oldest unused first, when other caches or
/// tenants need the memory.
///
/// ```
/// use lowwater::{ByteSize, Cache, Runtime};
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
/// let cache = Cache::<u64, String>::builder(&runtime).weigher(|_, text| text.capacity()).build()?;
///
/// cache.insert(1, "one".into())?;
/// assert_eq!(cache.get(&1).as_deref(), Some("one"));
/// assert_eq!(cache.get_or_insert_with(2, || "two".into()), "two");
/// assert_eq!(cache.remove(&1).as_deref(), Some("one"));
/// assert_eq!(cache.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Consistency
///
/// Operations on one key are linearizable. [`len`](Self::len), [`clear`](Self::clear),
/// [`retain`](Self::retain) and [`stats`](Self::stats) visit one part of the cache after the other,
/// and may see some of the concurrent changes.
///
/// # Code of keys and values
///
/// Listener, weigher, load and the `Drop` of values run without any lock, and may use the cache. A
/// key's `Hash` and `Eq` may run under a lock of the cache, so they must not use the cache, wait
/// for a thread that uses it, or drop the last handle on any cache; neither may the `Drop` of the
/// payload of their panic. A value's `Clone` runs inside a
/// read-side section: while it blocks, no cache of the process frees removed entries. A panic of
/// `Clone` is passed on to the caller of the call that returns the value. [`insert`](Self::insert),
/// [`remove`](Self::remove) and [`Entry::and_compute`](super::Entry::and_compute) clone the
/// previous value last: the entry is then replaced or removed already.
///
/// # Memory
///
/// An entry that leaves is uncharged at once. Its key and value are dropped, and its memory is used
/// again, when two conditions hold: all readers that may have found the entry have left, and some
/// other entries have left the cache after it: at most a 16th of the entries (64 to 16,384) or
/// 512 KiB, for each of a few groups of threads. Readers that stay inside hold back more.
///
/// All of this memory counts as retired, in one count for all caches of the runtime, and is
/// bounded: see [`Runtime`]. When the count is high, inserts drop retired entries of all caches;
/// when it is too high, inserts wait for readers, as long as a charge may take, and are then
/// refused ([`RejectReason::HeldByReaders`](super::RejectReason::HeldByReaders)).
/// [`collect`](Self::collect) drops retired entries at once, except those that readers hold back.
///
/// A key whose `Hash` or `Eq` panics, or is inconsistent, mostly affects that key only: lookups may
/// not find its entry, also later if its hash has panicked once while an insert made the index
/// grow. The entry stays charged until it expires or is evicted, which needs a hash that does not
/// panic; at the latest until [`clear`](Self::clear), the drop of its group by
/// [`drop_group`](Runtime::drop_group), or the drop of the cache. If a full cache consists of
/// entries only whose hash panics, inserts are refused. A panic hook may run with a lock of the
/// cache held, so it must not use the cache.
///
/// There is one exception: a removal that finds its entry under another hash than the insert did,
/// with the same 8-bit tag, may hide the entry of another key. Lookups of that key then miss; if it
/// is inserted again, its old value may be returned later. So a key's hash must not change while
/// its entry is in the cache.
///
/// When less than half of the memory for entries on a node is used, and it is 1 MiB or more, the
/// runtime's housekeeper compacts it: clones of the keys and values of some entries take their
/// places, the old ones are dropped, and the free memory is returned to the system. The
/// listener is not called for these moves. A value that is changed in place should therefore share
/// its state between clones, as an `Arc` does: otherwise a change during the move is lost.
///
/// If the system has no memory, an insert returns
/// [`RejectReason::NoMemory`](super::RejectReason::NoMemory). The process aborts if there is no
/// memory for the first operation of a cache, for a group's first eviction in it, for a load or a
/// reload, for a sweep of expired entries, for a compaction, or for a result with a path or with
/// many values.
///
/// # In other types
///
/// The type has no bounds, so a type that holds a cache needs none: only its methods do.
///
/// ```
/// use lowwater::Cache;
///
/// #[derive(Clone, Debug)]
/// struct Wrapper<K, V> {
///     cache: Cache<K, V>,
/// }
/// ```
pub struct Cache<K, V, S = DefaultHashBuilder> {
    pub(super) inner: SharedInner<K, V, S>,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// The bytes that each entry is charged beyond its weight: for the record, its index slot and
    /// its share of the ghost table.
    ///
    /// `N` entries need a budget of `N` times these bytes and the weight, times 16/15 for the free
    /// memory that the reclaimer keeps, and 32 KiB more for each processor
    /// ([`stock_slots`](lowwater_lru_core::MemcgTree::stock_slots)).
    pub const ENTRY_BYTES: ByteSize = ByteSize::new(Record::<K, V>::BYTES);

    /// Drops the keys and values of removed entries that no reader holds back, and returns unused
    /// memory to the system. Returns the bytes that readers still hold back. O(retired entries).
    ///
    /// Threads that remove entries do the same work in small steps, and so does the reclaimer when
    /// the cache has shrunk; call this to have it done at once. Entries that readers hold back are
    /// dropped soon after the readers have left. If the remaining entries are sparse, the runtime's
    /// housekeeper then compacts them.
    pub fn collect(&self) -> ByteSize {
        let stays = self.inner.core.collect();
        if stays > ByteSize::ZERO {
            self.inner.core.notifier.notify_reaper();
        }
        self.inner.core.request_compaction();
        stays
    }

    /// Returns the memory that the cache itself has from the system: entries, the free slots
    /// between them, and the index. Not included: memory that keys and values own, the groups, the
    /// cache's registration in the runtime, loads in progress, times of failed reloads, the headers
    /// and free parts of chunks that small caches share, and the ghosts, which belong to the
    /// runtime ([`RuntimeStats::ghosts`](crate::runtime::RuntimeStats::ghosts)). O(entries / 500).
    pub fn footprint(&self) -> ByteSize {
        self.inner.core.footprint()
    }

    /// Returns the number of entries, including expired ones that are not removed yet. O(1).
    pub fn len(&self) -> usize {
        self.inner.core.len()
    }

    /// Returns whether the cache has no entries, not even expired ones.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries that `group` itself has in this cache; 0 for a group of
    /// another runtime. O(nodes).
    pub fn len_of(&self, group: &Memcg) -> u64 {
        if !group.is_in_tree_of(&self.inner.group) {
            return 0;
        }
        let queues = &self.inner.core.queues;
        (0..self.inner.runtime.registry().nodes()).map(|node| queues.count(group, NodeId::new(node as u16))).sum()
    }

    /// Returns the group of new entries that name no other group. Its [`usage`](Memcg::usage) is in
    /// bytes.
    ///
    /// This is the cache's own group if the builder has set a limit
    /// ([`CacheBuilder::low`](super::CacheBuilder::low)): its limits are the cache's, and may be
    /// changed. Otherwise it is the builder's group or the root, with limits that hold for all
    /// caches and tenants in that group; the root's `max` is the budget, and is set by
    /// [`Runtime::set_budget`](crate::Runtime::set_budget) only.
    pub fn group(&self) -> &Memcg {
        &self.inner.group
    }

    /// Returns the runtime with which the cache was built: its budget, groups and reclaimer are
    /// those of the cache.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// Returns the counters since the cache was built. O(1), takes no lock.
    pub fn stats(&self) -> CacheStats {
        self.inner.core.stats()
    }
}

impl<K, V, S> Clone for Cache<K, V, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<K, V, S> std::fmt::Debug for Cache<K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}
