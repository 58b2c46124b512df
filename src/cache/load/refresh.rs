//! Reloads of present entries: refresh ahead, and stale while revalidate.
//!
//! A call that may reload finds an entry shortly before its deadline, or stale after it, and
//! returns its value. One of the callers becomes the leader of a load in flight for the key, as for
//! a miss (`single_flight.rs`), and gets a [`Refresh`]: the right to reload. Others do not wait:
//! they find the load in flight, and use the old value. A load that misses the key meanwhile
//! follows the reload if that has begun, and otherwise takes its place.
//!
//! The record is marked when the right to reload it is given. A call that replaces a marked record
//! stops the reload, under the lock of the record's segment, because the insert of the new value
//! checks under the same lock whether the reload was stopped. A call that removes the key stops the
//! reload as any load, even if the record is gone. An eviction and an expiry do not stop it.
//!
//! A change must ensure that at most one reload of a key may still insert its value, and that a
//! reloaded value never replaces a younger one.

use std::convert::Infallible;
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use hashbrown::DefaultHashBuilder;
use lowwater_lru_core::Memcg;
use lowwater_rcu::pin;

use super::filled::{Filled, Origin};
use super::single_flight::Leader;
use super::wait_graph::LoadScope;
use crate::cache::entry::Entry;
use crate::cache::expect::Expect;
use crate::cache::expiry::clock::Ttl;
use crate::cache::expiry::deadline::SeenDeadline;
use crate::cache::expiry::freshness::Freshness;
use crate::cache::expiry::lifetime::Lifetime;
use crate::cache::handle::Cache;
use crate::cache::payer::Payer;
use crate::cache::record::Record;
use crate::cache::stats::Counters;

/// A value that was found, and the right to reload it; from [`Cache::get_or_refresh`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Hit<K, V, S = DefaultHashBuilder> {
    /// A clone of the cached value.
    pub value: V,
    /// Whether the value is past its deadline
    /// ([`CacheBuilder::stale_while_revalidate`](crate::cache::CacheBuilder::stale_while_revalidate)).
    pub is_stale: bool,
    /// The right to reload the entry, if it is due and this caller was chosen.
    pub refresh: Option<Refresh<K, V, S>>,
}

/// The right to reload one entry, ahead of its deadline or while it is stale; from
/// [`Cache::get_or_refresh`].
///
/// It holds a handle on the cache and borrows nothing, so it can be sent to another thread, or to a
/// task of an executor. There is one for a key at a time: until its load has ended, or it is
/// dropped, other callers get the old value. When the old value may not be used any more, loads of
/// the key (`get_or_insert_with`) wait for this load, if it has begun; otherwise one of them takes
/// its place, and the value of this load is returned and not inserted.
///
/// * **The new value** replaces the old one, with the cache's own time or that of
///   [`lifetime`](Self::lifetime), and is charged to the group of the old one. A function of
///   [`expire_after`](crate::cache::CacheBuilder::expire_after) is called with
///   [`ExpiryEvent::Create`](crate::cache::ExpiryEvent::Create).
/// * **If the entry was changed meanwhile**: a value that was inserted meanwhile is younger, and
///   stays.
/// * **If the entry was removed meanwhile** by a call ([`Cache::remove`], [`Cache::clear`], and the
///   like), even after its deadline, the new value is not inserted, and later loads of the key do
///   not wait for this load. If the entry was only evicted, has expired or was dropped with its
///   group, the new value is inserted. A reload that names its group ([`Entry::group`]) is refused
///   while that group is dropped, as other inserts are.
/// * **If the load fails**, panics, or is dropped, or the cache rejects the new value, the old one
///   stays until it expires, or until the end of its stale time. Another caller gets the right to
///   reload it one second after this caller did at the earliest, by the runtime's clock.
///
/// A `Refresh` that is leaked ([`std::mem::forget`]) keeps its handle on the cache, and no other
/// caller reloads the entry until a load that misses the key has taken the place of this reload.
/// For a task that is leaked while it loads, see `Entry::or_insert_with_async`.
///
/// ```
/// use lowwater::runtime::ManualClock;
/// use lowwater::{Cache, Runtime};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let runtime = Runtime::builder().unlimited().clock(&clock).build()?;
/// let pages = Cache::<u64, String>::builder(&runtime)
///     .weigher(|_, page| page.capacity())
///     .time_to_live(Duration::from_secs(60))
///     .refresh_ahead(Duration::from_secs(10))
///     .build()?;
/// pages.insert(7, "old".into())?;
/// clock.advance(Duration::from_secs(55));
///
/// let hit = pages.get_or_refresh(&7).expect("a live entry");
/// assert_eq!(hit.value, "old");
/// // Other callers are not asked to reload it.
/// assert!(pages.get_or_refresh(&7).is_some_and(|other| other.refresh.is_none()));
/// let refresh = hit.refresh.expect("the entry is due");
/// std::thread::spawn(move || refresh.load_with(|| "new".into())).join().unwrap();
/// assert_eq!(pages.get(&7).as_deref(), Some("new"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a refresh that is dropped counts as a failed reload"]
pub struct Refresh<K, V, S = DefaultHashBuilder> {
    // Dropped before the handle on the cache, whose drop may wait for callbacks: followers wait for
    // the leader.
    leader: Leader<K, V>,
    cache: Cache<K, V, S>,
    hash: u64,
    /// The group that is charged if the entry was evicted meanwhile, or in any case if `is_named`.
    group: Memcg,
    /// Whether the caller has named the group; otherwise it is the old entry's.
    is_named: bool,
    ttl: Ttl,
}

/// The next step of a load that may reload the entry it finds.
pub(super) enum Revalidation<'a, K, V, S> {
    /// Return this value.
    Hit(Filled<V>),
    /// Reload the entry.
    Reload(OldValue<'a, V>, Refresh<K, V, S>),
    /// Load the value.
    Miss(Entry<'a, K, V, S>),
}

/// The value of an entry that is being reloaded, as it was found before the reload.
///
/// Dropped after the [`Refresh`], so bound before it: it may be the last clone, and its drop may
/// load the key, which waits until the reload has ended.
pub(super) struct OldValue<'a, V> {
    found: Filled<V>,
    deadline: SeenDeadline,
    /// None if the lookup was counted.
    lookup: Option<StaleLookup<'a>>,
}

/// The lookup of a stale entry that is being reloaded. Its drop counts a hit if a value of the
/// cache was returned after all, and otherwise a miss.
struct StaleLookup<'a> {
    counters: &'a Counters,
    is_hit: bool,
}

impl Drop for StaleLookup<'_> {
    fn drop(&mut self) {
        self.counters.looked_up(self.is_hit);
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the value of `key` as [`get`](Self::get) does, also if it is stale, and to one of
    /// the callers the right to reload it, if it is due: see [`Refresh`]. Waits for no load.
    ///
    /// The right is for a load on another thread, or in a task. To load in this thread or task, see
    /// [`Entry::refresh`].
    ///
    /// An entry is due when less than
    /// [`CacheBuilder::refresh_ahead`](crate::cache::CacheBuilder::refresh_ahead) is left of its
    /// time to live, and stale from its deadline until
    /// [`CacheBuilder::stale_while_revalidate`](crate::cache::CacheBuilder::stale_while_revalidate)
    /// has passed.
    ///
    /// ```
    /// # use lowwater::{Cache, Runtime};
    /// # let runtime = Runtime::builder().unlimited().build()?;
    /// # let pages = Cache::<u64, String>::builder(&runtime).weigher(|_, page| page.capacity()).build()?;
    /// # let load = || "page".to_string();
    /// let page = match pages.get_or_refresh(&7) {
    ///     Some(hit) => {
    ///         if let Some(refresh) = hit.refresh {
    ///             std::thread::spawn(move || refresh.load_with(load));
    ///         }
    ///         hit.value
    ///     }
    ///     None => pages.get_or_insert_with(7, load),
    /// };
    /// # assert_eq!(page, "page");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "stale-while-revalidate")]
    pub fn get_or_refresh<Q>(&self, key: &Q) -> Option<Hit<K, V, S>>
    where
        K: Clone,
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.get_or_refresh_for(key, &self.inner.group)
    }

    /// As [`get_or_refresh`](Self::get_or_refresh). The group `otherwise` is charged for the new
    /// value if the entry is on no list of a group, because reclaim has isolated it.
    pub(in crate::cache) fn get_or_refresh_for<Q>(&self, key: &Q, otherwise: &Memcg) -> Option<Hit<K, V, S>>
    where
        K: Clone,
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.inner.core.hash(key);
        let find = |record: &Record<K, V>, is_due: bool| (record.value.clone(), is_due.then(|| record.key.clone()));
        let Some(((value, due), freshness, _)) = self.find_usable(key, hash, find) else {
            // Counts the miss, and removes an entry that is gone.
            return self.get(key).map(|value| Hit { value, is_stale: false, refresh: None });
        };
        self.inner.core.counters.looked_up(true);
        let refresh = due.and_then(|key| self.begin_refresh(hash, key, None, otherwise, self.inner.ttl));
        Some(Hit { value, is_stale: freshness == Freshness::Stale, refresh })
    }

    /// Calls `f` with a live or stale record of `key`, and with whether this caller may try to
    /// reload it. Counts a use; the caller counts a hit or a miss.
    fn find_usable<Q, R>(
        &self,
        key: &Q,
        hash: u64,
        f: impl FnOnce(&Record<K, V>, bool) -> R,
    ) -> Option<(R, Freshness, SeenDeadline)>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let (core, guard) = (&self.inner.core, pin());
        let record = core.index.get(hash, &guard, |record| key.equivalent(&record.key))?;
        let deadline = core.clock.seen(record.deadline());
        let freshness = core.freshness(record);
        match freshness {
            Freshness::Fresh | Freshness::Due => core.note_use(record, hash, &guard),
            // A function of the user that computes times is not called for an expired entry.
            Freshness::Stale => {
                record.mark_used();
                core.queues.promote(record);
            }
            Freshness::Gone => return None,
        }
        let is_due = freshness.is_due() && !core.inflight.has(hash);
        Some((f(record, is_due), freshness, deadline))
    }

    /// Begins a reload of the record of `key`, unless another one is in progress or began too
    /// recently (`retry_times.rs`), or the record has changed and is not due any more. The new
    /// value is charged to the group `named`, or to that of the old record, or `otherwise`.
    fn begin_refresh(
        &self,
        hash: u64,
        key: K,
        named: Option<&Memcg>,
        otherwise: &Memcg,
        ttl: Ttl,
    ) -> Option<Refresh<K, V, S>> {
        let core = &self.inner.core;
        if !core.inflight.retries().try_begin(hash, core.clock.now()) {
            return None;
        }
        // Forgotten if no reload begins: nobody gets the right then.
        let Some(mut leader) = core.inflight.start_reload(hash, key) else {
            core.inflight.retries().forget(hash);
            return None;
        };
        let owner = {
            // The keys' `Eq` runs here while followers wait.
            let _running = leader.run();
            // Dropped after the release of the load's lock, as that may run destructors of retired
            // values.
            let guard = pin();
            leader.with_key(|key| {
                let is_it = |there: &Record<K, V>| there.key == *key && core.freshness(there).is_due();
                core.index.with(hash, &guard, is_it, |there| {
                    there.set_reloading();
                    core.queues.owner(there)
                })
            })
        };
        let Some(owner) = owner else {
            core.inflight.retries().forget(hash);
            return None;
        };
        let group = named.cloned().or(owner).unwrap_or_else(|| otherwise.clone());
        Some(Refresh { cache: self.clone(), leader, hash, group, is_named: named.is_some(), ttl })
    }
}

impl<'a, K, V, S> Entry<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Looks up the entry of this key, of this hash, and begins to reload it if it is due.
    pub(super) fn find_to_refresh(self, hash: u64) -> Revalidation<'a, K, V, S> {
        let Self { cache, key, payer, ttl, .. } = self;
        let found = cache.find_usable(&key, hash, |record, is_due| (record.value.clone(), is_due));
        let Some(((value, is_due), freshness, deadline)) = found else {
            return Revalidation::Miss(Self { cache, key, payer, ttl, is_refresh: true });
        };
        let found = Filled { value, origin: origin_of(freshness) };
        let named = payer.is_named.then_some(payer.group);
        let refresh = is_due.then(|| cache.begin_refresh(hash, key, named, payer.group, ttl)).flatten();
        let counters = &cache.inner.core.counters;
        // The value of a stale entry that this caller reloads is returned only if the load fails.
        let is_pending = freshness == Freshness::Stale && refresh.is_some();
        let lookup = is_pending.then(|| StaleLookup { counters, is_hit: false });
        if lookup.is_none() {
            counters.looked_up(true);
        }
        match refresh {
            Some(refresh) => Revalidation::Reload(OldValue { found, deadline, lookup }, refresh),
            None => Revalidation::Hit(found),
        }
    }
}

/// Returns the origin of a value that was found with this freshness.
fn origin_of(freshness: Freshness) -> Origin {
    match freshness {
        Freshness::Stale => Origin::Stale,
        _ => Origin::Cached,
    }
}

impl<K, V, S> Refresh<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the time of the new value. By default, and with [`Lifetime::Unchanged`], the cache's
    /// own.
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.ttl = lifetime.ttl().unwrap_or(self.cache.inner.ttl);
        self
    }

    /// Reloads the entry in this thread, and returns the new value.
    ///
    /// `load` may request any key, as in [`Cache::get_or_insert_with`].
    pub fn load_with(self, load: impl FnOnce() -> V) -> V {
        match self.try_load_with(|| Ok::<V, Infallible>(load())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// Reloads the entry in this thread, and returns the new value, unless `load` fails.
    ///
    /// # Errors
    ///
    /// The error of `load`. Then the old value stays.
    pub fn try_load_with<E>(self, load: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        Ok(self.try_fill_with(load)?.value)
    }

    /// The async form of [`load_with`](Self::load_with). The load runs in the task that awaits it.
    #[cfg(feature = "async")]
    pub async fn load_with_async(self, load: impl Future<Output = V>) -> V {
        match self.try_load_with_async(async { Ok::<V, Infallible>(load.await) }).await {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// The async form of [`try_load_with`](Self::try_load_with).
    ///
    /// ```
    /// # use lowwater::{Cache, Runtime};
    /// # let runtime = Runtime::builder().unlimited().build()?;
    /// # let pages = Cache::<u64, String>::builder(&runtime).weigher(|_, page| page.capacity()).build()?;
    /// async fn fetch(id: u64) -> std::io::Result<String> {
    ///     Ok(format!("page {id}"))
    /// }
    ///
    /// let executor = tokio::runtime::Builder::new_current_thread().build()?;
    /// executor.block_on(async {
    ///     if let Some(refresh) = pages.get_or_refresh(&7).and_then(|hit| hit.refresh) {
    ///         tokio::spawn(refresh.try_load_with_async(fetch(7)));
    ///     }
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `load`. Then the old value stays.
    #[cfg(feature = "async")]
    pub async fn try_load_with_async<E>(mut self, load: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        // Not by `try_fill_with_async`: a future inside of another one makes the outer one larger,
        // twice.
        let value = super::run_task::run_task(|| Some(self.run()), load).await?;
        Ok(self.finish(value).value)
    }

    /// As [`try_load_with`](Self::try_load_with), and also returns whether the cache has the new
    /// value: [`Origin::Loaded`], [`Origin::Outrun`] if the entry was changed meanwhile, or
    /// [`Origin::Rejected`] with the reason; then the old value stays.
    ///
    /// ```
    /// use lowwater::cache::Origin;
    /// use lowwater::runtime::ManualClock;
    /// use lowwater::{ByteSize, Cache, Runtime};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let runtime = Runtime::builder().budget(ByteSize::kib(64)).clock(&clock).build()?;
    /// let pages = Cache::<u64, Vec<u8>>::builder(&runtime)
    ///     .weigher(|_, page| page.capacity())
    ///     .time_to_live(Duration::from_secs(60))
    ///     .refresh_ahead(Duration::from_secs(10))
    ///     .build()?;
    /// pages.insert(7, vec![1])?;
    /// clock.advance(Duration::from_secs(55));
    /// let refresh = pages.get_or_refresh(&7).and_then(|hit| hit.refresh).expect("the entry is due");
    /// let filled = refresh.try_fill_with(|| Ok::<_, std::io::Error>(vec![2; 1 << 20]))?;
    /// assert!(matches!(filled.origin, Origin::Rejected(_)));
    /// assert_eq!(pages.get(&7), Some(vec![1]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `load`. Then the old value stays.
    pub fn try_fill_with<E>(mut self, load: impl FnOnce() -> Result<V, E>) -> Result<Filled<V>, E> {
        let value = self.load_here(load)?;
        Ok(self.finish(value))
    }

    /// The async form of [`try_fill_with`](Self::try_fill_with). The load runs in the task that
    /// awaits it.
    ///
    /// # Errors
    ///
    /// The error of `load`. Then the old value stays.
    #[cfg(feature = "async")]
    pub async fn try_fill_with_async<E>(mut self, load: impl Future<Output = Result<V, E>>) -> Result<Filled<V>, E> {
        let value = super::run_task::run_task(|| Some(self.run()), load).await?;
        Ok(self.finish(value))
    }

    /// Marks the thread as running the load's code until the guard is dropped. Callers may follow
    /// the load from now on.
    pub(super) fn run(&mut self) -> LoadScope {
        self.leader.begin();
        self.leader.run()
    }

    /// Calls `load` as the load's code.
    pub(super) fn load_here<E>(&mut self, load: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        let _running = self.run();
        load()
    }

    /// Ends the reload in the call that has found the `old` value. Returns the loaded value, or
    /// after an error a usable value, if there is one.
    pub(super) fn finish_or<E>(self, loaded: Result<V, E>, old: OldValue<'_, V>) -> Result<Filled<V>, E> {
        let OldValue { found, deadline, mut lookup } = old;
        let error = match loaded {
            Ok(value) => return Ok(self.finish(value)),
            Err(error) => error,
        };
        let usable = self.usable(found, deadline).ok_or(error)?;
        if let Some(lookup) = &mut lookup {
            lookup.is_hit = true;
        }
        Ok(usable)
    }

    /// Returns the value that the entry has now, live or stale. If the entry was evicted, has
    /// expired and was removed, or was dropped with its group, returns `found` until `deadline`,
    /// the end of the stale time that the entry had at the lookup.
    fn usable(self, found: Filled<V>, deadline: SeenDeadline) -> Option<Filled<V>> {
        // Dropped before `found`, as parameters are dropped last: see `OldValue`.
        let mut this = self;
        let core = &this.cache.inner.core;
        // The keys' `Eq` and the value's `Clone` run here while followers wait.
        let _running = this.leader.run();
        // Dropped after the release of the load's lock: see `begin_refresh`.
        let guard = pin();
        // Under the segment's lock: see `Leader::is_stopped`.
        let there =
            this.leader.with_key(|key| core.index.with(this.hash, &guard, |there| there.key == *key, |there| there));
        match there {
            Some(record) => {
                let freshness = core.freshness(record);
                let value = || Filled { value: record.value.clone(), origin: origin_of(freshness) };
                (freshness != Freshness::Gone).then(value)
            }
            None if this.leader.is_stopped() => None,
            None => match core.clock.freshness_of_seen(deadline) {
                Freshness::Gone => None,
                freshness => Some(Filled { origin: origin_of(freshness), ..found }),
            },
        }
    }

    /// Inserts the new value, and completes the load.
    fn finish(self, value: V) -> Filled<V> {
        let Self { cache, leader, hash, group, is_named, ttl } = self;
        let core = &cache.inner.core;
        core.counters.loaded();
        let payer = Payer { group: &group, is_named };
        let mut origin = Origin::Loaded;
        let value = leader.finish(value, |key, value, load| {
            match cache.insert_record(key, value, hash, (payer, ttl), &Expect::Reload(load), None) {
                Ok(_) => core.inflight.retries().forget(hash),
                Err(rejected) => origin = rejected.reason.map_or(Origin::Outrun, Origin::Rejected),
            }
        });
        Filled { value, origin }
    }
}

impl<K, V, S> std::fmt::Debug for Refresh<K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refresh").field("cache", &self.cache).field("group", &self.group).finish_non_exhaustive()
    }
}
