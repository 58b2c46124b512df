//! Inserting: a record is prepared (weighed, charged), then put in the index and on its list in one step.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_rcu::{pin, Guard};
use lowwater_store::index::InsertError;

use super::core::MaybeRemoval;
use super::error::RejectReason;
use super::expiry::clock::Ttl;
use super::expiry::deadline::Deadline;
use super::handle::{Cache, CacheInner};
use super::policy::cost::RelativeCost;
use super::policy::queue::Queue;
use super::policy::tenant::Tenant;
use super::record::{rounded, Handle, Record};
use super::removal::RemovalCause;

/// What must be under the key for a value to be put there.
pub(super) enum Expect<'g, K, V> {
    /// Whatever there is.
    Any,
    /// Nothing, or what has expired.
    Vacant,
    /// This entry, and no other.
    Same(&'g Record<K, V>),
}

/// The group that is charged for a new value.
#[derive(Clone, Copy)]
pub(super) struct Payer<'a> {
    group: &'a Memcg,
    /// The caller has named the group: an entry that is there moves to it. Else the entry keeps its
    /// own.
    is_named: bool,
}

impl<'a> Payer<'a> {
    /// The group of the value that is replaced; `group` where there is none.
    pub(super) fn new(group: &'a Memcg) -> Self {
        Self { group, is_named: false }
    }

    /// This group.
    pub(super) fn named(group: &'a Memcg) -> Self {
        Self { group, is_named: true }
    }
}

/// A charged record that is in no index and on no list yet.
pub(super) struct Prepared<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    pub(super) record: Handle<K, V>,
    /// What a ghost hit counts.
    cost: RelativeCost,
}

/// A key and a value that were not inserted.
pub(super) struct Rejected<K, V> {
    /// None: the current record is not the expected one.
    pub(super) reason: Option<RejectReason>,
    pub(super) key: K,
    pub(super) value: V,
}

impl<K, V> Rejected<K, V> {
    /// Tells whether the current record was not the expected one.
    pub(super) fn found_another(&self) -> bool {
        self.reason.is_none()
    }
}

/// The charge of a record, uncharged when this is dropped.
struct Refund<'a> {
    group: &'a Memcg,
    bytes: ByteSize,
}

impl Drop for Refund<'_> {
    fn drop(&mut self) {
        self.group.uncharge(self.bytes);
    }
}

/// The replaced value, and a removal to be finished when no guard is held.
pub(super) type Inserted<'c, K, V, S> = (Option<V>, MaybeRemoval<'c, K, V, S>);

/// The group itself, or if it is dying, the one above it that is not.
fn online(group: &Memcg) -> Cow<'_, Memcg> {
    if group.is_online() {
        Cow::Borrowed(group)
    } else {
        Cow::Owned(group.nearest_online())
    }
}

fn no_memory(group: &Memcg) -> RejectReason {
    RejectReason::NoMemory { group: group.path() }
}

/// Takes apart a record that was not inserted.
fn into_rejected<K: Send + Sync + 'static, V: Send + Sync + 'static>(
    record: Handle<K, V>,
    reason: Option<RejectReason>,
) -> Rejected<K, V> {
    let Ok(Record { key, value, .. }) = record.into_inner() else { unreachable!("nobody saw it") };
    Rejected { reason, key, value }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Prepares and inserts a record. Returns the replaced value.
    pub(super) fn insert_record(
        &self,
        key: K,
        value: V,
        hash: u64,
        payer: Payer<'_>,
        ttl: Ttl,
        expect: &Expect<'_, K, V>,
    ) -> Result<Option<V>, Rejected<K, V>> {
        self.prefetch(hash, payer.group);
        let expires = self.inner.core.clock.deadline_of(ttl);
        let group = match expect {
            Expect::Any if self.may_have_another_payer(payer) => {
                let (core, guard) = (&self.inner.core, pin());
                let current = core.index.get(hash, &guard, |record| record.key == key);
                self.payer_of(payer, current.filter(|record| !core.is_expired(record)))
            }
            _ => online(payer.group),
        };
        let prepared = self.prepare(key, value, &group, expires)?;
        let guard = pin();
        let (replaced, removal) = self.insert_prepared(prepared, hash, &group, &guard, expect)?;
        drop(guard);
        drop(removal);
        Ok(replaced)
    }

    /// Returns the group to charge for a value that replaces `current`; an online one.
    pub(super) fn payer_of<'a>(&self, payer: Payer<'a>, current: Option<&Record<K, V>>) -> Cow<'a, Memcg> {
        let current = current.filter(|_| self.may_have_another_payer(payer));
        match current.and_then(|current| self.inner.core.queues.owner(current)) {
            Some(group) => Cow::Owned(self.nearest_that_takes(&group)),
            None => online(payer.group),
        }
    }

    /// Returns the nearest online group from `group` upwards that is not being emptied.
    fn nearest_that_takes(&self, group: &Memcg) -> Memcg {
        let online = group.nearest_online();
        match online.parent() {
            Some(parent) if self.is_being_emptied(&online) => parent.nearest_online(),
            _ => online,
        }
    }

    /// Tells whether a group is being emptied to end, and takes nothing any more.
    fn is_being_emptied(&self, group: &Memcg) -> bool {
        // Mostly the limit answers, without a lock. A group that ended meanwhile is not being dropped any more.
        group.max() == ByteSize::ZERO && (self.runtime().housekeeper().is_dropping(group) || !group.is_online())
    }

    /// Returns whether a replaced entry may keep a group other than `payer`'s: false in a cache of
    /// one group, where nothing need be looked up.
    fn may_have_another_payer(&self, payer: Payer<'_>) -> bool {
        // Relaxed: a thread that inserts the first entry of another group at this moment is
        // concurrent with the caller.
        let is_of_one_group = *payer.group == self.inner.group && !self.inner.has_tenants.load(Ordering::Relaxed);
        !payer.is_named && !is_of_one_group
    }

    /// Prefetches the ghost and the index bucket of a hash, well before they are read.
    pub(super) fn prefetch(&self, hash: u64, group: &Memcg) {
        let (guard, core) = (pin(), &self.inner.core);
        core.queues.prefetch_ghost(hash, group, core.notifier.ghosts().known(&guard));
        core.index.prefetch(hash, &guard);
    }

    /// Weighs and charges a value, and makes a record of it. The record stays charged.
    pub(super) fn prepare(
        &self,
        key: K,
        value: V,
        group: &Memcg,
        expires: Deadline,
    ) -> Result<Prepared<K, V>, Rejected<K, V>> {
        let inner = &self.inner;
        if !group.is_in_tree_of(&inner.group) {
            inner.core.counters.rejected();
            let reason = RejectReason::ForeignGroup { group: group.path() };
            return Err(Rejected { reason: Some(reason), key, value });
        }
        // Relaxed: see `may_have_another_payer`. Stored once, as all inserts read it.
        if *group != inner.group && !inner.has_tenants.load(Ordering::Relaxed) {
            inner.has_tenants.store(true, Ordering::Relaxed);
        }
        let (queues, index) = (&inner.core.queues, &inner.core.index);
        let bytes = (inner.weigher)(&key, &value).saturating_add(ByteSize::new(Record::<K, V>::BYTES));
        let bytes = rounded(bytes);
        let cost = inner.core.miss_cost.as_ref().map_or_else(RelativeCost::default, |cost| {
            let relative = cost.relative(&key, &value, inner.core.notifier.mean_cost());
            queues.note_mean_cost(cost.mean());
            relative
        });
        let node = inner.node();
        let record = index.slab().alloc(Record::new(key, value, expires, bytes), node);
        let record =
            record.map_err(|Record { key, value, .. }| Rejected { reason: Some(no_memory(group)), key, value })?;
        let tenant = queues.find_tenant(group);
        if let Err(reason) = self.charge(group, bytes, tenant) {
            inner.core.counters.rejected();
            return Err(into_rejected(record, Some(reason)));
        }
        record.set_queue(queues.initial_queue(group, tenant, node));
        Ok(Prepared { record, cost })
    }

    /// Inserts a prepared record, if the current record of the key is the expected one. Returns the replaced value, and a removal to be finished
    /// after the guard is dropped.
    pub(super) fn insert_prepared<'c>(
        &'c self,
        Prepared { record, cost }: Prepared<K, V>,
        hash: u64,
        group: &Memcg,
        guard: &Guard,
        expect: &Expect<'_, K, V>,
    ) -> Result<Inserted<'c, K, V, S>, Rejected<K, V>> {
        let core = &self.inner.core;
        let (node, expires) = (record.node(), record.deadline());
        // So that nothing is allocated for the list under the segment's lock. Who has let something go has lists.
        let tenant = core.queues.find_tenant(group);
        if tenant.is_none_or(Tenant::is_filling) {
            core.queues.prepare(record.queue(), group, node);
        }
        let mut refused = None;
        let mut cause = RemovalCause::Replaced;
        let is = |there: &Record<K, V>, new: &Record<K, V>| there.key == new.key;
        let hasher = |record: &Record<K, V>| core.hash(&record.key);
        // Unless a key's own code panics, in which case the entry is gone.
        let mut refund = Refund { group, bytes: record.charge() };
        let (charged, mut released) = (refund.bytes, None);
        let put = core.index.insert(record, hash, guard, is, &hasher, |record, there| {
            let expected = match (expect, there) {
                (Expect::Any, _) | (Expect::Vacant, None) => true,
                (Expect::Vacant, Some(there)) => core.is_expired(there),
                (Expect::Same(same), Some(there)) => std::ptr::eq(*same, there),
                (Expect::Same(_), None) => false,
            };
            if !expected {
                return Err(record);
            }
            let ghosts = core.notifier.ghosts().known(guard);
            if core.queues.ghost_hit(hash, group, tenant, cost, ghosts) {
                record.set_queue(Queue::Main);
            }
            // The list of its queue may have to be made here after all: if it was empty for long, or that one was another group's.
            there.inspect(|there| core.queues.inherit(&record, there));
            // Before another thread may remove the record.
            released = core.enter_value(&record);
            core.queues.add(record, group, node).map_err(|error| {
                refused = Some(no_memory(group));
                let record = error.into_handle();
                refund.bytes = core.withdraw_value(&record, group);
                record
            })?;
            Ok(there.and_then(|there| {
                if core.is_expired(there) {
                    cause = RemovalCause::Expired;
                }
                there.set_cause(cause);
                core.remove_from_list(there)
            }))
        });
        // What the value held itself: the record is charged for it now.
        drop(released);
        match put {
            Ok((there, removal)) => {
                std::mem::forget(refund);
                // A walk had it, and may have put it back on its list before it was out of the
                // index: see `Core::put_back`.
                let removal = removal.or_else(|| there.and_then(|there| core.remove_from_list(there)));
                core.counters.inserted(charged);
                self.inner.register_deadline(expires);
                let there = there.filter(|_| cause == RemovalCause::Replaced);
                Ok((there.map(|there| there.value.clone()), removal))
            }
            Err(error) => {
                let (reason, record) = match error {
                    InsertError::Refused(record) => (refused, record),
                    InsertError::NoMemory(record) | InsertError::Indexed(record) => (Some(no_memory(group)), record),
                };
                Err(into_rejected(record, reason))
            }
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> CacheInner<K, V, S> {
    /// The node of this thread's records: one of the registry's nodes, whatever the topology says.
    fn node(&self) -> NodeId {
        if self.last_node == NodeId::ZERO {
            NodeId::ZERO
        } else {
            self.runtime.topology().current().min(self.last_node)
        }
    }
}
