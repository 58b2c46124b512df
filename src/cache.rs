//! A keyed cache whose memory belongs to tenants and gives way under pressure.
//!
//! ```text
//!     get    index (hash, one shard's read lock) -> entry: mark it used. No list, no group, no counter of the entry's tenant.
//!     insert weigh -> charge the group (may reclaim) -> index, and the list of (group, node), under one shard's lock
//!     evict  reclaimer or direct reclaim -> shrinker -> walk of (group, node), oldest first (`queues` says in which order):
//!            used since? kept, further up.  else: off the list; lock dropped; out of the index; listener; freed
//! ```
//!
//! # Who removes an entry
//!
//! Whoever takes it out of the index, which one thread does, under its shard's lock. That thread tells the listener. An entry is on its
//! list for as long as it is in the index, but for the moment between being isolated by a walk and being taken out. Its bytes
//! stay charged until its memory is really freed, by the last reader that holds it.
//!
//! Lock order: shard, then list. A walk holds a list's lock and takes no shard's. Weigher, loader, listener, and the values' own
//! `Clone` and `Drop` run without any lock.

mod builder;
mod entry;
mod error;
mod ghost;
mod index;
mod load;
mod place;
mod queues;
mod room;
mod shrink;
mod stats;
mod tenant;

#[cfg(test)]
mod tests;

pub use builder::{CacheBuilder, NoWeigher};
pub use error::{BuildError, InsertError, Reason};
pub use place::{Computed, Current, Op, Place};
pub use queues::Eviction;
pub use stats::{CacheStats, RemovalCause};

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use equivalent::Equivalent;
use hashbrown::DefaultHashBuilder;
use lowwater_lru_core::{Bytes, HookId, Memcg, NodeId, OfflineHook};
use lowwater_shrinker::Registration;

use crate::Runtime;
use entry::Entry;
use index::Index;
use load::Flights;
use queues::Queues;
use room::Hands;
use stats::Counters;

/// What a key and a value own beyond their own size.
type Weigher<K, V> = Box<dyn Fn(&K, &V) -> Bytes + Send + Sync>;
/// Who hears of entries that leave.
type Listener<K, V> = Box<dyn Fn(&K, &V, RemovalCause) + Send + Sync>;

/// A keyed cache in a [`Runtime`]. A handle: clones are the same cache; the last one drops the entries.
///
/// It has no size of its own. It holds what its groups' limits and the runtime's budget let it, and gives way, oldest unused first, when
/// other caches or tenants need the memory.
///
/// ```
/// use lowwater::{Bytes, Cache, Runtime};
///
/// let runtime = Runtime::builder().budget(Bytes::mib(16)).build()?;
/// let cache = Cache::<u64, String>::builder(&runtime).weigher(|_, text| Bytes::new(text.capacity() as u64)).build()?;
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
/// Operations on one key are linearizable. [`len`](Self::len), [`clear`](Self::clear) and [`stats`](Self::stats) go over the shards one
/// by one, and may see some of what others do meanwhile.
pub struct Cache<K: Send + Sync + 'static, V: Send + Sync + 'static, S = DefaultHashBuilder> {
    inner: Arc<Inner<K, V, S>>,
}

/// What the handles share. The core is the shrinker, too, and must not hold its own registration.
struct Inner<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    // First: after it is dropped no callback uses the core.
    registration: Registration,
    core: Arc<Core<K, V>>,
    /// By which the core hears of groups that end.
    hook: HookId,
    flights: Flights<K, V>,
    hasher: S,
    group: Memcg,
    time_to_live: Option<Duration>,
    weigher: Weigher<K, V>,
    runtime: Runtime,
}

/// The part that the reclaimer works on.
struct Core<K: Send + Sync, V: Send + Sync> {
    index: Index<K, V>,
    queues: Queues<K, V>,
    hands: Hands,
    listener: Option<Listener<K, V>>,
    counters: Counters,
    /// Times are kept as nanoseconds since this moment.
    epoch: Instant,
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Begins a cache in `runtime`.
    ///
    /// The builder asks for a weigher before it can [`build`](CacheBuilder::build): budgets are in bytes, and a count of entries taken for
    /// bytes is how caches run machines out of memory. Without one this does not compile:
    ///
    /// ```compile_fail
    /// # let runtime = lowwater::Runtime::builder().build().unwrap();
    /// let cache = lowwater::Cache::<u64, String>::builder(&runtime).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(runtime: &Runtime) -> CacheBuilder<K, V> {
        CacheBuilder::new(runtime)
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// What every entry costs beyond what the weigher says: itself, its `Arc`, its place in the index.
    pub const ENTRY_BYTES: Bytes = Bytes::new(Entry::<K, V>::BYTES);

    /// The value of `key`, if it is there and has not expired. The entry counts as used.
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let found = self.find(key);
        self.inner.core.counters.looked_up(found.is_some());
        found.map(|entry| {
            entry.mark_used();
            entry.value.clone()
        })
    }

    /// The value of `key`, without counting it as used, or as a hit or a miss.
    pub fn peek<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key).map(|entry| entry.value.clone())
    }

    /// Is `key` there? Does not count as use.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key).is_some()
    }

    /// Puts a value under `key`, for the cache's own group and its own time to live. Returns the value that was there.
    ///
    /// For another group or time, see [`entry`](Self::entry).
    ///
    /// # Errors
    ///
    /// [`InsertError`] says why, and gives the value back. What was under the key before is still there.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, InsertError<V>> {
        self.entry(key).insert(value)
    }

    /// The value of `key`, or that of `load`, which is called by one of those who ask at the same time; the others wait for it.
    ///
    /// A value that finds no room is returned all the same, and not kept. If `load` panics, another of those who wait calls theirs.
    /// `load` must not ask this cache for the same key.
    pub fn get_or_insert_with(&self, key: K, load: impl FnOnce() -> V) -> V {
        self.entry(key).or_insert_with(load)
    }

    /// The place of `key`: to insert with a group and a time of its own, or to compute a value from the one that is there.
    pub fn entry(&self, key: K) -> Place<'_, K, V, S> {
        Place::new(self, key)
    }

    /// Takes `key` out and returns its value.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.inner.core;
        let entry = core.index.remove(self.hash(key), key, &core.queues)?;
        let cause = if entry.has_expired(core.now()) { RemovalCause::Expired } else { RemovalCause::Explicit };
        core.removed(&entry, cause);
        (cause == RemovalCause::Explicit).then(|| entry.value.clone())
    }

    /// Gives `key` a new time to live, none for ever; the entry counts as used. False if it is not there.
    pub fn touch<Q>(&self, key: &Q, time_to_live: Option<Duration>) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.inner.core;
        self.find(key).is_some_and(|entry| {
            entry.expire_at(time_to_live.map(|time| core.after(time)));
            entry.mark_used();
            true
        })
    }

    /// Takes everything out. The listener is told of each entry. Locks each shard for a few entries at a time.
    pub fn clear(&self) {
        let core = &self.inner.core;
        core.index.drain(&core.queues, |entry| core.removed(&entry, RemovalCause::Explicit));
        core.queues.forget();
    }

    /// How many entries there are, expired ones that nobody has met yet included. O(shards).
    pub fn len(&self) -> usize {
        self.inner.core.index.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many entries `group` itself has here. O(nodes).
    pub fn len_of(&self, group: &Memcg) -> u64 {
        let queues = &self.inner.core.queues;
        (0..self.inner.runtime.topology().nodes()).map(|node| queues.count(group, NodeId::new(node as u16))).sum()
    }

    /// The group to which entries belong that name no other. Its [`usage`](Memcg::usage) tells the bytes.
    pub fn group(&self) -> &Memcg {
        &self.inner.group
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// What was done so far.
    pub fn stats(&self) -> CacheStats {
        self.inner.core.counters.read()
    }

    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.inner.hasher.hash_one(key)
    }

    /// The live entry of `key`. One that has expired is taken out on the way.
    fn find<Q>(&self, key: &Q) -> Option<Arc<Entry<K, V>>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let entry = self.inner.core.index.get(self.hash(key), key)?;
        self.inner.core.live(entry)
    }
}

impl<K: Send + Sync, V: Send + Sync> Core<K, V> {
    /// Nanoseconds since the epoch.
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The moment `time` from now; one too far off to be told is never.
    fn after(&self, time: Duration) -> u64 {
        u64::try_from(time.as_nanos()).map_or(u64::MAX, |ns| self.now().saturating_add(ns))
    }

    /// The entry, unless it has expired; then it is taken out.
    fn live(&self, entry: Arc<Entry<K, V>>) -> Option<Arc<Entry<K, V>>> {
        if !entry.may_expire() || !entry.has_expired(self.now()) {
            return Some(entry);
        }
        if self.index.remove_same(&entry, &self.queues) {
            self.removed(&entry, RemovalCause::Expired);
        }
        None
    }

    /// To be called by whoever took `entry` out of the index, without a lock.
    fn removed(&self, entry: &Entry<K, V>, cause: RemovalCause) {
        self.counters.removed(cause);
        let Some(listener) = &self.listener else { return };
        let tell = std::panic::AssertUnwindSafe(|| listener(&entry.key, &entry.value, cause));
        if std::panic::catch_unwind(tell).is_err() {
            self.counters.listener_panicked();
        }
    }
}

impl<K: Send + Sync, V: Send + Sync> OfflineHook for Core<K, V> {
    fn offline(&self, dying: &Memcg, _parent: &Memcg) {
        self.queues.forget_tenant(dying);
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Inner<K, V, S> {
    fn drop(&mut self) {
        self.runtime.tree().remove_hook(self.hook);
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
            .field("name", &self.inner.registration.name())
            .field("group", &self.inner.group)
            .field("len", &self.inner.core.index.len())
            .finish_non_exhaustive()
    }
}
