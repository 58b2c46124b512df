//! The place of a key: inserting with a group and a time of its own, and computing a value from the one that is there.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use lowwater_lru_core::{AddError, Bytes, Memcg, NodeId};

use super::entry::{Charge, Entry};
use super::error::{InsertError, Reason};
use super::index::{Expect, Refused};
use super::load::Boarded;
use super::queues::Queue;
use super::room::Want;
use super::stats::RemovalCause;
use super::Cache;

/// A key's place in a cache; from [`Cache::entry`]. Nothing is looked up or locked until one of its verbs is called.
///
/// ```
/// use lowwater::{cache::Op, Bytes, Cache, Runtime};
/// use std::time::Duration;
///
/// let runtime = Runtime::builder().budget(Bytes::mib(1)).build()?;
/// let tenant = runtime.group("tenant")?;
/// let hits = Cache::<String, u64>::builder(&runtime).weigher(|k, _| Bytes::new(k.capacity() as u64)).build()?;
///
/// for _ in 0..3 {
///     hits.entry("/".into())
///         .group(&tenant)
///         .time_to_live(Duration::from_secs(60))
///         .and_compute(|current| Op::Put(current.map_or(0, |c| *c.value()) + 1))?;
/// }
/// assert_eq!(hits.get("/"), Some(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a place does nothing until one of its verbs is called"]
pub struct Place<'a, K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    cache: &'a Cache<K, V, S>,
    key: K,
    group: Memcg,
    time_to_live: Option<Duration>,
}

/// What is under a key.
pub struct Current<'a, K, V> {
    entry: &'a Entry<K, V>,
    now: u64,
}

/// What is to be done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<V> {
    /// Put this value there, for the place's group and time.
    Put(V),
    /// Put this value there, for the place's group, with the time that is left to the one that is there.
    Update(V),
    /// Take out what is there.
    Remove,
    /// Change nothing.
    Keep,
}

/// What was done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed<V> {
    /// A value was put where none was.
    Inserted,
    /// A value was put in the place of this one.
    Replaced(V),
    /// This value was taken out.
    Removed(V),
    /// Nothing was changed.
    Kept,
}

impl<K, V> Current<'_, K, V> {
    /// The value.
    pub fn value(&self) -> &V {
        &self.entry.value
    }

    /// The time it has left; none if it does not expire.
    pub fn time_left(&self) -> Option<Duration> {
        self.entry.expires_at().map(|at| Duration::from_nanos(at.saturating_sub(self.now)))
    }

    /// The group it belongs to.
    pub fn group(&self) -> &Memcg {
        self.entry.group()
    }
}

impl<'a, K, V, S> Place<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn new(cache: &'a Cache<K, V, S>, key: K) -> Self {
        let inner = &cache.inner;
        Self { cache, key, group: inner.group.clone(), time_to_live: inner.time_to_live }
    }

    /// The group that is charged for what is inserted; the cache's own by default.
    pub fn group(mut self, group: &Memcg) -> Self {
        self.group = group.clone();
        self
    }

    /// How long what is inserted lives; the cache's own time by default.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// What is inserted lives until it is evicted, whatever the cache's own time is.
    pub fn forever(mut self) -> Self {
        self.time_to_live = None;
        self
    }

    /// Puts a value there, and returns the one that was.
    ///
    /// # Errors
    ///
    /// [`InsertError`] says why, and gives the value back. What was there still is.
    pub fn insert(self, value: V) -> Result<Option<V>, InsertError<V>> {
        let expires = self.time_to_live.map(|time| self.cache.inner.core.after(time));
        let hash = self.cache.hash(&self.key);
        let entry = self.cache.make(self.key, value, hash, &self.group, expires).map_err(Unmade::into_error)?;
        match self.cache.put(entry, &Expect::Any) {
            Ok(replaced) => Ok(replaced),
            Err(Refused::List(refused)) => Err(no_list(refused)),
            Err(Refused::Changed(_)) => unreachable!("anything was expected"),
        }
    }

    /// The value there, or that of `load`; see [`Cache::get_or_insert_with`].
    pub fn or_insert_with(self, load: impl FnOnce() -> V) -> V {
        let cache = self.cache;
        let hash = cache.hash(&self.key);
        loop {
            if let Some(value) = cache.get(&self.key) {
                return value;
            }
            match cache.inner.flights.board(hash) {
                Boarded::Pilot(pilot) => {
                    // Somebody may have landed between our look and our boarding.
                    if let Some(value) = cache.peek(&self.key) {
                        return value;
                    }
                    let value = load();
                    cache.inner.core.counters.loaded();
                    let expires = self.time_to_live.map(|time| cache.inner.core.after(time));
                    let entry = match cache.make(self.key, value, hash, &self.group, expires) {
                        Ok(entry) => entry,
                        Err(unmade) => {
                            // Those who wait get it all the same.
                            let value = unmade.value.clone();
                            pilot.land(Arc::new(unmade.into_uncharged(hash, &self.group)));
                            return value;
                        }
                    };
                    let value = entry.value.clone();
                    // An insert that came meanwhile is younger than our load.
                    let _kept = cache.put(Arc::clone(&entry), &Expect::Vacant);
                    pilot.land(entry);
                    return value;
                }
                Boarded::Passenger(entry) if entry.key == self.key => return entry.value.clone(),
                Boarded::Passenger(_) | Boarded::Lost => {}
            }
        }
    }

    /// Asks `f` what to do with what is there, and does it, as one step for everybody else.
    ///
    /// If another thread changes the key in between, `f` is asked again with what is there then; so it must have no effect but its
    /// answer. A value that was used here counts as used.
    ///
    /// # Errors
    ///
    /// [`InsertError`] says why the value was not put there, and gives it back. What was there still is.
    pub fn and_compute<F>(mut self, mut f: F) -> Result<Computed<V>, InsertError<V>>
    where
        F: FnMut(Option<Current<'_, K, V>>) -> Op<V>,
    {
        let (cache, core) = (self.cache, &self.cache.inner.core);
        let hash = cache.hash(&self.key);
        loop {
            let there = cache.find(&self.key);
            let op = f(there.as_deref().map(|entry| Current { entry, now: core.now() }));
            let (value, update) = match (op, &there) {
                (Op::Put(value), _) => (value, false),
                (Op::Update(value), _) => (value, true),
                (Op::Remove, Some(entry)) => {
                    if core.index.remove_same(entry, &core.queues) {
                        core.removed(entry, RemovalCause::Explicit);
                        return Ok(Computed::Removed(entry.value.clone()));
                    }
                    continue;
                }
                (Op::Remove | Op::Keep, _) => return Ok(Computed::Kept),
            };
            let expires = match &there {
                Some(entry) if update => entry.expires_at(),
                _ => self.time_to_live.map(|time| core.after(time)),
            };
            let entry = cache.make(self.key, value, hash, &self.group, expires).map_err(Unmade::into_error)?;
            let expect = there.as_ref().map_or(Expect::Vacant, Expect::Same);
            match cache.put(entry, &expect) {
                Ok(None) => return Ok(Computed::Inserted),
                Ok(Some(old)) => return Ok(Computed::Replaced(old)),
                Err(Refused::List(refused)) => return Err(no_list(refused)),
                Err(Refused::Changed(entry)) => {
                    self.key = Arc::into_inner(entry).expect("an entry that was not put in has one handle").key;
                }
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
    /// Weighs, charges, and makes an entry that is nowhere yet.
    fn make(
        &self,
        key: K,
        value: V,
        hash: u64,
        group: &Memcg,
        expires: Option<u64>,
    ) -> Result<Arc<Entry<K, V>>, Unmade<K, V>> {
        let bytes = (self.inner.weigher)(&key, &value).saturating_add(Bytes::new(Entry::<K, V>::BYTES));
        let group = group.nearest_online();
        let node = self.inner.runtime.topology().current();
        let queue = self.prepare(&group, node, hash, bytes);
        if let Err(over) = self.inner.runtime.charge(&group, bytes) {
            self.inner.core.counters.rejected();
            let (group, max) = (over.memcg.path(), over.memcg.max());
            let reason =
                if bytes > max { Reason::TooLarge { bytes, group, max } } else { Reason::NoRoom { bytes, group } };
            return Err(Unmade { reason, key, value });
        }
        let entry = Entry::new(key, value, hash, expires, Charge::of(group, bytes));
        entry.set_queue(queue);
        Ok(Arc::new(entry))
    }

    /// Makes room for `bytes` more of `group` if memory is nearly used up, and chooses the queue for an entry that is new.
    fn prepare(&self, group: &Memcg, node: NodeId, hash: u64, bytes: Bytes) -> Queue {
        let (core, runtime) = (&self.inner.core, &self.inner.runtime);
        let came_back = core.queues.came_back(hash, group, node);
        if core.queues.learns() {
            let marks = runtime.reclaimer().watermarks();
            let up = || std::iter::successors(Some(group), |memcg| memcg.parent());
            let short = |memcg: &Memcg, in_stock| {
                let after = memcg.usage().saturating_add(bytes).saturating_sub(in_stock);
                after > memcg.high() || marks.is_near(after, memcg.max())
            };
            // What is in stock is not used yet. Most inserts come by without having to ask for it.
            if up().any(|memcg| short(memcg, Bytes::ZERO)) {
                let in_stock = group.in_stock();
                let limit = up().find(|memcg| short(memcg, in_stock));
                // For what never fits, nobody shall go.
                if let Some(limit) = limit.filter(|_| up().all(|memcg| bytes <= memcg.max())) {
                    core.make_room(&Want { runtime, memcg: group, limit, node, came_back, random: hash });
                }
            }
        }
        core.queues.choose(group, node, came_back)
    }

    /// Puts an entry in its place, if what is there is what was expected; the value it replaced.
    fn put(&self, entry: Arc<Entry<K, V>>, expect: &Expect<'_, K, V>) -> Result<Option<V>, Refused<K, V>> {
        let core = &self.inner.core;
        let node = self.inner.runtime.topology().current();
        // So that nothing is allocated for the list under the shard's lock.
        core.queues.prepare(entry.queue(), entry.group(), node);
        let replaced = core.index.put(entry, expect, &core.queues, node)?;
        core.counters.inserted();
        let Some(old) = replaced else { return Ok(None) };
        if old.has_expired(core.now()) {
            core.removed(&old, RemovalCause::Expired);
            return Ok(None);
        }
        core.removed(&old, RemovalCause::Replaced);
        Ok(Some(old.value.clone()))
    }
}

/// An entry for which there was no room.
struct Unmade<K, V> {
    reason: Reason,
    key: K,
    value: V,
}

impl<K, V> Unmade<K, V> {
    fn into_error(self) -> InsertError<V> {
        InsertError { reason: self.reason, value: self.value }
    }

    /// An entry that is never put in the cache, so nobody pays for it.
    fn into_uncharged(self, hash: u64, group: &Memcg) -> Entry<K, V> {
        Entry::new(self.key, self.value, hash, None, Charge::of(group.clone(), Bytes::ZERO))
    }
}

fn no_list<K, V: Clone>(refused: AddError<Arc<Entry<K, V>>>) -> InsertError<V> {
    let entry = refused.into_handle();
    let group = entry.group().path();
    let value = Arc::try_unwrap(entry).map_or_else(|shared| shared.value.clone(), Entry::into_value);
    InsertError { reason: Reason::NoMemory { group }, value }
}
