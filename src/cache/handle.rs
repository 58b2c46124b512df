//! The public handle of a cache, and what its clones share.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_shrinker::Registration;

use super::core::Core;
use super::expiry::clock::Ttl;
use super::load::single_flight::InflightLoads;
use super::record::Record;
use super::stats::CacheStats;
use crate::runtime::MaintenanceId;
use crate::Runtime;

/// The function for the bytes that a key and a value own beyond their own size.
pub(super) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> ByteSize + Send + Sync>;

/// A keyed cache in a [`Runtime`]. A handle: clones are the same cache; the last one drops the entries.
///
/// The drop of the last handle waits for callbacks of the cache that other threads run, and when it returns all that the cache has
/// captured (listener, weigher, hasher) is dropped. Inside a callback, of any cache or shrinker, or in the code of a load
/// ([`CallbackScope`](crate::CallbackScope)), it waits for nothing: no callback of the cache begins any more but for entries that another
/// thread takes out already, and the last thread that works on the cache drops it.
///
/// It has no size of its own. It holds what its groups' limits and the runtime's budget let it, and gives way, oldest unused first, when
/// other caches or tenants need the memory.
///
/// ```
/// use lowwater::{ByteSize, Cache, Runtime};
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
/// let cache = Cache::<u64, String>::builder(&runtime).weigher(|_, text| ByteSize::new(text.capacity() as u64)).build()?;
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
/// Operations on one key are linearizable. [`len`](Self::len), [`clear`](Self::clear), [`retain`](Self::retain) and
/// [`stats`](Self::stats) go from part to part, and may see some of what others do meanwhile.
///
/// # Code of keys and values
///
/// Listener, weigher, load and the `Drop` of values run without any lock, and may use the cache. A key's `Hash` and `Eq` may run under a
/// lock of the cache, so they must not use it, nor drop the last handle on any cache. A value's `Clone` runs inside the read side: while it
/// blocks, no cache of the process frees what has left.
///
/// # Memory
///
/// An entry that leaves is uncharged at once. Its memory is used again, and its key and value dropped, when every reader that may have
/// found it has left, and a few others have left the cache after it: a 16th of the entries (64 to 16,384) or 512 KiB for each of a few
/// threads. Readers that stay inside hold back more. All of it counts as retired, in one count for
/// all caches of the runtime, and is bounded: see [`Runtime`]. When there is much, inserts drop
/// what they can of all caches; when it is too much, they wait for readers, as long as a charge may
/// take, and then are refused ([`RejectReason::HeldByReaders`](super::RejectReason::HeldByReaders)). [`collect`](Self::collect) drops at once
/// what can be.
///
/// A key whose `Hash` or `Eq` panics, or says something else than before, is a fault of its own:
/// lookups may not find it. Its entry stays charged until it is found, evicted or expires; at the
/// latest until [`clear`](Self::clear), its group's end by [`drop_group`](Runtime::drop_group), or
/// the cache's end. If all of a full cache is such entries, inserts are refused. Neither may use the
/// cache, or wait for who does: they may run under a lock of a part of it.
///
/// When less than half of the memory of a node's entries is used, because most have left, the runtime's housekeeper moves the others together, and gives
/// the rest to the system: a clone of the key and of the value takes an entry's place, and the old ones are dropped. Nobody is told. A value that is
/// changed in place should therefore be shared by its clones, as an `Arc` is, or what is changed while it moves is lost.
pub struct Cache<K: Send + Sync + 'static, V: Send + Sync + 'static, S = DefaultHashBuilder> {
    pub(super) inner: Arc<CacheInner<K, V, S>>,
}

/// What the clones of a handle share. The core is the shrinker, too, and must not hold its own registration.
pub(super) struct CacheInner<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    /// After the registration's end no callback uses the core. Taken when this is dropped.
    pub(super) registration: Option<Registration>,
    pub(super) core: Arc<Core<K, V, S>>,
    /// The core's number in the housekeeper.
    pub(super) maintenance: MaintenanceId,
    pub(super) inflight: InflightLoads<K, V>,
    pub(super) group: Memcg,
    /// The cache's limits have made the group, which ends with the cache.
    pub(super) owns_group: bool,
    /// An entry was inserted for another group than the cache's own.
    pub(super) has_tenants: AtomicBool,
    /// The time to live of records that name no other.
    pub(super) ttl: Ttl,
    /// The last of the registry's nodes. With one node, the topology is not asked.
    pub(super) last_node: NodeId,
    pub(super) weigher: Weigher<K, V>,
    pub(super) runtime: Runtime,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Bytes that every entry is charged beyond its weight: for the record, its index slot and its share
    /// of the ghost table.
    pub const ENTRY_BYTES: ByteSize = ByteSize::new(Record::<K, V>::BYTES);

    /// Drops the keys and values of entries that have left, as far as no reader holds them back, and gives memory that is not used to
    /// the system. Says how much had to stay. O(what waits).
    ///
    /// Those who take entries out do this little by little, and the reclaimer when it has made room; it is for who wants it now. If what is
    /// left is scattered, the runtime's housekeeper moves it together after that.
    pub fn collect(&self) -> ByteSize {
        let stays = self.inner.core.index.collect();
        self.inner.core.request_compaction();
        stays
    }

    /// Memory that the cache itself has from the system: entries and free room between them, and the index. Not what keys and values own,
    /// nor what its groups, its place in the runtime, and loads under way cost; nor the ghosts of all caches, which are the runtime's
    /// ([`RuntimeStats::ghosts`](crate::runtime::RuntimeStats::ghosts)). O(entries / 500).
    pub fn footprint(&self) -> ByteSize {
        self.inner.core.footprint()
    }

    /// How many entries there are, expired ones that nobody has met yet included. O(1).
    pub fn len(&self) -> usize {
        self.inner.core.counters.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many entries `group` itself has here; one of another runtime has none. O(nodes).
    pub fn len_of(&self, group: &Memcg) -> u64 {
        if !group.is_in_tree_of(&self.inner.group) {
            return 0;
        }
        let queues = &self.inner.core.queues;
        (0..self.inner.runtime.registry().nodes()).map(|node| queues.count(group, NodeId::new(node as u16))).sum()
    }

    /// The group of new entries for which no other is named. Its [`usage`](Memcg::usage) tells the
    /// bytes.
    ///
    /// The cache's own group if the builder has set a limit
    /// ([`CacheBuilder::low`](super::CacheBuilder::low)): its limits are the cache's, and may be
    /// changed. Otherwise the group that the builder was given, or the root, whose limits are those
    /// of all caches and tenants there.
    pub fn group(&self) -> &Memcg {
        &self.inner.group
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// What was done so far.
    pub fn stats(&self) -> CacheStats {
        self.inner.core.stats()
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> CacheInner<K, V, S> {
    pub(super) fn registration(&self) -> &Registration {
        self.registration.as_ref().expect("only dropping takes it")
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for CacheInner<K, V, S> {
    fn drop(&mut self) {
        // Both wait until no other thread works on the core, unless this one is inside a callback: then the last thread that works on the
        // core drops it.
        self.runtime.housekeeper().remove(self.maintenance);
        drop(self.registration.take());
        if self.owns_group {
            // The core, and the entries with it, may be dropped by another thread: they are charged to the parent until then.
            self.runtime.end_own_group(&self.group);
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Clone for Cache<K, V, S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> std::fmt::Debug for Cache<K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("name", &self.inner.registration().name())
            .field("group", &self.inner.group)
            .field("len", &self.inner.core.counters.len())
            .finish_non_exhaustive()
    }
}
