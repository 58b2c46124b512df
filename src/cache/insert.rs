//! Inserts: make a record, charge its group, and enter it in the index and on its list.
//!
//! ```text
//!     make       weigh the value, allocate a slot for the record
//!     insert     under the lock of one segment of the index: a present key's record is replaced in
//!                its place (`overwrite`); else the group pays from stock, the key's ghost is looked
//!                up, and the record enters its queue and the index
//!     charge     if the stock is used up: the group pays for the record, after evictions if there is
//!                no free memory (`charge`), and the insert is tried again; a present record is then
//!                removed, and not replaced in its place
//! ```
//!
//! Mostly the stock suffices, so an insert locks one segment once and searches it once. A change
//! must ensure that the user's functions (weigher, miss cost) and evictions run without that lock,
//! that index and list change under it together, and that a record which is not inserted is
//! uncharged and its key and value returned.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_rcu::{pin, Guard};
use lowwater_store::index::InsertError;

use super::core::{Core, MaybeRemoval};
use super::error::RejectReason;
use super::expect::Expect;
use super::expiry::clock::Ttl;
use super::expiry::deadline::{Deadline, Expires, Floor};
use super::handle::Cache;
use super::inner::CacheInner;
use super::payer::Payer;
use super::payment::Payment;
use super::policy::cost::RelativeCost;
use super::policy::queue::Queue;
use super::policy::sought_ghost::SoughtGhost;
use super::policy::tenant::Tenant;
use super::record::{rounded, Handle, Record};
use super::removal::RemovalCause;
use crate::runtime::Charge;

/// The online group that is charged for a new value, and the tenant of that group, if it has one.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) group: &'a Memcg,
    pub(super) tenant: Option<&'a Tenant>,
    /// The ghost that the insert looks up, if the key can have one.
    ghost: Option<SoughtGhost>,
}

/// The results of the user's functions for a value.
#[derive(Clone, Copy)]
pub(super) struct Weighed {
    /// The bytes to charge for a record of the value.
    bytes: ByteSize,
    /// The relative cost of the value, which weights a ghost hit.
    cost: RelativeCost,
}

/// A record that is in no index and on no list yet.
pub(super) struct NewRecord<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    pub(super) record: Handle<K, V>,
    /// The relative cost of the value, which weights a ghost hit.
    pub(super) cost: RelativeCost,
    /// The queue that the record enters; none: the policy chooses.
    pub(super) queue: Option<Queue>,
    /// Whether a record of the key was seen: mostly one of the same group, whose list exists.
    replaces_known: bool,
    /// The clock's floor for which the record's deadline was encoded.
    floor: Floor,
    /// The record's charge, and whether the group has paid it.
    bytes: ByteSize,
    is_paid: bool,
}

/// The reason why a record was not inserted.
pub(super) enum Refusal {
    /// The stock does not have the bytes that are to be charged.
    NotPaid,
    /// The current record of the key is not the expected one.
    FoundAnother,
    NoMemory,
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

/// The replaced value, and a removal to be finished when no guard is held.
pub(super) type Inserted<'c, 'g, K, V, S> = (Option<&'g V>, MaybeRemoval<'c, K, V, S>);

/// A record that was not inserted, the reason, and the current record of the key if it was not the
/// expected one.
pub(super) type Refused<'g, K, V> = (NewRecord<K, V>, Refusal, Option<&'g Record<K, V>>);

/// A record that is paid, and the group that was charged if it is not the chosen one.
pub(super) type Paid<K, V> = (NewRecord<K, V>, Option<Memcg>);

/// Returns the group itself, or its nearest online ancestor if it is dying.
fn online(group: &Memcg) -> Cow<'_, Memcg> {
    if group.is_online() {
        Cow::Borrowed(group)
    } else {
        Cow::Owned(group.nearest_online())
    }
}

fn no_memory(group: &Memcg) -> RejectReason {
    RejectReason::NoMemory { group: group.try_path().unwrap_or_default() }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> NewRecord<K, V> {
    /// Returns a record of this value and deadline that is not paid yet.
    #[inline]
    pub(super) fn new(record: Handle<K, V>, Weighed { bytes, cost }: Weighed, expires: Expires) -> Self {
        Self { record, cost, queue: None, replaces_known: false, floor: expires.floor, bytes, is_paid: false }
    }

    /// Takes over bytes that were charged before, if they are for `group` and suffice; uncharges
    /// the rest.
    pub(super) fn take_over(&mut self, mut charge: Charge, group: &Memcg) {
        if let Some(paid) = charge.split(self.bytes).filter(|paid| paid.group() == group) {
            paid.into_paid();
            self.is_paid = true;
        }
    }

    /// The bytes to charge for the record.
    pub(super) fn bytes(&self) -> ByteSize {
        self.bytes
    }

    /// Marks the record as paid: its bytes are charged to the group that its insert is for.
    pub(super) fn set_paid(&mut self) {
        self.is_paid = true;
    }

    /// Takes the key and the value out.
    pub(super) fn into_rejected(self, reason: Option<RejectReason>) -> Rejected<K, V> {
        let Ok(Record { key, value, .. }) = self.record.into_inner() else {
            unreachable!("no other thread has the record")
        };
        Rejected { reason, key, value }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Makes a record and inserts it, or puts it in the place of a present one. Clones the replaced
    /// value into `previous`, if given, and returns whether a value was replaced. The function has
    /// no type parameters of its own, so that all callers of a cache type share one copy of the
    /// code.
    pub(super) fn insert_record(
        &self,
        key: K,
        value: V,
        hash: u64,
        (payer, ttl): (Payer<'_>, Ttl),
        expect: &Expect<'_, K, V>,
        previous: Option<&mut Option<V>>,
    ) -> Result<bool, Rejected<K, V>> {
        let core = &self.inner.core;
        let weighed = self.weigh(&key, &value);
        let has_one_group = self.has_one_group(payer);
        let mut other = None;
        let mut group = payer.group;
        if !group.is_online() || !has_one_group && !payer.is_named {
            let guard = pin();
            let present = self.present(&key, hash, &guard);
            // The evicted entry of a reload may have been evicted because its group is being
            // dropped.
            group = other.insert(match present {
                None if expect.is_reload() && !payer.is_named => self.nearest_that_takes(payer.group),
                _ => self.payer_of(payer, present).into_owned(),
            });
        }
        if let Err(reason) = self.admit(group) {
            return Err(Rejected { reason: Some(reason), key, value });
        }
        let mut target = self.target(group, hash);
        let expires = match ttl {
            Ttl::Computed => self.computed_deadline(&key, &value, hash, expect.is_reload()),
            _ => core.clock.deadline_of(ttl),
        };
        // Declared first, so that it is dropped after the guard, also if the value's clone panics.
        let replaced;
        // Dropped before each `pay`, which may wait for readers.
        let mut guard = pin();
        self.prefetch(hash, target, &guard);
        let mut new = NewRecord::new(self.make(key, value, weighed, expires, group)?, weighed, expires);
        // This processor's stock belongs to a single group. With several groups it is mostly
        // another group's: a new key is paid for now, rather than after a search of the segment in
        // vain. `has_one_group` may be outdated, which does not matter here.
        if !has_one_group {
            new.replaces_known = self.present(&new.record.key, hash, &guard).is_some();
            if !new.replaces_known {
                drop(guard);
                let payer_instead;
                (new, payer_instead) = self.pay(new, Refusal::NotPaid, target, hash, payer, expect.is_reload())?;
                if let Some(group) = payer_instead {
                    target = self.target_of_present(other.insert(group));
                }
                guard = pin();
            }
        }
        loop {
            match self.try_insert(new, hash, target, &guard, expect) {
                Ok((old, removal)) => {
                    replaced = removal;
                    if let (Some(old), Some(previous)) = (old, previous) {
                        *previous = Some(old.clone());
                    }
                    let has_replaced = old.is_some();
                    drop(guard);
                    // Not `drop(replaced)`: mostly there is none, and the check is then inline.
                    if let Some(removal) = replaced {
                        drop(removal);
                    }
                    return Ok(has_replaced);
                }
                Err((back, refusal, _)) => {
                    drop(guard);
                    let payer_instead;
                    (new, payer_instead) = self.pay(back, refusal, target, hash, payer, expect.is_reload())?;
                    if let Some(group) = payer_instead {
                        target = self.target_of_present(other.insert(group));
                    }
                    guard = pin();
                }
            }
        }
    }

    /// Returns the deadline of a new value by the user's function. Out of line, as few caches have
    /// one.
    #[cold]
    fn computed_deadline(&self, key: &K, value: &V, hash: u64, is_reload: bool) -> Expires {
        let guard = pin();
        // A reloaded value is a new one: an unchanged deadline would have it reloaded again at
        // once.
        let present = (!is_reload).then(|| self.present(key, hash, &guard)).flatten();
        self.inner.core.deadline_of_new(Ttl::Computed, key, value, present)
    }

    /// Returns the key's record, unless the record has expired. Does not count as a use.
    fn present<'g>(&'g self, key: &K, hash: u64, guard: &'g Guard) -> Option<&'g Record<K, V>> {
        let core = &self.inner.core;
        core.index.get(hash, guard, |record| *key == record.key).filter(|record| !core.is_expired(record))
    }

    /// Returns the group to charge for a value that replaces `current`. The group is online.
    pub(super) fn payer_of<'a>(&self, payer: Payer<'a>, current: Option<&Record<K, V>>) -> Cow<'a, Memcg> {
        match current.and_then(|current| self.payer_of_present(payer, current)) {
            Some(group) => Cow::Owned(group),
            None => online(payer.group),
        }
    }

    /// Returns the group to charge for a value that replaces `current`; `None`: the payer's group.
    /// The returned group is online.
    fn payer_of_present(&self, payer: Payer<'_>, current: &Record<K, V>) -> Option<Memcg> {
        let group = self.may_have_another_payer(payer).then(|| self.inner.core.queues.owner(current)).flatten()?;
        Some(self.nearest_that_takes(&group))
    }

    /// Returns `group` or its nearest online ancestor; if the group found is being emptied, the
    /// nearest online ancestor of that group, whose `max` is not checked.
    fn nearest_that_takes(&self, group: &Memcg) -> Memcg {
        let online = group.nearest_online();
        match online.parent() {
            Some(parent) if self.runtime().housekeeper().takes_no_records(&online) => parent.nearest_online(),
            _ => online,
        }
    }

    /// Returns the group to charge for a new value instead of `refused`, which has refused the
    /// charge because it is being dropped: its parent if a value is replaced or reloaded, otherwise
    /// the payer's group. `None` if the charge stays refused. The drop may have begun after the
    /// lookup of the group, and no lookup was needed if all entries are charged to one group.
    #[cold]
    fn payer_instead(&self, refused: &Memcg, key: &K, hash: u64, payer: Payer<'_>, is_reload: bool) -> Option<Memcg> {
        if payer.is_named || !self.runtime().housekeeper().takes_no_records(refused) {
            return None;
        }
        let group = match is_reload || self.present(key, hash, &pin()).is_some() {
            true => self.nearest_that_takes(refused),
            false => payer.group.nearest_online(),
        };
        (group != *refused).then_some(group)
    }

    /// Returns whether the group of a replaced entry, which the new value keeps, may be another
    /// than the payer's.
    fn may_have_another_payer(&self, payer: Payer<'_>) -> bool {
        !payer.is_named && !self.has_one_group(payer)
    }

    /// Returns whether all entries are charged to the payer's group, so that no lookup is needed.
    pub(super) fn has_one_group(&self, payer: Payer<'_>) -> bool {
        // Relaxed: an insert of the first entry of another group at this moment is concurrent with
        // the caller, so either order is correct.
        *payer.group == self.inner.group && !self.inner.core.has_tenants.load(Ordering::Relaxed)
    }

    /// Looks up the tenant of a group to charge, and where the ghost of a key of this hash would
    /// be.
    #[inline]
    pub(super) fn target<'a>(&'a self, group: &'a Memcg, hash: u64) -> Target<'a> {
        let queues = &self.inner.core.queues;
        let tenant = queues.find_tenant(group);
        let ghost = tenant.and_then(|tenant| queues.sought_ghost(hash, group, tenant));
        Target { group, tenant, ghost }
    }

    /// As [`target`](Self::target), for a key that is present: it has no ghost.
    #[inline]
    pub(super) fn target_of_present<'a>(&'a self, group: &'a Memcg) -> Target<'a> {
        Target { group, tenant: self.inner.core.queues.find_tenant(group), ghost: None }
    }

    /// Prefetches the ghost and the index bucket of a hash, well before they are read.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64, target: Target<'_>, guard: &Guard) {
        let core = &self.inner.core;
        if let Some(ghost) = target.ghost {
            core.notifier.ghosts().known(guard).prefetch(ghost.hash);
        }
        core.index.prefetch(hash, guard);
    }

    /// Makes a record of a weighed value. `group` is named in the error.
    #[inline(always)] // Otherwise large values are moved through memory once more.
    pub(super) fn make(
        &self,
        key: K,
        value: V,
        weighed: Weighed,
        expires: Expires,
        group: &Memcg,
    ) -> Result<Handle<K, V>, Rejected<K, V>> {
        let record = Record::new(key, value, expires.at, weighed.bytes);
        match self.inner.core.index.slab().alloc(record, self.inner.node()) {
            Ok(record) => {
                self.inner.core.clock.store_live_end(&*record, expires);
                Ok(record)
            }
            Err(Record { key, value, .. }) => {
                self.inner.core.counters.rejected();
                Err(Rejected { reason: Some(no_memory(group)), key, value })
            }
        }
    }

    /// Checks that entries can be charged to this group.
    ///
    /// # Errors
    ///
    /// [`RejectReason::ForeignGroup`], which is counted as a rejection.
    #[inline]
    pub(super) fn admit(&self, group: &Memcg) -> Result<(), RejectReason> {
        let inner = &self.inner;
        if *group != inner.group && !group.is_in_tree_of(&inner.group) {
            inner.core.counters.rejected();
            return Err(RejectReason::ForeignGroup { group: group.try_path().unwrap_or_default() });
        }
        Ok(())
    }

    /// Charges the target's group for a record that was refused as not paid; evicts if there is not
    /// enough free memory. Returns the record, and the group that was charged if it is
    /// [another](Self::payer_instead): then the record's insert is for that group, as for a present
    /// key, since mostly a value is replaced.
    ///
    /// # Errors
    ///
    /// The key and the value, if the record was refused for another reason, or cannot be charged.
    pub(super) fn pay(
        &self,
        mut new: NewRecord<K, V>,
        refusal: Refusal,
        Target { group, tenant, .. }: Target<'_>,
        hash: u64,
        payer: Payer<'_>,
        is_reload: bool,
    ) -> Result<Paid<K, V>, Rejected<K, V>> {
        let reason = match refusal {
            Refusal::NotPaid => {
                let (mut charged, mut instead) = (self.charge(group, new.bytes, tenant), None);
                while charged.is_err() {
                    let refused = instead.as_ref().unwrap_or(group);
                    let next = self.payer_instead(refused, &new.record.key, hash, payer, is_reload);
                    let Some(next) = next else { break };
                    charged = self.charge(&next, new.bytes, self.inner.core.queues.find_tenant(&next));
                    instead = Some(next);
                }
                match charged {
                    Ok(()) => {
                        new.is_paid = true;
                        return Ok((new, instead));
                    }
                    Err(reason) => Some(reason),
                }
            }
            Refusal::FoundAnother => None,
            Refusal::NoMemory => Some(no_memory(group)),
        };
        if reason.is_some() {
            self.inner.core.counters.rejected();
        }
        Err(new.into_rejected(reason))
    }

    /// Calls the weigher, and the function for the cost of a miss, if there is one. To be called
    /// once for each value, without a lock; both are the user's code.
    pub(super) fn weigh(&self, key: &K, value: &V) -> Weighed {
        let (inner, core) = (&self.inner, &self.inner.core);
        let bytes = (inner.weigher)(key, value).saturating_add(ByteSize::new(Record::<K, V>::BYTES));
        let cost = core.functions.as_ref().and_then(|functions| functions.miss_cost.as_ref()).map_or_else(
            RelativeCost::default,
            |cost| {
                let relative = cost.relative(key, value, core.notifier.mean_cost());
                core.queues.note_mean_cost(cost.mean());
                relative
            },
        );
        Weighed { bytes: rounded(bytes), cost }
    }

    /// Inserts a record, if the current record of the key is the expected one. Returns the replaced
    /// value, and a removal to be finished after the guard is dropped.
    ///
    /// # Errors
    ///
    /// The record, for which no bytes are charged any more, and the reason.
    pub(super) fn try_insert<'c: 'g, 'g>(
        &'c self,
        NewRecord { record, cost, queue, replaces_known, floor, bytes, is_paid }: NewRecord<K, V>,
        hash: u64,
        Target { group, tenant, ghost }: Target<'_>,
        guard: &'g Guard,
        expect: &Expect<'_, K, V>,
    ) -> Result<Inserted<'c, 'g, K, V, S>, Refused<'g, K, V>> {
        let core: &Core<K, V, S> = &self.inner.core;
        record.set_odd(core.clear.is_odd(guard));
        let (node, expires) = (record.node(), record.deadline());
        let mut payment = Payment::new(group, if is_paid { bytes } else { ByteSize::ZERO });
        let chosen = || queue.unwrap_or_else(|| core.queues.initial_queue(group, tenant, node));
        // Allocates the list here, and not in `add` under the segment's lock. Omitted if the new
        // record replaces a known one, and for a tenant that has evicted records, whose lists
        // mostly exist: `add` allocates one that is missing.
        if !replaces_known && !matches!(expect, Expect::Same(_)) && tenant.is_none_or(Tenant::is_filling) {
            core.queues.prepare(chosen(), group, node);
        }
        let (mut refusal, mut another) = (Refusal::NoMemory, None);
        let mut cause = RemovalCause::Replaced;
        let mut removal = None;
        let is = |there: &Record<K, V>, new: &Record<K, V>| expect.is_key_of(there, &new.key);
        let hasher = |record: &Record<K, V>| core.hash(&record.key);
        let (mut released, mut kept) = (None, None);
        let put = core.index.insert(record, hash, guard, is, &hasher, |mut record, present| {
            let there = present.map(|(there, _)| there);
            // Decided once: time passes meanwhile.
            let is_live = there.is_some_and(|there| !core.is_expired(there));
            if !expect.allows(there, is_live) {
                (refusal, another) = (Refusal::FoundAnother, there);
                return Err(record);
            }
            if floor == Floor::OF_REPLACED {
                kept = Some(core.keep_deadline(there.filter(|_| is_live), &record));
            }
            if let (Some((there, node)), true, false) = (present, is_live, is_paid) {
                match self.overwrite((there, node), (hash, guard), (record, bytes), &mut payment) {
                    Ok(replaced) => {
                        removal = Some(replaced);
                        return Ok(Entry::Overwritten);
                    }
                    Err(back) => record = back,
                }
            }
            if !payment.raise_to(bytes, |group, more| self.charge_from_stock(group, more)) {
                refusal = Refusal::NotPaid;
                return Err(record);
            }
            record.set_queue(chosen());
            if let Some(tenant) = tenant {
                let ghosts = core.notifier.ghosts().known(guard);
                let lifespan = || core.clock.lifespan(record.deadline());
                if core.queues.ghost_hit(ghost, group, tenant, cost, ghosts, lifespan) {
                    record.set_queue(Queue::Main);
                }
            }
            // Before the record is in the index: a load in flight has read an older value, which
            // must not be inserted either if this record has left again by then.
            if !expect.is_load() && !is_live {
                core.inflight.stop_older(hash);
            }
            // May change the queue. `add` then allocates the list under the lock if it is missing,
            // as it does after a sweep of empty lists, or on a node that the group has not used.
            there.inspect(|there| core.queues.inherit(&record, there));
            // Before `add`, after which another thread may remove the record.
            if let Some(charge) = core.enter_value(&record) {
                released = Some(charge);
            }
            // Under the segment's lock, for `may_overwrite`; and only for a record that is paid, as
            // the drop of a cache with tenants is O(entries). Relaxed: see `has_one_group`. Stored
            // only once, as all inserts read the flag's cache line.
            if *group != self.inner.group && !core.has_tenants.load(Ordering::Relaxed) {
                core.has_tenants.store(true, Ordering::Relaxed);
            }
            core.queues.add(record, group, node, guard).map_err(|error| {
                let record = error.into_handle();
                payment.reduce_to(core.withdraw_value(&record, group));
                record
            })?;
            if let Some(there) = there {
                core.stop_reload(there, hash);
                if !is_live {
                    cause = core.cause_of_expired(there);
                }
                core.set_removed(there, cause);
                removal = core.remove_from_list(there);
            }
            payment.settle(ByteSize::ZERO, bytes);
            Ok(Entry::Added)
        });
        // The value's own charge, which ends now that the record is charged for the value. Not
        // `drop(released)`: mostly there is none, and the check is then inline.
        if let Some(charge) = released {
            drop(charge);
        }
        match put {
            Ok((there, entry)) => {
                drop(payment);
                core.counters.inserted(bytes);
                let new = Expires { at: expires, live_end: Deadline::NEVER, floor };
                core.register_deadline(kept.unwrap_or(new), hash);
                let Some(there) = there else { return Ok((None, None)) };
                if let Entry::Added = entry {
                    // A walk had isolated the replaced record, and may have put it back on its list
                    // before it left the index: see `Core::put_back`.
                    removal = removal.or_else(|| core.remove_from_list(there));
                }
                Ok(((cause == RemovalCause::Replaced).then_some(&there.value), removal))
            }
            Err(InsertError::Refused(record) | InsertError::NoMemory(record) | InsertError::Indexed(record)) => {
                Err((NewRecord { record, cost, queue, replaces_known, floor, bytes, is_paid: false }, refusal, another))
            }
        }
    }
}

/// The way in which a record entered its queue.
enum Entry {
    /// In the place of the present record (`overwrite`).
    Overwritten,
    /// As a new record of its queue; a present record is removed.
    Added,
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
