//! A key's value, or one that is loaded for it, by one of those who ask.

use std::convert::Infallible;
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};

use lowwater_lru_core::pin;

use super::single_flight::{Boarded, Pilot};
use super::wait_graph::Running;
use crate::cache::entry::Entry;
use crate::cache::handle::Cache;
use crate::cache::insert::Expect;

/// What one who asks is to do next.
pub(crate) enum Next<'a, K, V> {
    /// Nothing: this is the value.
    Done(V),
    /// Load it.
    Load(Duty<'a, K, V>),
    /// Ask again.
    Again(K),
}

/// To load: for all who ask for the key, or for oneself because another key of the same hash is being loaded.
pub(crate) enum Duty<'a, K, V> {
    ForAll(Pilot<'a, K, V>),
    Alone(K),
}

impl<'a, K, V, S> Entry<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// The value there, or that of `load`; see [`Cache::get_or_insert_with`].
    pub fn or_insert_with(self, load: impl FnOnce() -> V) -> V {
        match self.or_try_insert_with(|| Ok::<V, Infallible>(load())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// The value there, or that of `load`; see [`Cache::try_get_or_insert_with`].
    ///
    /// # Errors
    ///
    /// What `load` says. Then nothing is kept, and another of those who wait calls theirs.
    pub fn or_try_insert_with<E>(mut self, load: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        let hash = self.cache.inner.core.hash(&self.key);
        loop {
            if let Some(value) = self.cache.get(&self.key) {
                return Ok(value);
            }
            let Self { cache, key, group, ttl } = self;
            match cache.next(hash, cache.inner.flights.board(hash, key)) {
                Next::Done(value) => return Ok(value),
                Next::Load(duty) => {
                    let running = duty.run();
                    let value = load()?;
                    drop(running);
                    cache.inner.core.counters.loaded();
                    return Ok(duty.done(value, |key, value| {
                        let _kept = cache.insert_record(key, value, hash, group, ttl, &Expect::Vacant);
                    }));
                }
                Next::Again(key) => self = Self { cache, key, group, ttl },
            }
        }
    }

    /// As [`or_insert_with`](Self::or_insert_with), for a task: who waits for another's load waits as a future does.
    ///
    /// A task that is dropped while it loads leaves the load to another of those who wait, task or thread. One that is never polled again,
    /// nor dropped ([`std::mem::forget`]), never ends its load: those who wait for it wait as long, unless they are dropped. There is no
    /// timeout; an [`insert`](Cache::insert) makes the value there for all who come later.
    ///
    /// Loads that wait for each other in a circle are seen as in [`Cache::get_or_insert_with`], where they are awaited by the load itself, and
    /// not by a task that it has spawned.
    #[cfg(feature = "async")]
    pub async fn or_insert_with_async(self, load: impl Future<Output = V>) -> V {
        match self.or_try_insert_with_async(async { Ok::<V, Infallible>(load.await) }).await {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// As [`or_try_insert_with`](Self::or_try_insert_with), for a task: who waits for another's load waits as a future does.
    ///
    /// # Errors
    ///
    /// What `load` says. Then nothing is kept, and another of those who wait loads.
    #[cfg(feature = "async")]
    pub async fn or_try_insert_with_async<E>(mut self, load: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        let hash = self.cache.inner.core.hash(&self.key);
        loop {
            if let Some(value) = self.cache.get(&self.key) {
                return Ok(value);
            }
            let Self { cache, key, group, ttl } = self;
            match cache.next(hash, cache.inner.flights.board_async(hash, key).await) {
                Next::Done(value) => return Ok(value),
                Next::Load(duty) => {
                    let value = super::single_flight::run_task(|| duty.run(), load).await?;
                    cache.inner.core.counters.loaded();
                    return Ok(duty.done(value, |key, value| {
                        let _kept = cache.insert_record(key, value, hash, group, ttl, &Expect::Vacant);
                    }));
                }
                Next::Again(key) => self = Self { cache, key, group, ttl },
            }
        }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
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

    /// As [`get_or_insert_with`](Self::get_or_insert_with), for a task. See [`Entry::or_insert_with_async`].
    #[cfg(feature = "async")]
    pub async fn get_or_insert_with_async(&self, key: K, load: impl Future<Output = V>) -> V {
        self.entry(key).or_insert_with_async(load).await
    }

    /// As [`try_get_or_insert_with`](Self::try_get_or_insert_with), for a task. See [`Entry::or_try_insert_with_async`].
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

    pub(crate) fn next<'a>(&self, hash: u64, boarded: Boarded<'a, K, V>) -> Next<'a, K, V> {
        match boarded {
            // Somebody may have landed between our look and our boarding. What has expired stays where it is until we land.
            Boarded::Pilot(pilot) => {
                // Keys' and values' own code, while others wait.
                let _running = pilot.run();
                let (core, guard) = (&self.inner.core, pin());
                let there = pilot.with_key(|key| core.index.get(hash, &guard, |record| *key == record.key));
                match there.filter(|record| !core.is_expired(record)) {
                    Some(record) => Next::Done(record.value.clone()),
                    None => Next::Load(Duty::ForAll(pilot)),
                }
            }
            Boarded::Passenger(value) => Next::Done(V::clone(&value)),
            Boarded::Alone(key) => Next::Load(Duty::Alone(key)),
            Boarded::Again(key) => Next::Again(key),
        }
    }
}

impl<K, V: Clone> Duty<'_, K, V> {
    /// The thread runs the load's code until the guard is dropped. None where nobody else waits for it.
    fn run(&self) -> Option<Running> {
        match self {
            Self::ForAll(pilot) => Some(pilot.run()),
            Self::Alone(_) => None,
        }
    }

    /// Keeps what was loaded, if there is room for it and no insert came meanwhile, which is younger; and tells those who wait.
    fn done(self, value: V, keep: impl FnOnce(K, V)) -> V {
        match self {
            Self::ForAll(pilot) => {
                let running = pilot.run();
                pilot.keep(|key| keep(key, value.clone()));
                let others = value.clone();
                drop(running);
                pilot.land(others);
            }
            Self::Alone(key) => keep(key, value.clone()),
        }
        value
    }
}
