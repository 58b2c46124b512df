//! Read-through: returns a key's value, or loads it in one of the callers that miss it.
//!
//! A caller that misses a key joins the key's load (`single_flight.rs`). One caller, the leader,
//! runs the user's closure without a lock and publishes the value; the others, the followers, get a
//! clone. A panic, an error or a dropped future passes the lead to a follower.
//!
//! A change must ensure that each follower is woken however the load ends, and that a call counts
//! one hit or one miss.

use std::convert::Infallible;
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};

use lowwater_rcu::pin;

use super::filled::{Filled, Origin};
use super::refresh::Revalidation;
#[cfg(feature = "async")]
use super::refresh::{OldValue, Refresh};
use super::single_flight::{InflightLoad, Join};
use super::ticket::LoadTicket;
use crate::cache::entry::Entry;
use crate::cache::expect::Expect;
use crate::cache::expiry::clock::Ttl;
use crate::cache::handle::Cache;
use crate::cache::payer::Payer;

/// The next step of a caller that misses a key.
pub(crate) enum FillStep<K, V> {
    /// Return this value.
    Done(V),
    /// Load the value.
    Load(LoadTicket<K, V>),
    /// Look the key up again.
    Retry(K),
}

impl<'a, K, V, S> Entry<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the current value, or inserts that of `load`; see [`Cache::get_or_insert_with`].
    pub fn or_insert_with(self, load: impl FnOnce() -> V) -> V {
        match self.or_try_insert_with(|| Ok::<V, Infallible>(load())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// Returns the current value, or inserts that of `load`; see [`Cache::try_get_or_insert_with`].
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a follower calls its own `load`, as
    /// [`Cache::try_get_or_insert_with`] describes.
    pub fn or_try_insert_with<E>(self, load: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        Ok(self.or_try_fill_with(load)?.value)
    }

    /// As [`or_try_insert_with`](Self::or_try_insert_with), and also returns where the value came
    /// from: a caller sees that the cache has rejected its value, and why.
    ///
    /// ```
    /// use lowwater::cache::{Origin, RejectReason};
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::kib(64)).build()?;
    /// let pages = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, page| page.capacity()).build()?;
    /// let load = |bytes: usize| move || Ok::<_, std::io::Error>(vec![0; bytes]);
    ///
    /// assert_eq!(pages.entry(1).or_try_fill_with(load(100))?.origin, Origin::Loaded);
    /// assert_eq!(pages.entry(1).or_try_fill_with(load(100))?.origin, Origin::Cached);
    /// // A value that is larger than the budget is returned, and not cached.
    /// let large = pages.entry(2).or_try_fill_with(load(1 << 20))?;
    /// assert!(matches!(large.origin, Origin::Rejected(RejectReason::TooLarge { .. })));
    /// assert_eq!(large.value.len(), 1 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a follower calls its own `load`.
    pub fn or_try_fill_with<E>(mut self, load: impl FnOnce() -> Result<V, E>) -> Result<Filled<V>, E> {
        let hash = self.cache.inner.core.hash(&self.key);
        if self.is_refresh {
            match self.find_to_refresh(hash) {
                Revalidation::Hit(found) => return Ok(found),
                Revalidation::Reload(old, mut refresh) => {
                    let loaded = refresh.load_here(load);
                    return refresh.finish_or(loaded, old);
                }
                Revalidation::Miss(entry) => self = entry,
            }
        }
        let mut is_counted = false;
        loop {
            // One hit or miss for each call, however many loads fail.
            let found = match std::mem::replace(&mut is_counted, true) {
                false => self.cache.get(&self.key),
                true => self.cache.get_uncounted(&self.key),
            };
            if let Some(value) = found {
                return Ok(Filled { value, origin: Origin::Cached });
            }
            let Self { cache, key, payer, ttl, is_refresh } = self;
            match cache.fill_step(hash, cache.inner.core.inflight.join(hash, key)) {
                FillStep::Done(value) => return Ok(Filled { value, origin: Origin::Shared }),
                FillStep::Load(mut ticket) => {
                    let running = ticket.run();
                    let value = load()?;
                    drop(running);
                    return Ok(BegunLoad { cache, ticket, hash, payment: (payer, ttl) }.finish(value));
                }
                FillStep::Retry(key) => self = Self { cache, key, payer, ttl, is_refresh },
            }
        }
    }

    /// The async form of [`or_insert_with`](Self::or_insert_with): a follower awaits the leader's
    /// load.
    ///
    /// A task that is dropped while it loads leaves the load to a follower, which may be a task or
    /// a thread. A task that is neither polled again nor dropped ([`std::mem::forget`]) never ends
    /// its load: follower tasks wait until they are dropped, follower threads for ever. There is no
    /// timeout; after an [`insert`](Cache::insert), later callers find the value.
    ///
    /// Cycles of loads that wait for each other are detected as in [`Cache::get_or_insert_with`],
    /// if the load itself awaits the other load, and not a task that it has spawned. A future that
    /// was polled elsewhere before counts as awaited by the load that has polled it last. A cycle
    /// that such a move closes is detected when the waiting future is polled again: a set of
    /// futures that polls only those that were woken may not do so.
    #[cfg(feature = "async")]
    pub async fn or_insert_with_async(self, load: impl Future<Output = V>) -> V {
        match self.or_try_insert_with_async(async { Ok::<V, Infallible>(load.await) }).await {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// The async form of [`or_try_insert_with`](Self::or_try_insert_with): a follower awaits the
    /// leader's load.
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a follower runs its own load.
    #[cfg(feature = "async")]
    pub async fn or_try_insert_with_async<E>(self, load: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        // Not by `or_try_fill_with_async`: see `begin_fill`.
        let filled = match self.begin_fill().await {
            BegunFill::Done(filled) => filled,
            BegunFill::Reload(old, mut refresh) => {
                let loaded = super::run_task::run_task(|| Some(refresh.run()), load).await;
                refresh.finish_or(loaded, old)?
            }
            BegunFill::Load(mut begun) => {
                let value = super::run_task::run_task(|| begun.ticket.run(), load).await?;
                begun.finish(value)
            }
        };
        Ok(filled.value)
    }

    /// The async form of [`or_try_fill_with`](Self::or_try_fill_with): as
    /// [`or_try_insert_with_async`](Self::or_try_insert_with_async), and also returns where the
    /// value came from, and why the cache has rejected it, if it has.
    ///
    /// ```
    /// use lowwater::cache::Origin;
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::kib(64)).build()?;
    /// let pages = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, page| page.capacity()).build()?;
    /// let executor = tokio::runtime::Builder::new_current_thread().build()?;
    /// let load = async { Ok::<_, std::io::Error>(vec![0; 1 << 20]) };
    /// // A value that is larger than the budget is returned, and not cached.
    /// let large = executor.block_on(pages.entry(1).or_try_fill_with_async(load))?;
    /// assert!(matches!(large.origin, Origin::Rejected(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a follower runs its own load.
    #[cfg(feature = "async")]
    pub async fn or_try_fill_with_async<E>(self, load: impl Future<Output = Result<V, E>>) -> Result<Filled<V>, E> {
        match self.begin_fill().await {
            BegunFill::Done(filled) => Ok(filled),
            BegunFill::Reload(old, mut refresh) => {
                let loaded = super::run_task::run_task(|| Some(refresh.run()), load).await;
                refresh.finish_or(loaded, old)
            }
            BegunFill::Load(mut begun) => {
                let value = super::run_task::run_task(|| begun.ticket.run(), load).await?;
                Ok(begun.finish(value))
            }
        }
    }

    /// Returns the value, or the load that this task is to run. Does not take the load's future:
    /// each async function through which a future passes holds it twice, so loads within loads
    /// would grow.
    #[cfg(feature = "async")]
    async fn begin_fill(mut self) -> BegunFill<'a, K, V, S> {
        let hash = self.cache.inner.core.hash(&self.key);
        if self.is_refresh {
            match self.find_to_refresh(hash) {
                Revalidation::Hit(found) => return BegunFill::Done(found),
                Revalidation::Reload(old, refresh) => return BegunFill::Reload(old, refresh),
                Revalidation::Miss(entry) => self = entry,
            }
        }
        let mut is_counted = false;
        loop {
            // One hit or miss for each call, however many loads fail.
            let found = match std::mem::replace(&mut is_counted, true) {
                false => self.cache.get(&self.key),
                true => self.cache.get_uncounted(&self.key),
            };
            if let Some(value) = found {
                return BegunFill::Done(Filled { value, origin: Origin::Cached });
            }
            let Self { cache, key, payer, ttl, is_refresh } = self;
            match cache.fill_step(hash, cache.inner.core.inflight.join_async(hash, key).await) {
                FillStep::Done(value) => return BegunFill::Done(Filled { value, origin: Origin::Shared }),
                FillStep::Load(ticket) => {
                    return BegunFill::Load(BegunLoad { cache, ticket, hash, payment: (payer, ttl) })
                }
                FillStep::Retry(key) => self = Self { cache, key, payer, ttl, is_refresh },
            }
        }
    }
}

/// The result of the first part of a task's read-through, which needs no load.
#[cfg(feature = "async")]
enum BegunFill<'a, K, V, S> {
    Done(Filled<V>),
    /// Reload the old value, which is returned if the reload fails while the value is usable.
    Reload(OldValue<'a, V>, Refresh<K, V, S>),
    Load(BegunLoad<'a, K, V, S>),
}

/// A load that a caller is to run; `payment` is the group to charge and the time to live.
struct BegunLoad<'a, K, V, S> {
    cache: &'a Cache<K, V, S>,
    ticket: LoadTicket<K, V>,
    hash: u64,
    payment: (Payer<'a>, Ttl),
}

impl<K, V, S> BegunLoad<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts the loaded value, and completes the load.
    fn finish(self, value: V) -> Filled<V> {
        let Self { cache, ticket, hash, payment } = self;
        cache.inner.core.counters.loaded();
        let mut origin = Origin::Loaded;
        let value = ticket.finish(value, |key, value, load| {
            origin = cache.keep_loaded(key, value, hash, payment, load);
        });
        Filled { value, origin }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the value of `key`, or inserts that of `load`, which one of the concurrent callers
    /// calls; the others wait for it.
    ///
    /// A value that the cache rejects is returned all the same. If `load` panics, a follower calls
    /// its own `load`. If [`remove`](Self::remove) or [`clear`](Self::clear) is called during the
    /// load, the callers that wait already get its value, which is not inserted; later callers load
    /// anew.
    ///
    /// `load` may request any key from this cache, or from another one. If two loads would wait for
    /// each other, for example if `load` requests its own key, or a key whose load requests this
    /// one, the request does not wait, but loads once more. Waiting by other means (a channel, a
    /// task that only this thread runs) is not detected.
    pub fn get_or_insert_with(&self, key: K, load: impl FnOnce() -> V) -> V {
        self.entry(key).or_insert_with(load)
    }

    /// Returns the value of `key`, or inserts that of `load`, as
    /// [`get_or_insert_with`](Self::get_or_insert_with), unless `load` fails.
    ///
    /// ```
    /// # use lowwater::{ByteSize, Cache, Runtime};
    /// # let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let cache = Cache::<String, u64>::builder(&runtime).weigher(|k, _| k.capacity()).build()?;
    /// assert!(cache.try_get_or_insert_with("x".into(), || "x".parse::<u64>()).is_err());
    /// assert_eq!(cache.try_get_or_insert_with("x".into(), || "7".parse::<u64>()), Ok(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a follower calls its own `load`. So if
    /// the loads of `n` callers fail, the last caller waits for `n` loads, one after another. Where
    /// a load may fail slowly, as by a timeout, let the value be a `Result`, and load it by
    /// [`get_or_insert_with`](Self::get_or_insert_with): all callers get the error of one load.
    /// [`CacheBuilder::expire_after`](crate::cache::CacheBuilder::expire_after) gives an error a
    /// shorter time than a value.
    pub fn try_get_or_insert_with<E>(&self, key: K, load: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        self.entry(key).or_try_insert_with(load)
    }

    /// The async form of [`get_or_insert_with`](Self::get_or_insert_with). See
    /// [`Entry::or_insert_with_async`].
    ///
    /// ```
    /// # use lowwater::{ByteSize, Cache, Runtime};
    /// # let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let pages = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, page| page.capacity()).build()?;
    /// let executor = tokio::runtime::Builder::new_current_thread().build()?;
    /// let page = executor.block_on(pages.get_or_insert_with_async(7, async { b"seven".to_vec() }));
    /// assert_eq!((page, pages.len()), (b"seven".to_vec(), 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "async")]
    pub async fn get_or_insert_with_async(&self, key: K, load: impl Future<Output = V>) -> V {
        self.entry(key).or_insert_with_async(load).await
    }

    /// The async form of [`try_get_or_insert_with`](Self::try_get_or_insert_with). See
    /// [`Entry::or_try_insert_with_async`].
    ///
    /// # Errors
    ///
    /// The error of `load`. Then nothing is inserted, and a follower runs its own load.
    #[cfg(feature = "async")]
    pub async fn try_get_or_insert_with_async<E>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        self.entry(key).or_try_insert_with_async(load).await
    }

    /// Inserts a loaded value, unless another one was inserted meanwhile, which is younger and
    /// stays, or a call has stopped the load. Returns `Loaded`, or the reason why the cache does
    /// not have the value.
    pub(super) fn keep_loaded(
        &self,
        key: K,
        value: V,
        hash: u64,
        payment: (Payer<'_>, Ttl),
        load: Option<&InflightLoad<K, V>>,
    ) -> Origin {
        let expect = load.map_or(Expect::Vacant, Expect::Load);
        match self.insert_record(key, value, hash, payment, &expect, None) {
            Ok(_) => Origin::Loaded,
            Err(rejected) => rejected.reason.map_or(Origin::Outrun, Origin::Rejected),
        }
    }

    /// Returns the next step after joining a load.
    pub(crate) fn fill_step(&self, hash: u64, join: Join<K, V>) -> FillStep<K, V> {
        match join {
            // Another leader may have completed between this caller's lookup and its join. An
            // expired record that is found here is not removed: the insert of the new value
            // replaces it.
            Join::Leader(mut leader) => {
                // The keys' `Eq` and the value's `Clone` run here while followers wait.
                let _running = leader.run();
                let (core, guard) = (&self.inner.core, pin());
                let there = leader.with_key(|key| core.index.get(hash, &guard, |record| *key == record.key));
                match there.filter(|record| !core.is_expired(record)) {
                    Some(record) => FillStep::Done(record.value.clone()),
                    None => FillStep::Load(LoadTicket::Leader(leader)),
                }
            }
            Join::Loaded(value) => FillStep::Done(V::clone(&value)),
            Join::Alone(key) => FillStep::Load(LoadTicket::Alone(key)),
            Join::Retry(key) => FillStep::Retry(key),
        }
    }
}
