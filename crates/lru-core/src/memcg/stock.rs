//! Bytes that are charged already and not used yet.
//!
//! Every charge ends at the root, so without a stock the root's counter would be the one cache line
//! that all processors write. With a stock a thread charges 32 KiB at once, and takes and puts back
//! small amounts in a slot of its processor.
//!
//! Costs: a slot holds up to 32 KiB that look used and are not; a charge that would fail empties
//! the slots first. A group that charges only now and then stocks nothing: a slot goes over only to
//! a group that asked twice in a row, so that a thread which serves a thousand tenants in turn does
//! not carry 32 KiB from one to the next each time.
//!
//! The stock itself counts nothing. Its caller ([`charge`](super::charge)) uncharges what comes out
//! of a slot, after the slot's lock has been released.
//!
//! # Invariants
//!
//! 1. A slot's bytes are charged to its group and all ancestors.
//! 2. A slot holds nothing of a group whose [`offline`](crate::Memcg::offline) has drained it:
//!    `put` reads the state under the slot's lock, and the drain takes that lock after the state
//!    changed.
//! 3. A closed slot holds nothing.
//! 4. A slot holds nothing of a group that uses more than its `max`, or is below one that does:
//!    such charges are refused, and what is uncharged is subtracted. Only a `max` that is lowered
//!    leads there. `put` compares them under the slot's lock, and
//!    [`set_max`](crate::Memcg::set_max) drains, which takes that lock, after it has changed;
//!    `put_back` finds no slot of the group then.

use alloc::boxed::Box;
use core::ops::DerefMut;
use crossbeam_utils::CachePadded;

use super::group_handle::GroupHandle;
use crate::fallible::try_slice;
use crate::mutated;
use crate::sync::Mutex;

/// What is charged at once for the stock, and the most a slot holds.
#[doc(alias = "MEMCG_CHARGE_BATCH")]
pub(super) const BATCH: u64 = 32 << 10;

/// A slot for each processor (more or less: two threads that meet in one lose nothing but speed).
#[doc(alias = "memcg_stock_pcp")]
pub(super) struct Stock<G> {
    slots: Box<[CachePadded<Mutex<StockSlot<G>>>]>,
}

/// The stock of one processor.
struct StockSlot<G> {
    group: Option<G>,
    /// 0 if there is no group.
    bytes: u64,
    /// Address of the group that last asked in vain; never followed.
    asked: usize,
    closed: bool,
}

/// What a group may do that found no stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// The bytes were there and are the caller's now.
    Taken,
    /// The bytes were not there, and the caller should charge a batch and [`put`](Stock::put) the
    /// rest.
    ChargeBatch,
    /// The bytes were not there, and the caller should charge what it needs.
    ChargeExactly,
}

/// A group, and its bytes that came out of a slot. The receiver uncharges them.
pub(super) type Drained<G> = (G, u64);

impl<G: GroupHandle> Stock<G> {
    /// None without memory.
    pub(super) fn try_new(slots: usize) -> Option<Self> {
        Some(Self { slots: try_slice(slots, |_| CachePadded::new(Mutex::new(StockSlot::new())))? })
    }

    /// Takes `bytes` for `group` from the slot of this processor, or says what to do instead. Never
    /// waits.
    pub(super) fn take(&self, group: &G, bytes: u64) -> Take {
        let Some(mut slot) = self.here() else { return Take::ChargeExactly };
        let is_ours = slot.group.as_ref() == Some(group);
        if is_ours && slot.bytes >= bytes {
            slot.bytes -= bytes;
            return Take::Taken;
        }
        let came_twice = core::mem::replace(&mut slot.asked, group.addr()) == group.addr();
        if bytes < BATCH && (is_ours || came_twice) {
            Take::ChargeBatch
        } else {
            Take::ChargeExactly
        }
    }

    /// Takes `bytes` for `group` from the slot of this processor, if they are there. In contrast to
    /// [`take`](Self::take) the slot does not record that the group asked.
    pub(super) fn take_if_there(&self, group: &G, bytes: u64) -> bool {
        self.here().is_some_and(|mut slot| {
            let is_there = slot.bytes >= bytes && slot.group.as_ref() == Some(group);
            if is_there {
                slot.bytes -= bytes;
            }
            is_there
        })
    }

    /// Puts bytes that are charged to `group` into the slot of this processor, in place of what
    /// another group has there, which is returned. An error: the bytes are still the caller's.
    ///
    /// `is_within_max` is called under the slot's lock.
    pub(super) fn put(
        &self,
        group: &G,
        bytes: u64,
        is_within_max: impl FnOnce() -> bool,
    ) -> Result<Option<Drained<G>>, NotStocked> {
        let Some(mut slot) = self.here() else { return Err(NotStocked) };
        // INVARIANT 2, 3, 4: compared under the slot's lock.
        if slot.closed || !(group.is_online() || mutated!("put for a dying group")) {
            return Err(NotStocked);
        }
        if !(is_within_max() || mutated!("put above a lowered max")) {
            return Err(NotStocked);
        }
        if slot.group.as_ref() == Some(group) {
            return if slot.add(bytes) { Ok(None) } else { Err(NotStocked) };
        }
        Ok(slot.replace(Some(group.clone()), bytes))
    }

    /// Puts bytes that are charged to `group` back where the group has a slot already. False: they
    /// are still the caller's.
    pub(super) fn put_back(&self, group: &G, bytes: u64) -> bool {
        // INVARIANT 2, 3, 4: a slot that holds the group is not closed, and not drained yet if the
        // group is dying, or its max lowered.
        self.here().is_some_and(|mut slot| slot.group.as_ref() == Some(group) && slot.add(bytes))
    }

    /// The bytes in the slot of this processor, if `selected` returns true for its group; 0 also
    /// while another thread is in the slot.
    pub(super) fn bytes_here(&self, selected: impl Fn(&G) -> bool) -> u64 {
        self.here().filter(|slot| slot.group.as_ref().is_some_and(selected)).map_or(0, |slot| slot.bytes)
    }

    /// Empties each slot for whose group `selected` returns true, one with each step of the
    /// iterator. Waits for the thread that is in a slot; none stays there.
    pub(super) fn drain<'a>(&'a self, selected: impl Fn(&G) -> bool + 'a) -> impl Iterator<Item = Drained<G>> + 'a {
        self.slots.iter().filter_map(move |slot| {
            let mut slot = slot.lock();
            slot.group.as_ref().is_some_and(&selected).then(|| slot.replace(None, 0)).flatten()
        })
    }

    /// As [`drain`](Self::drain), for a charge that the group of `selected` refused: the groups
    /// keep their slots, so that the bytes they uncharge next are there for their next charge.
    pub(super) fn drain_bytes<'a>(
        &'a self,
        selected: impl Fn(&G) -> bool + 'a,
    ) -> impl Iterator<Item = Drained<G>> + 'a {
        self.slots.iter().filter_map(move |slot| {
            let mut slot = slot.lock();
            let group = slot.group.as_ref().filter(|group| selected(group)).cloned()?;
            Some((group, core::mem::take(&mut slot.bytes)))
        })
    }

    /// Closes all slots: nothing is put into them any more. A drain must follow.
    pub(super) fn close(&self) {
        for slot in &self.slots {
            slot.lock().closed = true;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes allocated for the slots.
    pub(super) fn allocated(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// The bytes in all slots of groups for which `selected` returns true.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn bytes(&self, selected: impl Fn(&G) -> bool) -> u64 {
        let of = |slot: &StockSlot<G>| slot.group.as_ref().is_some_and(&selected).then_some(slot.bytes);
        self.slots.iter().filter_map(|slot| of(&slot.lock())).sum()
    }

    /// The slot of this processor, if no other thread is in it.
    fn here(&self) -> Option<impl DerefMut<Target = StockSlot<G>> + '_> {
        // None, too, where there are no slots.
        let index = lowwater_base::cpu::hint().checked_rem(self.slots.len())?;
        self.slots[index].try_lock()
    }
}

/// Bytes were not put into a slot.
#[derive(Debug)]
pub(super) struct NotStocked;

impl<G> StockSlot<G> {
    const fn new() -> Self {
        Self { group: None, bytes: 0, asked: 0, closed: false }
    }

    /// Adds to what is there, if that stays within a batch.
    fn add(&mut self, bytes: u64) -> bool {
        let fits = bytes <= BATCH - self.bytes;
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    fn replace(&mut self, group: Option<G>, bytes: u64) -> Option<Drained<G>> {
        let bytes = core::mem::replace(&mut self.bytes, bytes);
        core::mem::replace(&mut self.group, group).map(|group| (group, bytes))
    }
}
