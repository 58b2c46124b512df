//! The place of a key: inserting with a group and a time of its own, and computing a value from the one that is there.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use lowwater_lru_core::index::PutError;
use lowwater_lru_core::{pin, Bytes, Guard, Memcg, NodeId};

use super::entry::{rounded, Entry, Handle};
use super::error::{InsertError, Reason};
use super::queues::{Queue, Queues};
use super::stats::RemovalCause;
use super::tenant::Tenant;
use super::time::{Lifetime, Moment, Now};
use super::worth::Worth;
use super::{Cache, Found, Inner, Maybe};

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
    pub(super) cache: &'a Cache<K, V, S>,
    pub(super) key: K,
    pub(super) group: &'a Memcg,
    pub(super) lifetime: Lifetime,
}

/// What is under a key.
pub struct Current<'a, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    entry: &'a Entry<K, V>,
    now: Now,
    queues: &'a Queues<K, V>,
    root: &'a Memcg,
    group: OnceCell<Memcg>,
}

/// What is to be done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<V> {
    /// Put this value there, for the place's group and time.
    Put(V),
    /// Put this value there, with the time that is left to the one that is there; for the place's group, too, whosesoever that one was. To keep
    /// that as well, name it: [`Place::group`].
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
        &self.entry.value
    }

    /// The time it has left; none if it does not expire.
    pub fn time_left(&self) -> Option<Duration> {
        self.entry.expires().left(self.now)
    }

    /// The group it belongs to; the root for one that is just being evicted, or moved.
    pub fn group(&self) -> &Memcg {
        self.group.get_or_init(|| self.queues.whose(self.entry).unwrap_or_else(|| self.root.clone()))
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
        Self { cache, key, group: &inner.group, lifetime: inner.lifetime }
    }

    /// The group that is charged for what is inserted; the cache's own by default. With one of another runtime, every insert is refused
    /// ([`Reason::ForeignGroup`]).
    pub fn group(mut self, group: &'a Memcg) -> Self {
        self.group = group;
        self
    }

    /// How long what is inserted lives, used or not; the cache's own time by default. An entry has one time: the last that is called of this,
    /// [`time_to_idle`](Self::time_to_idle) and [`forever`](Self::forever) counts.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.lifetime = Lifetime::Fixed(time);
        self
    }

    /// How long what is inserted stays when nobody uses it, as with [`CacheBuilder::time_to_idle`](super::CacheBuilder::time_to_idle); the
    /// cache's own time by default. What is longer than eight years is for ever.
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.lifetime = Lifetime::Idle(time);
        self
    }

    /// What is inserted lives until it is evicted, whatever the cache's own time is.
    pub fn forever(mut self) -> Self {
        self.lifetime = Lifetime::Forever;
        self
    }

    /// Puts a value there, and returns the one that was.
    ///
    /// # Errors
    ///
    /// [`InsertError`] says why, and gives the value back. What was there still is.
    pub fn insert(self, value: V) -> Result<Option<V>, InsertError<V>> {
        let hash = self.cache.inner.core.hash(&self.key);
        self.cache.make_and_put(self.key, value, hash, self.group, self.lifetime, &Expect::Any).map_err(|unput| {
            let reason = unput.reason.expect("anything was expected");
            InsertError { reason, value: unput.value }
        })
    }

    /// Asks `f` what to do with what is there, and does it, as one step for everybody else.
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
                Found::Live(entry) => Some(entry),
                Found::Nothing => None,
                Found::Expired(ended) => {
                    drop(guard);
                    drop(ended);
                    continue;
                }
            };
            let now = core.clock.now();
            let op = f(there.map(|entry| Current { entry, now, queues, root, group: OnceCell::new() }));
            let (value, expires) = match (op, there) {
                (Op::Update(value), Some(entry)) => (value, entry.expires()),
                (Op::Put(value) | Op::Update(value), _) => (value, core.clock.end_of(self.lifetime)),
                (Op::Remove, Some(entry)) => {
                    let is_it = |there: &_| std::ptr::eq(there, entry);
                    let Some((_, ended)) = core.take_out(hash, &guard, is_it, |_| RemovalCause::Explicit) else {
                        continue;
                    };
                    let value = entry.value.clone();
                    drop(guard);
                    drop(ended);
                    return Ok(Computed::Removed(value));
                }
                (Op::Remove | Op::Keep, _) => return Ok(Computed::Kept),
            };
            let expect = there.map_or(Expect::Vacant, Expect::Same);
            cache.foresee(hash);
            let group = online(self.group);
            let made = cache.make(self.key, value, hash, &group, expires);
            match made.and_then(|made| cache.put(made, hash, &group, &guard, &expect)) {
                Ok((old, ended)) => {
                    drop(guard);
                    drop(ended);
                    return Ok(old.map_or(Computed::Inserted, Computed::Replaced));
                }
                Err(Unput { reason: Some(reason), value, .. }) => return Err(InsertError { reason, value }),
                Err(Unput { reason: None, key, .. }) => self.key = key,
            }
        }
    }
}

/// What must be under the key for a value to be put there.
pub(super) enum Expect<'g, K, V> {
    /// Whatever there is.
    Any,
    /// Nothing, or what has expired.
    Vacant,
    /// This entry, and no other.
    Same(&'g Entry<K, V>),
}

/// An entry that is nowhere yet, and charged.
pub(super) struct Made<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    pub(super) entry: Handle<K, V>,
    /// What it earns if its key came back.
    worth: Worth,
}

/// A value that was not put in.
pub(super) struct Unput<K, V> {
    /// None: there is not what was expected.
    reason: Option<Reason>,
    key: K,
    value: V,
}

impl<K, V> Unput<K, V> {
    /// Was something else there than was expected?
    pub(super) fn found_another(&self) -> bool {
        self.reason.is_none()
    }
}

/// Bytes that were taken for an entry, given back when this is dropped.
struct Refund<'a> {
    group: &'a Memcg,
    bytes: Bytes,
}

impl Drop for Refund<'_> {
    fn drop(&mut self) {
        self.group.uncharge(self.bytes);
    }
}

/// The value that another took the place of, and what is to be dropped when no guard is held.
pub(super) type Put<'c, K, V, S> = (Option<V>, Maybe<'c, K, V, S>);

/// The group itself, or if it is dying, the one above it that is not.
fn online(group: &Memcg) -> Cow<'_, Memcg> {
    if group.is_online() {
        Cow::Borrowed(group)
    } else {
        Cow::Owned(group.nearest_online())
    }
}

fn no_memory(group: &Memcg) -> Reason {
    Reason::NoMemory { group: group.path() }
}

/// Takes an entry apart that was not put in.
fn unput<K: Send + Sync + 'static, V: Send + Sync + 'static>(
    entry: Handle<K, V>,
    reason: Option<Reason>,
) -> Unput<K, V> {
    let Ok(Entry { key, value, .. }) = entry.into_inner() else { unreachable!("nobody saw it") };
    Unput { reason, key, value }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Makes an entry, and puts it in its place; the value it replaced.
    pub(super) fn make_and_put(
        &self,
        key: K,
        value: V,
        hash: u64,
        group: &Memcg,
        lifetime: Lifetime,
        expect: &Expect<'_, K, V>,
    ) -> Result<Option<V>, Unput<K, V>> {
        self.foresee(hash);
        let expires = self.inner.core.clock.end_of(lifetime);
        let group = online(group);
        let made = self.make(key, value, hash, &group, expires)?;
        let guard = pin();
        let (replaced, ended) = self.put(made, hash, &group, &guard, expect)?;
        drop(guard);
        drop(ended);
        Ok(replaced)
    }

    /// Asks for what is known of a key, and for its place: both are far from any processor, and until they are looked at there is something
    /// else to do.
    pub(super) fn foresee(&self, hash: u64) {
        let guard = pin();
        self.inner.core.queues.known(&guard).prefetch(hash);
        self.inner.core.index.prefetch(hash, &guard);
    }

    /// Weighs and charges a value, and makes an entry that is nowhere yet. It stays charged.
    pub(super) fn make(
        &self,
        key: K,
        value: V,
        hash: u64,
        group: &Memcg,
        expires: Moment,
    ) -> Result<Made<K, V>, Unput<K, V>> {
        let inner = &self.inner;
        if !group.is_in_tree_of(&inner.group) {
            inner.core.counters.rejected();
            let reason = Reason::ForeignGroup { group: group.path() };
            return Err(Unput { reason: Some(reason), key, value });
        }
        let (queues, index) = (&inner.core.queues, &inner.core.index);
        let bytes = (inner.weigher)(&key, &value).saturating_add(Bytes::new(Entry::<K, V>::BYTES));
        let bytes = rounded(bytes);
        let worth = inner.core.costs.as_ref().map_or_else(Worth::default, |costs| costs.worth(&key, &value));
        let node = inner.node();
        let entry = index.slab().alloc(Entry::new(key, value, expires, bytes), node);
        let entry = entry.map_err(|Entry { key, value, .. }| Unput { reason: Some(no_memory(group)), key, value })?;
        let tenant = queues.tenant_if_known(group);
        if let Err(reason) = self.charge(group, bytes, tenant, hash) {
            inner.core.counters.rejected();
            return Err(unput(entry, Some(reason)));
        }
        entry.set_queue(queues.choose(group, tenant, node));
        Ok(Made { entry, worth })
    }

    /// Puts an entry in its place, if what is there is what was expected; the value that it replaced, and what is to be ended when
    /// the guard is gone.
    pub(super) fn put<'c>(
        &'c self,
        Made { entry, worth }: Made<K, V>,
        hash: u64,
        group: &Memcg,
        guard: &Guard,
        expect: &Expect<'_, K, V>,
    ) -> Result<Put<'c, K, V, S>, Unput<K, V>> {
        let core = &self.inner.core;
        let (node, expires) = (entry.node(), entry.expires());
        // So that nothing is allocated for the list under the segment's lock. Who has let something go has lists.
        let tenant = core.queues.tenant_if_known(group);
        if tenant.is_none_or(Tenant::is_filling) {
            core.queues.prepare(entry.queue(), group, node);
        }
        let mut refused = None;
        let mut cause = RemovalCause::Replaced;
        let is = |there: &Entry<K, V>, new: &Entry<K, V>| there.key == new.key;
        let hasher = |entry: &Entry<K, V>| core.hash(&entry.key);
        // Unless a key's own code panics, in which case the entry is gone.
        let refund = Refund { group, bytes: entry.charge() };
        let put = core.index.put(entry, hash, guard, is, &hasher, |entry, there| {
            let expected = match (expect, there) {
                (Expect::Any, _) | (Expect::Vacant, None) => true,
                (Expect::Vacant, Some(there)) => core.has_expired(there),
                (Expect::Same(same), Some(there)) => std::ptr::eq(*same, there),
                (Expect::Same(_), None) => false,
            };
            if !expected {
                return Err(entry);
            }
            let came_back = core.queues.came_back(hash, tenant, guard);
            if came_back {
                entry.set_queue(Queue::Main);
            }
            let bytes = entry.charge();
            // What came back before is paid for by others as it grows, too: a placeholder is not what was wanted.
            let earned = match there {
                _ if came_back => worth.of(bytes),
                Some(there) if there.queue() == Queue::Main => bytes.saturating_sub(there.charge()),
                _ => Bytes::ZERO,
            };
            // The list of its queue may have to be made here after all: if it was empty for long, or that one was another group's.
            there.inspect(|there| core.queues.inherit(&entry, there));
            core.queues.add(entry, group, node).map_err(|error| {
                refused = Some(no_memory(group));
                error.into_handle()
            })?;
            if let Some(tenant) = tenant {
                core.queues.settle(group, tenant, bytes, earned);
            }
            Ok(there.and_then(|there| {
                if core.has_expired(there) {
                    cause = RemovalCause::Expired;
                }
                there.set_cause(cause);
                core.off_its_list(there)
            }))
        });
        match put {
            Ok((there, ended)) => {
                std::mem::forget(refund);
                // A walk had it, and may have put it back on its list before it was out of the
                // index: see `Core::put_back`.
                let ended = ended.or_else(|| there.and_then(|there| core.off_its_list(there)));
                core.counters.inserted();
                self.inner.says(expires);
                let there = there.filter(|_| cause == RemovalCause::Replaced);
                Ok((there.map(|there| there.value.clone()), ended))
            }
            Err(error) => {
                let (reason, entry) = match error {
                    PutError::Refused(entry) => (refused, entry),
                    PutError::NoMemory(entry) | PutError::Indexed(entry) => (Some(no_memory(group)), entry),
                };
                Err(unput(entry, reason))
            }
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Inner<K, V, S> {
    /// Where this thread's entries go: never a node that nobody reclaims from, whatever the topology says.
    fn node(&self) -> NodeId {
        if self.last_node == NodeId::ZERO {
            NodeId::ZERO
        } else {
            self.runtime.topology().current().min(self.last_node)
        }
    }
}
