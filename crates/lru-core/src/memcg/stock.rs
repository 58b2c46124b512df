//! Bytes that are charged already and not used yet.
//!
//! Every charge ends at the root, so without a stock the root's counter would be the one cache line that all processors
//! write. With it a thread charges 32 KiB at once, and takes and puts back small amounts in a slot of its processor.
//!
//! Costs: up to 32 KiB a slot look used that are not; a charge that would fail empties them first. A group that charges only
//! now and then does not stock at all: the slot's bytes change hands only to a group that came twice in a row, so that a
//! thread which serves a thousand tenants in turn does not carry 32 KiB from one to the next each time.
//!
//! # Invariants
//!
//! 1. A slot's bytes are charged to its group and all ancestors.
//! 2. A slot holds nothing of a group whose [`offline`](Memcg::offline) has drained it: `put` asks for the state under the
//!    slot's lock, and the drain takes that lock after the state changed.
//! 3. A closed slot holds nothing.
//! 4. A slot holds nothing of a group that uses more than its `max`, or is below one that does: such charges are refused, and what is
//!    uncharged is subtracted. Only a `max` that is lowered leads there. `put` asks for it under the slot's lock, and
//!    [`set_max`](Memcg::set_max) drains, which takes that lock, after it has changed; `put_back` finds no slot of the group then.

use alloc::boxed::Box;
use core::ops::DerefMut;
use crossbeam_utils::CachePadded;

use crate::fallible::try_slice;
use crate::memcg::Memcg;
use crate::mutated;
use crate::sync::Mutex;

/// What is charged at once for the stock, and the most a slot holds.
#[doc(alias = "MEMCG_CHARGE_BATCH")]
pub(crate) const BATCH: u64 = 32 << 10;

/// One slot for each processor (more or less: two threads that meet in one lose nothing but speed).
pub(crate) struct Stock {
    slots: Box<[CachePadded<Mutex<Slot>>]>,
}

#[derive(Default)]
struct Slot {
    memcg: Option<Memcg>,
    /// 0 if there is no group.
    bytes: u64,
    /// Address of the group that last asked in vain; never followed.
    asked: usize,
    closed: bool,
}

/// What a group may do that found no stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// The bytes were there and are the caller's now.
    Taken,
    /// They were not, and the caller should charge a batch and [`put`](Stock::put) the rest.
    ChargeBatch,
    /// They were not, and the caller should charge what it needs.
    ChargeExactly,
}

impl Stock {
    /// None without memory.
    pub(crate) fn try_new(slots: usize) -> Option<Self> {
        Some(Self { slots: try_slice(slots, |_| CachePadded::new(Mutex::new(Slot::default())))? })
    }

    /// Takes `bytes` for `memcg` from the slot of this processor, or says what to do instead. Never waits.
    pub(crate) fn take(&self, memcg: &Memcg, bytes: u64) -> Take {
        let Some(mut slot) = self.here() else { return Take::ChargeExactly };
        let is_ours = slot.memcg.as_ref() == Some(memcg);
        if is_ours && slot.bytes >= bytes {
            slot.bytes -= bytes;
            return Take::Taken;
        }
        let came_twice = core::mem::replace(&mut slot.asked, memcg.addr()) == memcg.addr();
        if bytes < BATCH && (is_ours || came_twice) {
            Take::ChargeBatch
        } else {
            Take::ChargeExactly
        }
    }

    /// Takes `bytes` for `memcg` from the slot of this processor, if they are there; nobody remembers that they were asked for.
    pub(crate) fn take_if_there(&self, memcg: &Memcg, bytes: u64) -> bool {
        self.here().is_some_and(|mut slot| {
            let is_there = slot.bytes >= bytes && slot.memcg.as_ref() == Some(memcg);
            if is_there {
                slot.bytes -= bytes;
            }
            is_there
        })
    }

    /// Puts bytes that are charged to `memcg` into the slot of this processor, in place of what another group has there.
    /// False: they are still the caller's.
    pub(crate) fn put(&self, memcg: &Memcg, bytes: u64) -> bool {
        let Some(mut slot) = self.here() else { return false };
        // INVARIANT 2, 3, 4: asked under the slot's lock.
        if slot.closed || !(memcg.is_online() || mutated!("put for a dying group")) {
            return false;
        }
        if !(memcg.is_within_max() || mutated!("put above a lowered max")) {
            return false;
        }
        if slot.memcg.as_ref() == Some(memcg) {
            return slot.add(bytes);
        }
        let old = slot.replace(Some(memcg.clone()), bytes);
        drop(slot);
        give_back(old);
        true
    }

    /// Puts bytes that are charged to `memcg` back where it has a slot already. False: they are still the caller's.
    pub(crate) fn put_back(&self, memcg: &Memcg, bytes: u64) -> bool {
        // INVARIANT 2, 3, 4: a slot that holds the group is not closed, and not drained yet if the group is dying, or its max lowered.
        self.here().is_some_and(|mut slot| slot.memcg.as_ref() == Some(memcg) && slot.add(bytes))
    }

    /// The bytes of `memcg` and the groups below it in the slot of this processor; 0 also while another thread is in it.
    pub(crate) fn below(&self, memcg: &Memcg) -> u64 {
        let is_below = |slot: &Slot| slot.memcg.as_ref().is_some_and(|group| group.is_descendant_of(memcg));
        self.here().filter(|slot| is_below(slot)).map_or(0, |slot| slot.bytes)
    }

    /// Empties each slot whose group `drained` asks for. Waits for whoever is in a slot; nobody stays there.
    pub(crate) fn drain(&self, drained: impl Fn(&Memcg) -> bool) {
        for slot in &self.slots {
            let mut slot = slot.lock();
            if slot.memcg.as_ref().is_some_and(&drained) {
                let old = slot.replace(None, 0);
                drop(slot);
                give_back(old);
            }
        }
    }

    /// Empties the slots for good.
    pub(crate) fn close(&self) {
        for slot in &self.slots {
            slot.lock().closed = true;
        }
        self.drain(|_| true);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes allocated for the slots.
    pub(crate) fn allocated(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// The bytes in stock of `memcg` and the groups below it.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(crate) fn held(&self, memcg: &Memcg) -> u64 {
        let of = |slot: &Slot| slot.memcg.as_ref().is_some_and(|g| g.is_descendant_of(memcg)).then_some(slot.bytes);
        self.slots.iter().filter_map(|slot| of(&slot.lock())).sum()
    }

    /// Uncharges what slots hold below `memcg`, for a charge that it refused; their groups keep them, so that what is uncharged next comes back
    /// there and is there for the next charge.
    pub(crate) fn empty(&self, memcg: &Memcg) {
        for slot in &self.slots {
            let mut slot = slot.lock();
            let Some(group) = slot.memcg.as_ref().filter(|group| group.is_descendant_of(memcg)).cloned() else {
                continue;
            };
            let bytes = core::mem::take(&mut slot.bytes);
            drop(slot);
            give_back(Some((group, bytes)));
        }
    }

    /// The slot of this processor, if nobody is in it.
    fn here(&self) -> Option<impl DerefMut<Target = Slot> + '_> {
        // None, too, where there are no slots.
        let index = crate::topology::cpu::hint().checked_rem(self.slots.len())?;
        self.slots[index].try_lock()
    }
}

impl Slot {
    /// Adds to what is there, if that stays within a batch.
    fn add(&mut self, bytes: u64) -> bool {
        let fits = bytes <= BATCH - self.bytes;
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    fn replace(&mut self, memcg: Option<Memcg>, bytes: u64) -> Option<(Memcg, u64)> {
        let bytes = core::mem::replace(&mut self.bytes, bytes);
        core::mem::replace(&mut self.memcg, memcg).map(|memcg| (memcg, bytes))
    }
}

/// Uncharges what was in a slot, and drops its handle: not under the slot's lock.
fn give_back(old: Option<(Memcg, u64)>) {
    if let Some((memcg, bytes)) = old {
        memcg.sub_usage(bytes);
    }
}
