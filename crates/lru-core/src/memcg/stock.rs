//! Stock: bytes that are charged already and not used yet.
//!
//! Every charge is counted up to the root, so without a stock the root's counter would be one cache
//! line that all processors write. With a stock, a thread charges 32 KiB at once, and takes and
//! returns small amounts in a slot of its processor.
//!
//! Costs: a slot holds up to 32 KiB that count as used but are not; a charge that would fail drains
//! the slots first. A group that charges only rarely stocks nothing: a slot changes over only to a
//! group that tried twice in a row, so that a thread that serves a thousand tenants in turn does
//! not move 32 KiB from one to the next each time.
//!
//! The stock itself changes no counter. Its caller ([`drain`](super::drain)) uncharges the bytes
//! that come out of a slot, after the slot's lock has been released. `mutated!("name")` leaves one
//! check out in a model check (docs/ORDERINGS.md).
//!
//! # Invariants
//!
//! 1. A slot's bytes are charged to its group and all ancestors.
//! 2. A slot holds nothing of a group whose [`offline`](crate::Memcg::offline) has drained it:
//!    `put` reads the state under the slot's lock, and the drain takes that lock after the state
//!    changed.
//! 3. A closed slot holds nothing.
//! 4. A slot holds nothing of a group that uses more than its `max`, or is below such a group:
//!    charges to it are refused, and uncharged bytes leave the counters at once. Only a lowered
//!    `max` leads to this state. `put` compares usage and `max` under the slot's lock, and
//!    [`set_max`](crate::Memcg::set_max) drains, taking that lock, after the change; afterwards
//!    `put_back` finds no slot of the group.

use alloc::boxed::Box;
use core::ops::DerefMut;
use crossbeam_utils::CachePadded;

use super::group_handle::GroupHandle;
use crate::fallible::try_slice;
use crate::mutated;
use crate::sync::Mutex;

/// The bytes that are charged at once for the stock, and the capacity of a slot. The documentation
/// of [`usage`](crate::Memcg::usage) and of [`MemcgTree::new`](crate::MemcgTree::new) states it.
#[doc(alias = "MEMCG_CHARGE_BATCH")]
pub(super) const BATCH: u64 = 32 << 10;

/// A slot for each processor. Approximately: two threads that use one slot lose only speed.
#[doc(alias = "memcg_stock_pcp")]
pub(super) struct Stock<G> {
    slots: Box<[CachePadded<Mutex<StockSlot<G>>>]>,
}

/// The stock of one processor.
struct StockSlot<G> {
    group: Option<G>,
    /// The bytes in stock, at most [`BATCH`]; 0 if there is no group.
    bytes: u64,
    /// Address of the group that last found no stock; never dereferenced.
    asked: usize,
    /// Whether nothing may be put in any more: see [`Stock::close`].
    closed: bool,
}

/// The result of taking bytes from the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// The bytes were in stock, and belong to the caller now.
    Taken,
    /// The bytes were not in stock, and the caller should charge a batch and [`put`](Stock::put)
    /// the rest.
    ChargeBatch,
    /// The bytes were not in stock, and the caller should charge exactly the bytes it needs.
    ChargeExactly,
}

/// A group and the bytes that came out of its slot. The receiver uncharges them.
pub(super) type Drained<G> = (G, u64);

impl<G: GroupHandle> Stock<G> {
    /// Creates a stock of `slots` slots; `None` if there is no memory.
    pub(super) fn try_new(slots: usize) -> Option<Self> {
        Some(Self { slots: try_slice(slots, |_| CachePadded::new(Mutex::new(StockSlot::new())))? })
    }

    /// Takes `bytes` for `group` from the slot of this processor, or returns how to charge them
    /// instead. Never blocks.
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

    /// Takes `bytes` for `group` from the slot of this processor if it has them. Unlike
    /// [`take`](Self::take), does not record in the slot that the group tried.
    pub(super) fn take_if_there(&self, group: &G, bytes: u64) -> bool {
        self.here().is_some_and(|mut slot| {
            let is_there = slot.bytes >= bytes && slot.group.as_ref() == Some(group);
            if is_there {
                slot.bytes -= bytes;
            }
            is_there
        })
    }

    /// Puts bytes that are charged to `group` into the slot of this processor. If another group had
    /// the slot, that group and its bytes are returned. On an error `bytes` still belong to the
    /// caller.
    ///
    /// `is_within_max`, called under the slot's lock, returns whether the usage of the group and of
    /// each ancestor is within its `max` (invariant 4).
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

    /// Puts bytes that are charged to `group` into the slot of this processor if the slot is the
    /// group's. Returns false if the bytes still belong to the caller.
    ///
    /// `is_within_high` returns whether the usage of the group and of each ancestor is within its
    /// `high`: above it the stock must run dry, as a charge from stock does not report it.
    pub(super) fn put_back(&self, group: &G, bytes: u64, is_within_high: impl FnOnce() -> bool) -> bool {
        // INVARIANT 2, 3, 4: a slot that holds the group is not closed, and not drained yet if the
        // group is dying, or its max lowered.
        let mut here = self.here().filter(|slot| slot.group.as_ref() == Some(group));
        here.as_mut().is_some_and(|slot| is_within_high() && slot.add(bytes))
    }

    /// Returns the bytes in the slot of this processor, if `selected` returns true for its group; 0
    /// also while another thread uses the slot.
    pub(super) fn bytes_here(&self, selected: impl Fn(&G) -> bool) -> u64 {
        self.here().filter(|slot| slot.group.as_ref().is_some_and(selected)).map_or(0, |slot| slot.bytes)
    }

    /// Empties each slot for whose group `selected` returns true, one per step of the iterator.
    /// Waits for a thread that uses a slot, which is for a short time only.
    pub(super) fn drain<'a>(&'a self, selected: impl Fn(&G) -> bool + 'a) -> impl Iterator<Item = Drained<G>> + 'a {
        self.slots.iter().filter_map(move |slot| {
            let mut slot = slot.lock();
            slot.group.as_ref().is_some_and(&selected).then(|| slot.replace(None, 0)).flatten()
        })
    }

    /// As [`drain`](Self::drain), but the groups keep their slots, so that the bytes they uncharge
    /// next are in stock for their next charge. Called when a limit has refused a charge.
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

    /// Closes all slots: nothing is put into them any more. The caller must drain afterwards.
    pub(super) fn close(&self) {
        for slot in &self.slots {
            slot.lock().closed = true;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the bytes allocated for the slots.
    pub(super) fn allocated(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Returns the bytes in all slots of groups for which `selected` returns true.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn bytes(&self, selected: impl Fn(&G) -> bool) -> u64 {
        let of = |slot: &StockSlot<G>| slot.group.as_ref().is_some_and(&selected).then_some(slot.bytes);
        self.slots.iter().filter_map(|slot| of(&slot.lock())).sum()
    }

    /// Returns the slot of this processor, locked; `None` if another thread uses it.
    fn here(&self) -> Option<impl DerefMut<Target = StockSlot<G>> + '_> {
        let hint = lowwater_base::cpu::hint();
        // Mostly a hint is the number of a slot, and needs no division. `None`, too, if there are
        // no slots.
        let slot = self.slots.get(hint).or_else(|| self.slots.get(hint.checked_rem(self.slots.len())?));
        slot?.try_lock()
    }
}

/// The bytes were not put into a slot.
#[derive(Debug)]
pub(super) struct NotStocked;

impl<G> StockSlot<G> {
    const fn new() -> Self {
        Self { group: None, bytes: 0, asked: 0, closed: false }
    }

    /// Adds `bytes` if the sum stays within a batch.
    fn add(&mut self, bytes: u64) -> bool {
        let fits = bytes <= BATCH - self.bytes;
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    /// Gives the slot to another group, with these bytes. Returns the previous group and its bytes.
    fn replace(&mut self, group: Option<G>, bytes: u64) -> Option<Drained<G>> {
        let bytes = core::mem::replace(&mut self.bytes, bytes);
        core::mem::replace(&mut self.group, group).map(|group| (group, bytes))
    }
}
