//! The public entry API: inserting with a group and a time per entry, and computing a value from the current one.

use std::cell::OnceCell;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use lowwater_lru_core::Memcg;
use lowwater_rcu::pin;

use super::core::Found;
use super::error::InsertError;
#[cfg(doc)]
use super::error::RejectReason;
use super::expiry::clock::Ttl;
use super::expiry::deadline::Now;
use super::handle::Cache;
use super::insert::{Expect, Payer, Rejected};
use super::policy::queues::Queues;
use super::record::Record;
use super::removal::RemovalCause;

/// The entry of a key in a cache, vacant or occupied; from [`Cache::entry`]. A lookup happens only when one of the verbs is called, and no lock is
/// held before.
///
/// ```
/// use lowwater::{cache::Op, ByteSize, Cache, Runtime};
/// use std::time::Duration;
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
/// let tenant = runtime.group("tenant")?;
/// let hits = Cache::<String, u64>::builder(&runtime).weigher(|k, _| ByteSize::new(k.capacity() as u64)).build()?;
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
#[must_use = "an entry does nothing until one of its verbs is called"]
pub struct Entry<'a, K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) cache: &'a Cache<K, V, S>,
    pub(super) key: K,
    pub(super) payer: Payer<'a>,
    pub(super) ttl: Ttl,
}

/// What is under a key.
pub struct Current<'a, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    record: &'a Record<K, V>,
    now: Now,
    queues: &'a Queues<K, V>,
    root: &'a Memcg,
    group: OnceCell<Memcg>,
}

/// What is to be done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<V> {
    /// Put this value there, with the entry's time. The group that is charged: see
    /// [`Entry::group`].
    Put(V),
    /// Put this value there, with the time that is left to the one that is there. The group that is
    /// charged: see [`Entry::group`].
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

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Current<'_, K, V> {
    /// The value.
    pub fn value(&self) -> &V {
        &self.record.value
    }

    /// The time it has left; none if it does not expire.
    pub fn time_left(&self) -> Option<Duration> {
        self.record.deadline().time_left(self.now)
    }

    /// The group it belongs to; the root for one that is just being evicted, or moved.
    pub fn group(&self) -> &Memcg {
        self.group.get_or_init(|| self.queues.owner(self.record).unwrap_or_else(|| self.root.clone()))
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Puts a value under `key`, with the cache's own time. Returns the value that was there.
    ///
    /// A new entry is charged to the cache's own group. An entry that is there keeps its group: the
    /// group that was charged for the old value is charged for the new one ([`Entry::group`]). For
    /// another group or time, see [`entry`](Self::entry).
    ///
    /// # Errors
    ///
    /// [`InsertError`] says why, and gives the value back. What was under the key before is still there.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, InsertError<V>> {
        self.entry(key).insert(value)
    }

    /// Returns the entry of `key`: to insert with a group and a time of its own, or to compute a value from the current one.
    pub fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        Entry::new(self, key)
    }
}

impl<'a, K, V, S> Entry<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn new(cache: &'a Cache<K, V, S>, key: K) -> Self {
        Self::with_default_group(cache, key, &cache.inner.group)
    }

    /// As [`new`](Self::new), for a new entry of this group.
    pub(super) fn with_default_group(cache: &'a Cache<K, V, S>, key: K, group: &'a Memcg) -> Self {
        Self { cache, key, payer: Payer::new(group), ttl: cache.inner.ttl }
    }

    /// Charges `group` for what is inserted, and moves an entry that is there to `group`.
    ///
    /// **The key is shared by all groups.** A group says which tenant is charged; it is no part of
    /// the key. `entry(7).group(&a)` and `entry(7).group(&b)` are the same entry, so the second
    /// caller gets the value of the first. Tenants whose keys are not to meet need a name space
    /// each: [`Cache::tenant`].
    ///
    /// Without this call, a new value is charged to the group of the value that it replaces; to the
    /// nearest online ancestor of that group, if the group has ended meanwhile or is being dropped. Where there is
    /// nothing to replace, the cache's own group is charged. An entry that has expired, or that the
    /// reclaimer isolates at that moment, to evict or to move it, counts as nothing here. If
    /// another thread replaces the same entry for another group while an [`insert`](Self::insert)
    /// runs, either group may be charged; [`and_compute`](Self::and_compute) looks again.
    ///
    /// With a group of another runtime, every insert is refused ([`RejectReason::ForeignGroup`]).
    pub fn group(mut self, group: &'a Memcg) -> Self {
        self.payer = Payer::named(group);
        self
    }

    /// How long what is inserted lives, used or not; the cache's own time by default. An entry has one time: the last that is called of this,
    /// [`time_to_idle`](Self::time_to_idle) and [`forever`](Self::forever) counts.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.ttl = Ttl::Fixed(time);
        self
    }

    /// How long what is inserted stays when nobody uses it, as with [`CacheBuilder::time_to_idle`](super::CacheBuilder::time_to_idle); the
    /// cache's own time by default. What is longer than eight years is for ever.
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.ttl = Ttl::Idle(time);
        self
    }

    /// What is inserted lives until it is evicted, whatever the cache's own time is.
    pub fn forever(mut self) -> Self {
        self.ttl = Ttl::Forever;
        self
    }

    /// Puts a value there, and returns the one that was.
    ///
    /// # Errors
    ///
    /// [`InsertError`] says why, and gives the value back. What was there still is.
    pub fn insert(self, value: V) -> Result<Option<V>, InsertError<V>> {
        let hash = self.cache.inner.core.hash(&self.key);
        self.cache.insert_record(self.key, value, hash, self.payer, self.ttl, &Expect::Any).map_err(|into_rejected| {
            let reason = into_rejected.reason.expect("anything was expected");
            InsertError { reason, value: into_rejected.value }
        })
    }

    /// Asks `f` what to do with what is there, and does it, as one step for everybody else. The
    /// group that is charged: see [`group`](Self::group).
    ///
    /// If another thread changes the key in between, `f` is asked again with what is there then; so it must have no effect but its
    /// answer. This thread is pinned while `f` answers, and while a value of it is weighed: what others let go of meanwhile is freed after that, so
    /// neither should wait for anything. To look at a value here does not count as a use; a value that is put in the place of another keeps the reads that one had.
    ///
    /// # Errors
    ///
    /// [`InsertError`] says why the value was not put there, and gives it back. What was there still is.
    pub fn and_compute<F>(mut self, mut f: F) -> Result<Computed<V>, InsertError<V>>
    where
        F: FnMut(Option<Current<'_, K, V>>) -> Op<V>,
    {
        let (cache, core) = (self.cache, &self.cache.inner.core);
        let hash = core.hash(&self.key);
        let (queues, root) = (&core.queues, cache.inner.runtime.root());
        loop {
            // Until the answer is carried out, so that an entry that is the same is the same.
            let guard = pin();
            let there = match core.find(hash, &self.key, &guard) {
                Found::Live(record) => Some(record),
                Found::Nothing => None,
                Found::Expired(removal) => {
                    drop(guard);
                    drop(removal);
                    continue;
                }
            };
            let now = core.clock.now();
            let op = f(there.map(|record| Current { record, now, queues, root, group: OnceCell::new() }));
            let (value, expires) = match (op, there) {
                (Op::Update(value), Some(record)) => (value, record.deadline()),
                (Op::Put(value) | Op::Update(value), _) => (value, core.clock.deadline_of(self.ttl)),
                (Op::Remove, Some(record)) => {
                    let is_it = |there: &_| std::ptr::eq(there, record);
                    let Some((_, removal)) = core.unlink(hash, &guard, is_it, |_| RemovalCause::Explicit) else {
                        continue;
                    };
                    let value = record.value.clone();
                    drop(guard);
                    drop(removal);
                    return Ok(Computed::Removed(value));
                }
                (Op::Remove | Op::Keep, _) => return Ok(Computed::Kept),
            };
            let expect = there.map_or(Expect::Vacant, Expect::Same);
            let group = cache.payer_of(self.payer, there);
            cache.prefetch(hash, &group);
            let prepared = cache.prepare(self.key, value, &group, expires);
            match prepared.and_then(|prepared| cache.insert_prepared(prepared, hash, &group, &guard, &expect)) {
                Ok((old, removal)) => {
                    drop(guard);
                    drop(removal);
                    return Ok(old.map_or(Computed::Inserted, Computed::Replaced));
                }
                Err(Rejected { reason: Some(reason), value, .. }) => return Err(InsertError { reason, value }),
                Err(Rejected { reason: None, key, .. }) => self.key = key,
            }
        }
    }
}
