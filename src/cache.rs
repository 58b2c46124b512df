//! A keyed cache whose memory belongs to tenants and gives way under pressure.
//!
//! ```text
//!     get    index (hash, no lock) -> entry: mark it used, if that is news. No list, no group, no counter of the entry's tenant.
//!     insert weigh -> charge the group (may evict, may reclaim) -> slot of this node -> index, and the list of (group, node),
//!            under one segment's lock
//!     evict  reclaimer or direct reclaim -> shrinker -> walk of (group, node), oldest first (`queues` says in which order):
//!            used since? kept, further up.  else: off the list; lock dropped; out of the index; listener; retired
//! ```
//!
//! # Who ends an entry
//!
//! An entry has one handle: a list has it, or who took it off. Who takes an entry out of the index, which one thread does, under its
//! segment's lock, says why, and takes the handle off the list; a walk that has isolated the entry keeps it. Whoever then has
//! the handle ends the entry: gives its charge back, tells the listener, retires it. Its memory is used again when the readers that
//! may have found it have left, so it is charged a little shorter than it is there, and counted as
//! retired meanwhile (`runtime::retired`).
//!
//! Lock order: segment, then list. A walk holds a list's lock and takes no segment's. Weigher, loader, listener, and the values' own
//! `Drop` run without any lock; a value's `Clone` inside the read side, where it holds back the memory of entries that leave meanwhile.
//! Keys' `Hash` and `Eq` may run under a segment's lock; if they panic, nothing is changed.
//!
//! # Entries that cannot be found
//!
//! A key's hash may panic, or be another than it was. A walk that has taken such an entry off its
//! list, and does not find it in the index though it says that it is there, puts it back: charged,
//! on a list, and the last to be looked at again (`Core::put_back`). Whoever goes over the index
//! takes it out by where it is (`Core::take_out_shown`): `clear`, `retain`, what expires, and a
//! dropped group. To remember each entry's hash was weighed: 8 bytes of an entry's 24, for faults
//! of others.

mod builder;
mod charge;
mod core;
mod entry;
mod error;
mod fill;
mod ghost;
mod keep;
mod load;
#[cfg(feature = "metrics")]
mod metrics;
mod migration;
mod pinned;
mod place;
mod queues;
mod room;
mod save;
mod shrink;
mod stats;
mod tenant;
mod thread;
mod time;
mod walk;
mod worth;

#[cfg(test)]
mod tests;

pub use builder::{CacheBuilder, NoWeigher};
pub use error::{BuildError, InsertError, Reason};
pub use pinned::Pinned;
pub use place::{Computed, Current, Op, Place};
pub use queues::Eviction;
pub use save::{Loaded, Meta};
pub use stats::{CacheStats, RemovalCause};
pub use walk::{Iter, Visit};

#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use equivalent::Equivalent;
use hashbrown::DefaultHashBuilder;
use lowwater_lru_core::index::Near;
use lowwater_lru_core::{pin, Bytes, Guard, Memcg, NodeId};
use lowwater_shrinker::Registration;

use self::core::{Core, Found, Maybe};
use crate::runtime::ChoresId;
use crate::Runtime;
use entry::Entry;
use load::Flights;
use time::Lifetime;

/// What a key and a value own beyond their own size.
type Weigher<K, V> = Box<dyn Fn(&K, &V) -> Bytes + Send + Sync>;
/// Who hears of entries that leave.
type Listener<K, V> = Box<dyn Fn(&K, &V, RemovalCause) + Send + Sync>;

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
/// take, and then are refused ([`Reason::HeldByReaders`]). [`collect`](Self::collect) drops at once
/// what can be.
///
/// A key whose `Hash` or `Eq` panics, or says something else than before, is a fault of its own:
/// lookups may not find it. Its entry stays charged until it is found, evicted or expires; at the
/// latest until [`clear`](Self::clear), its group's end by [`drop_group`](Runtime::drop_group), or
/// the cache's end. If all of a full cache is such entries, inserts are refused. Neither may use the
/// cache, or wait for who does: they may run under a lock of a part of it.
///
/// When less than half of the memory of a node's entries is used, because most have left, the runtime's keeper moves the others together, and gives
/// the rest to the system: a clone of the key and of the value takes an entry's place, and the old ones are dropped. Nobody is told. A value that is
/// changed in place should therefore be shared by its clones, as an `Arc` is, or what is changed while it moves is lost.
pub struct Cache<K: Send + Sync + 'static, V: Send + Sync + 'static, S = DefaultHashBuilder> {
    inner: Arc<Inner<K, V, S>>,
}

/// What the handles share. The core is the shrinker, too, and must not hold its own registration.
struct Inner<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    /// After its end no callback uses the core. Taken when this is dropped.
    registration: Option<Registration>,
    core: Arc<Core<K, V, S>>,
    /// By which the keeper knows the core, and tells it of groups that end.
    chores: ChoresId,
    flights: Flights<K, V>,
    group: Memcg,
    /// Of entries that name no other.
    lifetime: Lifetime,
    /// The last of the registry's nodes. If that is the first, nobody needs to be asked which.
    last_node: NodeId,
    weigher: Weigher<K, V>,
    runtime: Runtime,
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
    /// What every entry costs beyond what the weigher says: itself, its place in the index, its part of what remembers those that left.
    pub const ENTRY_BYTES: Bytes = Bytes::new(Entry::<K, V>::BYTES);

    /// The value of `key`, if it is there and has not expired. The entry counts as used.
    ///
    /// No lock is taken, and nothing is written that other readers write, but for the first few uses of an entry. To ask for many,
    /// or to look at a value without cloning it, [`pin`](Self::pin).
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // How many lookups a processor has under way, each waiting for its lines, is a matter of how few instructions one has. So here is
        // what is mostly to be done, and all else elsewhere.
        let core = &*self.inner.core;
        let guard = pin();
        let hash = core.hash(key);
        match core.index.near(hash, &guard, |entry| key.equivalent(&entry.key)) {
            Near::Found(entry) if core.is_plain(entry) && core.counters.hit() => {
                entry.mark_used();
                return Some(entry.value.clone());
            }
            Near::Found(entry) => {
                if let Some(value) = self.get_followed(entry, hash) {
                    return Some(value);
                }
            }
            Near::Nothing => return self.get_nothing(guard),
            Near::Further => {}
        }
        self.get_further(key, guard)
    }

    /// [`get`](Self::get), where this was found and time or order are to be asked; none if it has expired.
    #[cold]
    fn get_followed(&self, entry: &Entry<K, V>, hash: u64) -> Option<V> {
        let core = &self.inner.core;
        if core.has_expired(entry) {
            return None;
        }
        core.used(entry, hash, &pin());
        core.counters.looked_up(true);
        Some(entry.value.clone())
    }

    /// [`get`](Self::get), where nothing is there.
    #[inline(never)]
    fn get_nothing(&self, guard: Guard) -> Option<V> {
        drop(guard);
        self.inner.core.counters.looked_up(false);
        None
    }

    /// [`get`](Self::get), where one look was not enough.
    #[cold]
    fn get_further<Q>(&self, key: &Q, guard: Guard) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // Nobody's drop is to be called inside.
        drop(guard);
        let core = &self.inner.core;
        let value = self.look(key, |entry, hash, guard| {
            core.used(entry, hash, guard);
            entry.value.clone()
        });
        core.counters.looked_up(value.is_some());
        value
    }

    /// The value of `key`, without counting it as used, or as a hit or a miss.
    pub fn peek<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.look(key, |entry, _, _| entry.value.clone())
    }

    /// Is `key` there? Does not count as use.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.look(key, |_, _, _| ()).is_some()
    }

    /// Puts a value under `key`, for the cache's own group and its own time. Returns the value that was there.
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
    ///
    /// `load` may ask this cache, or another one, for any key. Where that would have two loads wait for each other, as when it asks for the
    /// same key, or for one whose load asks for this one, it does not wait, but loads once more. A load on a thread that is waited for by
    /// other means (a channel, a task that only this thread runs) is not seen.
    pub fn get_or_insert_with(&self, key: K, load: impl FnOnce() -> V) -> V {
        self.entry(key).or_insert_with(load)
    }

    /// The value of `key`, or that of `load`, as [`get_or_insert_with`](Self::get_or_insert_with), if `load` has one.
    ///
    /// ```
    /// # use lowwater::{Bytes, Cache, Runtime};
    /// # let runtime = Runtime::builder().budget(Bytes::mib(16)).build()?;
    /// let cache = Cache::<String, u64>::builder(&runtime).weigher(|k, _| Bytes::new(k.capacity() as u64)).build()?;
    /// assert!(cache.try_get_or_insert_with("x".into(), || "x".parse::<u64>()).is_err());
    /// assert_eq!(cache.try_get_or_insert_with("x".into(), || "7".parse::<u64>()), Ok(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What `load` says. Then nothing is kept, and another of those who wait calls theirs.
    pub fn try_get_or_insert_with<E>(&self, key: K, load: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        self.entry(key).or_try_insert_with(load)
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), for a task. See [`Place::or_insert_with_async`].
    #[cfg(feature = "async")]
    pub async fn get_or_insert_with_async(&self, key: K, load: impl Future<Output = V>) -> V {
        self.entry(key).or_insert_with_async(load).await
    }

    /// As [`try_get_or_insert_with`](Self::try_get_or_insert_with), for a task. See [`Place::or_try_insert_with_async`].
    ///
    /// # Errors
    ///
    /// What `load` says. Then nothing is kept, and another of those who wait loads.
    #[cfg(feature = "async")]
    pub async fn try_get_or_insert_with_async<E>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        self.entry(key).or_try_insert_with_async(load).await
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
        let (hash, guard) = (core.hash(key), pin());
        let mut cause = RemovalCause::Explicit;
        let (entry, ended) = core.take_out(
            hash,
            &guard,
            |entry| key.equivalent(&entry.key),
            |entry| {
                if core.has_expired(entry) {
                    cause = RemovalCause::Expired;
                }
                cause
            },
        )?;
        let value = (cause == RemovalCause::Explicit).then(|| entry.value.clone());
        drop(guard);
        drop(ended);
        value
    }

    /// Gives `key` a new time to live, none for ever; the entry counts as used. False if it is not there. An idle time that it had is
    /// over: the new one counts, however often it is used.
    pub fn touch<Q>(&self, key: &Q, time_to_live: Option<Duration>) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.inner.core;
        let expires = core.clock.end_of(time_to_live.map_or(Lifetime::Forever, Lifetime::Fixed));
        let touched = self.look(key, |_, hash, guard| {
            let is_it = |there: &Entry<K, V>| key.equivalent(&there.key) && !core.has_expired(there);
            core.index.with(hash, guard, is_it, |there| {
                there.expire_at(expires);
                there.mark_used();
                core.queues.used_last(there);
            })
        });
        self.inner.says(expires);
        touched.flatten().is_some()
    }

    /// Takes everything out. The listener is told of each entry. Locks the place of one entry at a time, and gives their memory back to
    /// the system.
    pub fn clear(&self) {
        self.retain(|_, _| false);
        self.inner.core.queues.forget();
    }

    /// Drops the keys and values of entries that have left, as far as no reader holds them back, and gives memory that is not used to
    /// the system. Says how much had to stay. O(what waits).
    ///
    /// Those who take entries out do this little by little, and the reclaimer when it has made room; it is for who wants it now. If what is
    /// left is scattered, the runtime's keeper moves it together after that.
    pub fn collect(&self) -> Bytes {
        let stays = self.inner.core.index.collect();
        self.inner.core.want_migration();
        stays
    }

    /// Memory that the cache itself has from the system: entries and free room between them, index, ghosts. Not what keys and values own,
    /// nor what its groups, its place in the runtime, and loads under way cost. O(entries / 500).
    pub fn footprint(&self) -> Bytes {
        let core = &self.inner.core;
        // Each behind two counters; and the pointer by which the lists tell the registry, behind two more.
        let shared = 7 * size_of::<usize>() + size_of::<Inner<K, V, S>>() + size_of::<Core<K, V, S>>();
        // The index and the queues count themselves.
        let own = shared - size_of_val(&core.index) - size_of_val(&core.queues)
            + core.costs.as_deref().map_or(0, size_of_val)
            + core.counters.footprint()
            + core.queues.footprint()
            + core.hands.footprint()
            + core.rounds.footprint()
            + core.migration.footprint();
        let parts = core.index.slab().footprint().saturating_add(core.index.footprint());
        parts.saturating_add(Bytes::new(own as u64))
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
        let core = &self.inner.core;
        CacheStats { drop_panics: core.index.slab().drop_panics(), ..core.counters.read() }
    }

    /// What `f` says of the live entry of `key`, with its hash and the guard. One that has expired is taken out on the way.
    #[inline]
    fn look<Q, R>(&self, key: &Q, f: impl FnOnce(&Entry<K, V>, u64, &Guard) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let core = &self.inner.core;
        let (hash, guard) = (core.hash(key), pin());
        match core.find(hash, key, &guard) {
            Found::Live(entry) => Some(f(entry, hash, &guard)),
            Found::Nothing => None,
            Found::Expired(ended) => {
                drop(guard);
                drop(ended);
                None
            }
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Inner<K, V, S> {
    fn registration(&self) -> &Registration {
        self.registration.as_ref().expect("only dropping takes it")
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for Inner<K, V, S> {
    fn drop(&mut self) {
        // Both wait until no other thread works on the core, unless this one is inside a callback: then the last thread that works on the
        // core drops it.
        self.runtime.keeper().remove(self.chores);
        drop(self.registration.take());
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
