//! Inserts: a record is prepared (weighed, charged), then put in the index and on its list in one
//! step.

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
use super::overwrite::NewValue;
use super::payer::Payer;
use super::policy::cost::RelativeCost;
use super::policy::queue::Queue;
use super::policy::tenant::Tenant;
use super::record::{rounded, Handle, Record};
use super::removal::RemovalCause;

/// The precondition of an insert on the current record of the key.
pub(super) enum Expect<'g, K, V> {
    /// Any record, or none.
    Any,
    /// No record, or an expired one.
    Vacant,
    /// This record, and no other.
    Same(&'g Record<K, V>),
}

/// The online group that is charged for a new value, and the tenant of that group, if it has one.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) group: &'a Memcg,
    pub(super) tenant: Option<&'a Tenant>,
}

/// The results of the user's functions for a value.
#[derive(Clone, Copy)]
pub(super) struct Weighed {
    /// The bytes to charge for a record of the value.
    pub(super) bytes: ByteSize,
    /// The relative cost of the value, which weights a ghost hit.
    cost: RelativeCost,
}

/// A charged record that is in no index and on no list yet.
pub(super) struct Prepared<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    pub(super) record: Handle<K, V>,
    /// The relative cost of the value, which weights a ghost hit.
    cost: RelativeCost,
}

/// A key and a value that were not inserted.
pub(super) struct Rejected<K, V> {
    /// The reason; none if the current record is not the expected one.
    pub(super) reason: Option<RejectReason>,
    pub(super) key: K,
    pub(super) value: V,
}

impl<K, V> Rejected<K, V> {
    /// Returns whether the current record was not the expected one.
    pub(super) fn found_another(&self) -> bool {
        self.reason.is_none()
    }
}

/// The charge of a record, which is uncharged when this is dropped.
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

/// Returns the group itself, or its nearest online ancestor if it is dying.
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

/// Takes the key and the value out of a record that was not inserted.
fn into_rejected<K: Send + Sync + 'static, V: Send + Sync + 'static>(
    record: Handle<K, V>,
    reason: Option<RejectReason>,
) -> Rejected<K, V> {
    let Ok(Record { key, value, .. }) = record.into_inner() else { unreachable!("no other thread has the record") };
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
        let core = &self.inner.core;
        let expires = core.clock.deadline_of(ttl);
        let weighed = self.weigh(&key, &value);
        let (mut key, mut value) = (key, value);
        let group = match expect {
            Expect::Any => {
                let guard = pin();
                let current = core.index.get(hash, &guard, |record| record.key == key);
                let current = current.filter(|record| !core.is_expired(record));
                if let Some(record) = current {
                    match self.overwrite(
                        record,
                        NewValue { key, value, bytes: weighed.bytes, hash, payer, expires },
                        &guard,
                    ) {
                        Ok((replaced, removal)) => {
                            drop(guard);
                            drop(removal);
                            return Ok(Some(replaced));
                        }
                        Err(back) => (key, value) = back,
                    }
                }
                self.payer_of(payer, current)
            }
            _ => online(payer.group),
        };
        let target = self.target(&group);
        self.prefetch(hash, target);
        let prepared = self.prepare(key, value, weighed, target, expires)?;
        let guard = pin();
        let (replaced, removal) = self.insert_prepared(prepared, hash, target, &guard, expect)?;
        drop(guard);
        drop(removal);
        Ok(replaced)
    }

    /// Returns the group to charge for a value that replaces `current`. The group is online.
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

    /// Returns whether a group is being emptied by a drop of the group, and must not be charged any
    /// more.
    fn is_being_emptied(&self, group: &Memcg) -> bool {
        // A group that is being emptied has a `max` of 0, so mostly this test decides without a
        // lock. A group that has ended since is no longer listed as being dropped, so its state is
        // checked, too.
        group.max() == ByteSize::ZERO && (self.runtime().housekeeper().is_dropping(group) || !group.is_online())
    }

    /// Returns whether a replaced entry may keep a group other than `payer`'s.
    fn may_have_another_payer(&self, payer: Payer<'_>) -> bool {
        !payer.is_named && !self.has_one_group(payer)
    }

    /// Returns whether all entries are charged to the payer's group, so that no lookup is needed.
    pub(super) fn has_one_group(&self, payer: Payer<'_>) -> bool {
        // Relaxed: an insert of the first entry of another group at this moment is concurrent with
        // the caller, so either order is correct.
        *payer.group == self.inner.group && !self.inner.has_tenants.load(Ordering::Relaxed)
    }

    /// Looks up the tenant of a group to charge.
    pub(super) fn target<'a>(&'a self, group: &'a Memcg) -> Target<'a> {
        Target { group, tenant: self.inner.core.queues.find_tenant(group) }
    }

    /// Prefetches the ghost and the index bucket of a hash, well before they are read.
    pub(super) fn prefetch(&self, hash: u64, Target { group, tenant }: Target<'_>) {
        let (guard, core) = (pin(), &self.inner.core);
        core.queues.prefetch_ghost(hash, group, tenant, core.notifier.ghosts().known(&guard));
        core.index.prefetch(hash, &guard);
    }

    /// Charges a weighed value, and makes a record of it. The returned record is charged.
    pub(super) fn prepare(
        &self,
        key: K,
        value: V,
        Weighed { bytes, cost }: Weighed,
        Target { group, tenant }: Target<'_>,
        expires: Deadline,
    ) -> Result<Prepared<K, V>, Rejected<K, V>> {
        let inner = &self.inner;
        if !group.is_in_tree_of(&inner.group) {
            inner.core.counters.rejected();
            let reason = RejectReason::ForeignGroup { group: group.path() };
            return Err(Rejected { reason: Some(reason), key, value });
        }
        // Relaxed: see `may_have_another_payer`. Stored only once, as all inserts read the flag's
        // cache line.
        if *group != inner.group && !inner.has_tenants.load(Ordering::Relaxed) {
            inner.has_tenants.store(true, Ordering::Relaxed);
        }
        let (queues, index) = (&inner.core.queues, &inner.core.index);
        let node = inner.node();
        let record = index.slab().alloc(Record::new(key, value, expires, bytes), node);
        let record =
            record.map_err(|Record { key, value, .. }| Rejected { reason: Some(no_memory(group)), key, value })?;
        if let Err(reason) = self.charge(group, bytes, tenant) {
            inner.core.counters.rejected();
            return Err(into_rejected(record, Some(reason)));
        }
        record.set_queue(queues.initial_queue(group, tenant, node));
        Ok(Prepared { record, cost })
    }

    /// Calls the weigher, and the function for the cost of a miss, if there is one. To be called once
    /// for each value, without a lock; both are the user's code.
    pub(super) fn weigh(&self, key: &K, value: &V) -> Weighed {
        let (inner, core) = (&self.inner, &self.inner.core);
        let bytes = (inner.weigher)(key, value).saturating_add(ByteSize::new(Record::<K, V>::BYTES));
        let cost = core.miss_cost.as_ref().map_or_else(RelativeCost::default, |cost| {
            let relative = cost.relative(key, value, core.notifier.mean_cost());
            core.queues.note_mean_cost(cost.mean());
            relative
        });
        Weighed { bytes: rounded(bytes), cost }
    }

    /// Inserts a prepared record, if the current record of the key is the expected one. Returns the
    /// replaced value, and a removal to be finished after the guard is dropped.
    pub(super) fn insert_prepared<'c>(
        &'c self,
        Prepared { record, cost }: Prepared<K, V>,
        hash: u64,
        Target { group, tenant }: Target<'_>,
        guard: &Guard,
        expect: &Expect<'_, K, V>,
    ) -> Result<Inserted<'c, K, V, S>, Rejected<K, V>> {
        let core = &self.inner.core;
        let (node, expires) = (record.node(), record.deadline());
        // Allocates the list here, so that this is not done under the segment's lock. A tenant that
        // has evicted records has its lists already.
        if tenant.is_none_or(Tenant::is_filling) {
            core.queues.prepare(record.queue(), group, node);
        }
        let mut refused = None;
        let mut cause = RemovalCause::Replaced;
        let is = |there: &Record<K, V>, new: &Record<K, V>| there.key == new.key;
        let hasher = |record: &Record<K, V>| core.hash(&record.key);
        // Uncharged on every return below that does not insert the record, and also if a key's own
        // code panics: then the record is dropped.
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
            // `inherit` may change the queue, so `add` may have to allocate the list under the lock
            // after all: if that list was empty for long, or the replaced record was of another
            // group.
            there.inspect(|there| core.queues.inherit(&record, there));
            // Before `add`, after which another thread may remove the record.
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
        // The value's own charge, which ends now that the record is charged for the value.
        drop(released);
        match put {
            Ok((there, removal)) => {
                std::mem::forget(refund);
                // A walk had isolated the replaced record, and may have put it back on its list
                // before it left the index: see `Core::put_back`.
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
    /// Returns the node for this thread's records: one of the registry's nodes, even if the
    /// topology reports a higher one.
    pub(super) fn node(&self) -> NodeId {
        if self.last_node == NodeId::ZERO {
            NodeId::ZERO
        } else {
            self.runtime.topology().current().min(self.last_node)
        }
    }
}
