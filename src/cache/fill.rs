//! A key's value, or one that is loaded for it, by one of those who ask.

use std::convert::Infallible;
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::{BuildHasher, Hash};

use lowwater_lru_core::pin;

use super::load::{Boarded, Pilot};
use super::place::{Expect, Place};
use super::Cache;

/// What one who asks is to do next.
pub(super) enum Next<'a, K, V> {
    /// Nothing: this is the value.
    Done(V),
    /// Load it.
    Load(Duty<'a, K, V>),
    /// Ask again.
    Again(K),
}

/// To load: for all who ask for the key, or for oneself because another key of the same hash is being loaded.
pub(super) enum Duty<'a, K, V> {
    ForAll(Pilot<'a, K, V>),
    Alone(K),
}

impl<'a, K, V, S> Place<'a, K, V, S>
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
            let Self { cache, key, group, lifetime } = self;
            match cache.next(hash, cache.inner.flights.board(hash, key)) {
                Next::Done(value) => return Ok(value),
                Next::Load(duty) => {
                    let value = load()?;
                    cache.inner.core.counters.loaded();
                    return Ok(duty.done(value, |key, value| {
                        let _kept = cache.make_and_put(key, value, hash, group, lifetime, &Expect::Vacant);
                    }));
                }
                Next::Again(key) => self = Self { cache, key, group, lifetime },
            }
        }
    }

    /// As [`or_insert_with`](Self::or_insert_with), for a task: who waits for another's load waits as a future does.
    ///
    /// A task that is dropped while it loads leaves the load to another of those who wait, task or thread.
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
            let Self { cache, key, group, lifetime } = self;
            match cache.next(hash, cache.inner.flights.board_async(hash, key).await) {
                Next::Done(value) => return Ok(value),
                Next::Load(duty) => {
                    duty.is_task();
                    let value = load.await?;
                    cache.inner.core.counters.loaded();
                    return Ok(duty.done(value, |key, value| {
                        let _kept = cache.make_and_put(key, value, hash, group, lifetime, &Expect::Vacant);
                    }));
                }
                Next::Again(key) => self = Self { cache, key, group, lifetime },
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
    pub(super) fn next<'a>(&self, hash: u64, boarded: Boarded<'a, K, V>) -> Next<'a, K, V> {
        match boarded {
            // Somebody may have landed between our look and our boarding. What has expired stays where it is until we land.
            Boarded::Pilot(pilot) => {
                let (core, guard) = (&self.inner.core, pin());
                let there = pilot.with_key(|key| core.index.get(hash, &guard, |entry| *key == entry.key));
                match there.filter(|entry| !core.has_expired(entry)) {
                    Some(entry) => Next::Done(entry.value.clone()),
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
    /// A task loads, which may go on on another thread.
    #[cfg(feature = "async")]
    fn is_task(&self) {
        if let Self::ForAll(pilot) = self {
            pilot.is_task();
        }
    }

    /// Keeps what was loaded, if there is room for it and no insert came meanwhile, which is younger; and tells those who wait.
    fn done(self, value: V, keep: impl FnOnce(K, V)) -> V {
        match self {
            Self::ForAll(pilot) => {
                pilot.keep(|key| keep(key, value.clone()));
                pilot.land(value.clone());
            }
            Self::Alone(key) => keep(key, value.clone()),
        }
        value
    }
}
