//! The public entry API: inserts with a group and a time per entry, and computations on the current
//! entry.
//!
//! The calls are thin: they collect group and time in an [`Entry`] and end in
//! [`insert`](super::insert). A change must ensure that `and_compute` carries its operation out
//! only if the entry that its closure saw is still the current one, and otherwise calls the closure
//! again.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use lowwater_lru_core::Memcg;
use lowwater_rcu::pin;

use super::core::Found;
use super::error::{InsertError, RejectReason};
use super::expect::Expect;
use super::expiry::clock::{Clock, Ttl};
use super::expiry::deadline::{Expires, SeenDeadline};
use super::handle::Cache;
use super::insert::{NewRecord, Refusal, Rejected};
use super::payer::Payer;
use super::record::Record;
use super::removal::RemovalCause;
use crate::runtime::Charge;

/// The entry of a key in a cache, vacant or occupied, from [`Cache::entry`].
///
/// The key is looked up only when one of the verbs is called: the methods that insert, load or
/// compute a value. No lock is held before.
///
/// ```
/// use lowwater::{cache::Op, ByteSize, Cache, Runtime};
/// use std::time::Duration;
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
/// let tenant = runtime.group("tenant")?;
/// let hits = Cache::<String, u64>::builder(&runtime).weigher(|k, _| k.capacity()).build()?;
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
pub struct Entry<'a, K, V, S = DefaultHashBuilder> {
    pub(super) cache: &'a Cache<K, V, S>,
    pub(super) key: K,
    pub(super) payer: Payer<'a>,
    pub(super) ttl: Ttl,
    /// Whether a load reloads a present entry that is stale, or due ahead of its deadline.
    pub(super) is_refresh: bool,
}

/// The live entry under a key, as [`Entry::and_compute`] shows it to its closure.
pub struct Current<'a, K, V> {
    record: &'a Record<K, V>,
    deadline: SeenDeadline,
    clock: &'a Clock,
    /// Looks the group up, which takes a lock.
    find_group: &'a (dyn Fn() -> Memcg + Sync),
    group: OnceCell<Memcg>,
}

/// An operation on a key, returned by the closure of [`Entry::and_compute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<V> {
    /// Inserts this value, with the entry's time. For the group that is charged, see
    /// [`Entry::group`].
    Put(V),
    /// Inserts this value as `Put` does, but with this time to live, as by
    /// [`Entry::time_to_live`]; `None`: no deadline.
    PutFor(V, Option<Duration>),
    /// Inserts this value, with the time that the current value has left: an idle time is not
    /// extended. Without a current value, as `Put`. For the group that is charged, see
    /// [`Entry::group`].
    Update(V),
    /// Sets the time to live of the current value as [`Cache::touch`] does; `None`: no deadline.
    /// The value is neither copied nor charged again, so a touch is never rejected. Without a
    /// current value, changes nothing. The result is [`Computed::Kept`].
    ///
    /// ```
    /// use lowwater::{cache::Op, ByteSize, Cache, Runtime};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
    /// let sessions = Cache::<u64, String>::builder(&runtime).weigher(|_, name| name.capacity()).build()?;
    /// sessions.insert(7, "Ada".into())?;
    /// // Reads a value and sets its time to live in one step.
    /// let mut name = None;
    /// sessions.entry(7).and_compute(|current| {
    ///     name = current.map(|current| current.value().clone());
    ///     Op::Touch(Some(Duration::from_secs(60)))
    /// })?;
    /// assert_eq!(name.as_deref(), Some("Ada"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Touch(Option<Duration>),
    /// Removes the current value, and stops a load in flight, as [`Cache::remove`] does; the
    /// removal listener gets [`RemovalCause::Explicit`]. Without a current value, a load in flight
    /// is stopped all the same, an expired value that is still in the cache is removed, and the
    /// result is [`Computed::Kept`].
    Remove,
    /// Changes nothing. The call does not count as a use of the entry.
    Keep,
}

/// The result of [`Entry::and_compute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed<V> {
    /// A value was inserted under a vacant key.
    Inserted,
    /// A value was inserted in place of this one.
    Replaced(V),
    /// This value was removed.
    Removed(V),
    /// No value was inserted or removed.
    Kept,
}

impl<K, V> Current<'_, K, V> {
    /// Returns the value of the entry at the time of the call of the closure. If another thread
    /// replaces or removes the entry before the operation is carried out, the closure is called
    /// again.
    pub fn value(&self) -> &V {
        &self.record.value
    }

    /// Returns the time until the entry expires, by its deadline at the time of the call of the
    /// closure; none if it does not expire. A touch or use may change the deadline before the
    /// operation is carried out: the closure is not called again for that.
    pub fn time_left(&self) -> Option<Duration> {
        if self.deadline.at.is_never() {
            return None;
        }
        self.clock.time_left(self.deadline.at, self.clock.now_for(self.deadline))
    }

    /// Returns the group that is charged for the entry; the root if the reclaimer has isolated the
    /// entry at this moment, to evict or to move it.
    pub fn group(&self) -> &Memcg {
        self.group.get_or_init(self.find_group)
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts a value under `key`, with the cache's own time. Returns the previous value.
    ///
    /// A new entry is charged to the cache's own group. A present entry keeps its group: the group
    /// that was charged for the old value is charged for the new one ([`Entry::group`]). For
    /// another group or time, see [`entry`](Self::entry).
    ///
    /// # Errors
    ///
    /// [`InsertError`] has the reason and the rejected value. The previous value is still in the
    /// cache, unless it was evicted to make room for the new one.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, InsertError<V>> {
        self.entry(key).insert(value)
    }

    /// Returns the entry of `key`, to insert with a group and a time per entry, or to compute a
    /// value from the current one.
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

    /// [`new`](Self::new), with the group to which a new entry is charged.
    pub(super) fn with_default_group(cache: &'a Cache<K, V, S>, key: K, group: &'a Memcg) -> Self {
        Self { cache, key, payer: Payer::new(group), ttl: cache.inner.ttl, is_refresh: false }
    }

    /// Charges `group` for the inserted value, and moves a present entry to `group`.
    ///
    /// **The key is shared by all groups.** The group is the tenant that is charged, and no part of
    /// the key: `entry(7).group(&a)` and `entry(7).group(&b)` are the same entry, so the second
    /// caller gets the value of the first. Tenants with keys of their own need a name space each:
    /// [`Cache::tenant`].
    ///
    /// If `group` has ended, its nearest online ancestor is charged.
    ///
    /// Without this call, a new value is charged to the group of the value that it replaces, or to
    /// the nearest online ancestor of that group, if the group has ended meanwhile or is being
    /// dropped. If there is no value to replace, the cache's own group is charged. An expired
    /// entry, or an entry that the reclaimer isolates at that moment to evict or to move it, does
    /// not count as a value to replace. If another thread replaces the same entry for another group
    /// while an [`insert`](Self::insert) runs, either group may be charged;
    /// [`and_compute`](Self::and_compute) looks the group up again.
    ///
    /// With a group of another runtime, all inserts are refused ([`RejectReason::ForeignGroup`]).
    pub fn group(mut self, group: &'a Memcg) -> Self {
        self.payer = Payer::named(group);
        self
    }

    /// Sets the time to live of the inserted value, used or not, with the precision of
    /// [`CacheBuilder::time_to_live`](super::CacheBuilder::time_to_live); the cache's own time by
    /// default. An entry has one time: the last call of this method,
    /// [`time_to_idle`](Self::time_to_idle) and [`forever`](Self::forever) counts.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.ttl = Ttl::Fixed(time);
        self
    }

    /// Sets the idle time of the inserted value, as
    /// [`CacheBuilder::time_to_idle`](super::CacheBuilder::time_to_idle) does for all entries; the
    /// cache's own time by default. More than eight years count as unlimited.
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.ttl = Ttl::Idle(time);
        self
    }

    /// Gives the inserted value no deadline, even if the cache has a default time.
    pub fn forever(mut self) -> Self {
        self.ttl = Ttl::Forever;
        self
    }

    /// Lets the loads of this entry (`or_insert_with` and the like) reload a present value: ahead
    /// of its deadline ([`CacheBuilder::refresh_ahead`](super::CacheBuilder::refresh_ahead)), or
    /// while it is stale
    /// ([`CacheBuilder::stale_while_revalidate`](super::CacheBuilder::stale_while_revalidate)).
    /// Without these options, and for other methods, no effect.
    ///
    /// One of the concurrent callers runs its load, in its own thread or task, and returns the new
    /// value; the others return the old value at once. If the load fails, its caller gets the value
    /// that the entry has then, live or stale; of an entry that was evicted, has expired and was
    /// removed, or was dropped with its group, the old value until the stale time that it had at
    /// the lookup has passed; otherwise, as after a [`Cache::remove`], the error.
    /// So a load should report its errors itself. For a load elsewhere, and for the rules, see
    /// [`Refresh`](super::Refresh).
    ///
    /// ```
    /// use lowwater::cache::Origin;
    /// use lowwater::runtime::ManualClock;
    /// use lowwater::{Cache, Runtime};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let runtime = Runtime::builder().unlimited().clock(&clock).build()?;
    /// let pages = Cache::<u64, String>::builder(&runtime)
    ///     .weigher(|_, page| page.capacity())
    ///     .time_to_live(Duration::from_secs(60))
    ///     .stale_while_revalidate(Duration::from_secs(600))
    ///     .build()?;
    /// pages.insert(7, "page".into())?;
    /// clock.advance(Duration::from_secs(61));
    /// let fails = || Err(std::io::Error::other("the database is away"));
    /// let found = pages.entry(7).refresh().or_try_fill_with(fails)?;
    /// assert_eq!((found.value.as_str(), found.origin), ("page", Origin::Stale));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refresh(mut self) -> Self {
        self.is_refresh = true;
        self
    }

    /// Inserts a value, and returns the previous one.
    ///
    /// # Errors
    ///
    /// [`InsertError`] has the reason and the rejected value. The previous value is still in the
    /// cache, unless it was evicted to make room for the new one.
    pub fn insert(self, value: V) -> Result<Option<V>, InsertError<V>> {
        let mut previous = None;
        self.insert_and_clone(value, Some(&mut previous))?;
        Ok(previous)
    }

    /// Inserts a value as [`insert`](Self::insert) does, and returns whether it has replaced
    /// another one. The replaced value is not cloned, so this is the faster way to overwrite. O(1),
    /// and the evictions that are needed.
    ///
    /// ```
    /// use lowwater::{ByteSize, Cache, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
    /// let cache = Cache::<u64, String>::builder(&runtime).weigher(|_, text| text.capacity()).build()?;
    /// assert!(!cache.entry(1).set("one".into())?);
    /// assert!(cache.entry(1).set("two".into())?);
    /// assert_eq!(cache.get(&1).as_deref(), Some("two"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InsertError`] has the reason and the rejected value. The previous value is still in the
    /// cache, unless it was evicted to make room for the new one.
    pub fn set(self, value: V) -> Result<bool, InsertError<V>> {
        self.insert_and_clone(value, None)
    }

    /// Inserts a value, clones the replaced one into `previous`, if given, and returns whether
    /// there was one.
    fn insert_and_clone(self, value: V, previous: Option<&mut Option<V>>) -> Result<bool, InsertError<V>> {
        let hash = self.cache.inner.core.hash(&self.key);
        let inserted = self.cache.insert_record(self.key, value, hash, (self.payer, self.ttl), &Expect::Any, previous);
        inserted.map_err(|Rejected { reason, value, .. }| rejected(reason, value))
    }

    /// Calls `f` with the current entry and carries the returned operation out, atomically. For the
    /// group that is charged, see [`group`](Self::group).
    ///
    /// If another thread inserts, replaces or removes the entry in between, or it expires, `f` is
    /// called again; also if memory for the value must be freed by more than the evictions of an
    /// insert, which may remove the entry itself. So `f` should have no other effect than its
    /// result; if `f` or the weigher changes the entry in each call, the calls do not end. The
    /// thread is pinned while `f` runs, while the value is weighed or is dropped because the entry
    /// has changed, and while listeners are called for the evictions: the memory of entries that
    /// leave meanwhile is freed only afterwards, so none of them should block. Reading the value in
    /// `f` does not count as a use. A new value keeps the use count of the value that it replaces.
    /// For the order of eviction the replacement counts as another use, or makes the entry the
    /// youngest of its queue.
    ///
    /// # Errors
    ///
    /// [`InsertError`] has the reason and the rejected value. The previous value is still in the
    /// cache, unless it was evicted to make room for the new one.
    pub fn and_compute<F>(mut self, mut f: F) -> Result<Computed<V>, InsertError<V>>
    where
        F: FnMut(Option<Current<'_, K, V>>) -> Op<V>,
    {
        let (cache, core) = (self.cache, &self.cache.inner.core);
        let hash = core.hash(&self.key);
        let (queues, root) = (&core.queues, cache.inner.runtime.root());
        let (mut charged, mut payer_instead): (Option<Charge>, _) = (None, None);
        // Declared first, so that it is dropped after the guard, also if the value's clone panics.
        let taken;
        // Held until the operation is carried out, so that the record's memory is not reused: the
        // same address is the same record.
        let (mut guard, mut current) = (pin(), None);
        loop {
            let there = match current {
                Some(record) => Some(record),
                None => match core.find(hash, &self.key, &guard) {
                    Found::Live(record) => Some(record),
                    Found::Nothing => None,
                    Found::Expired(removal) => {
                        drop(guard);
                        drop(removal);
                        (guard, current) = (pin(), None);
                        continue;
                    }
                },
            };
            let clock = &core.clock;
            let op = match there {
                None => f(None),
                Some(record) => {
                    let find_group = || queues.owner(record).unwrap_or_else(|| root.clone());
                    let deadline = clock.seen(record.deadline());
                    f(Some(Current { record, deadline, clock, find_group: &find_group, group: OnceCell::new() }))
                }
            };
            let (value, expires) = match (op, there) {
                (Op::Update(value), Some(_)) => (value, Expires::OF_REPLACED),
                (Op::Put(value) | Op::Update(value), _) => {
                    let expires = core.deadline_of_new(self.ttl, &self.key, &value, there);
                    (value, expires)
                }
                (Op::PutFor(value, time), _) => (value, core.clock.deadline_of(Ttl::to_live(time))),
                (Op::Touch(time), Some(record)) => {
                    if !core.touch(hash, &guard, time, |there| std::ptr::eq(there, record)) {
                        drop(guard);
                        (guard, current) = (pin(), None);
                        continue;
                    }
                    return Ok(Computed::Kept);
                }
                (Op::Remove, Some(record)) => {
                    let is_it = |there: &Record<K, V>| std::ptr::eq(there, record) && !core.is_expired(there);
                    core.inflight.stop(hash);
                    let Some((_, removal)) = core.unlink(hash, &guard, is_it, |_| RemovalCause::Explicit) else {
                        drop(guard);
                        (guard, current) = (pin(), None);
                        continue;
                    };
                    taken = removal;
                    let value = record.value.clone();
                    drop(guard);
                    drop(taken);
                    return Ok(Computed::Removed(value));
                }
                (Op::Remove, None) => {
                    // As `Cache::remove` does: also the reload of an expired entry, which is still
                    // there for `Cache::get_or_refresh`.
                    core.inflight.stop(hash);
                    // Inserted since the lookup, perhaps by the load before it was stopped. Not
                    // searched for again: see `Refusal::FoundAnother` below.
                    let is_live = |there: &Record<K, V>| self.key == there.key && !core.is_expired(there);
                    current = core.index.with(hash, &guard, is_live, |there| there);
                    if current.is_some() {
                        continue;
                    }
                    let is_it = |there: &Record<K, V>| self.key == there.key && core.is_expired(there);
                    let expired = core.unlink(hash, &guard, is_it, |there| core.cause_of_expired(there));
                    let removal = expired.map(|(_, removal)| removal);
                    drop(guard);
                    drop(removal);
                    return Ok(Computed::Kept);
                }
                (Op::Touch(_) | Op::Keep, _) => return Ok(Computed::Kept),
            };
            let weighed = cache.weigh(&self.key, &value);
            // The group that was charged instead of one that is being dropped, if the entry is
            // still in the latter.
            let group = match (cache.payer_of(self.payer, there), payer_instead.take()) {
                (group, Some((refused, instead))) if there.is_some() && *group == refused => Cow::Owned(instead),
                (group, _) => group,
            };
            if let Err(reason) = cache.admit(&group) {
                return Err(InsertError { reason, value });
            }
            let target = if there.is_some() {
                // No prefetch: the key's bucket was just read.
                cache.target_of_present(&group)
            } else {
                let target = cache.target(&group, hash);
                cache.prefetch(hash, target, &guard);
                target
            };
            let record = cache
                .make(self.key, value, weighed, expires, &group)
                .map_err(|Rejected { reason, value, .. }| rejected(reason, value))?;
            let mut new = NewRecord::new(record, weighed, expires);
            if let Some(charge) = charged.take() {
                new.take_over(charge, &group);
            }
            let expect = there.map_or(Expect::Vacant, Expect::Same);
            self.key = loop {
                match cache.try_insert(new, hash, target, &guard, &expect) {
                    Ok((old, removal)) => {
                        taken = removal;
                        let old = old.cloned();
                        drop(guard);
                        drop(taken);
                        cache.sweep_if_due();
                        return Ok(old.map_or(Computed::Inserted, Computed::Replaced));
                    }
                    Err((mut back, Refusal::NotPaid, _))
                        if cache.charge_pinned(&group, back.bytes(), target.tenant) =>
                    {
                        back.set_paid();
                        new = back;
                    }
                    Err((back, Refusal::FoundAnother, Some(other))) if !core.is_expired(other) => {
                        // Not searched for again: if the key's `Eq` is inconsistent, the search
                        // might find another record than the insert, again and again.
                        current = Some(other);
                        break back.into_rejected(None).key;
                    }
                    Err((back, refusal, _)) => {
                        // Charged outside of the read side, in which this thread would hold back
                        // the memory that it needs. Another thread may change the entry meanwhile.
                        drop(guard);
                        let bytes = back.bytes();
                        let key = match cache.pay(back, refusal, target, hash, self.payer, false) {
                            Ok((paid, instead)) => {
                                let group = group.into_owned();
                                charged =
                                    Some(Charge::of_paid(instead.clone().unwrap_or_else(|| group.clone()), bytes));
                                payer_instead = instead.map(|instead| (group, instead));
                                paid.into_rejected(None).key
                            }
                            Err(Rejected { reason: Some(reason), value, .. }) => {
                                return Err(InsertError { reason, value })
                            }
                            Err(Rejected { reason: None, key, .. }) => key,
                        };
                        (guard, current) = (pin(), None);
                        break key;
                    }
                }
            };
        }
    }
}

/// Returns the error for a value that was rejected. The callers exclude that `reason` is `None`,
/// which means that the current record was not the expected one.
fn rejected<V>(reason: Option<RejectReason>, value: V) -> InsertError<V> {
    InsertError { reason: reason.expect("the current record was the expected one, so there is a reason"), value }
}
