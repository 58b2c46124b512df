//! Room for what is new.
//!
//! An insert where memory is nearly used up lets go of a few old entries of its own group, in place of what it brings: [`BATCH`] of them for
//! as many inserts, as bytes that are given back stay in the processor's stock for the next. So a cache that is full stays full at a
//! steady pace, and the reclaimer sleeps.
//!
//! Only a group that has nearly everything below the limit in question pays so for itself; otherwise those who are to give are found by
//! the registry's rules (protection, shares, turns), in [`Runtime::charge`](crate::Runtime::charge).

use std::hash::{BuildHasher, Hash};
use std::time::Instant;

use lowwater_lru_core::{Bytes, Memcg, NodeId};

use super::error::Reason;
use super::Cache;

/// Entries that one insert lets go, at most: it looks at no more than [`LOOKS`] times as many.
const BATCH: u64 = 8;
const LOOKS: u32 = 4;
/// Larger entries are not paid for so: what a batch of them gives back would not fit in the stock, and making one costs more than its
/// part of a pass.
const SMALL_MAX: Bytes = Bytes::kib(4);
/// Of what is used below a limit, the part that others may have while a group pays for itself.
const OTHERS_PARTS: u64 = 8;
/// What may wait for readers before inserts help: so much, or this part of the budget.
const WAITING_MIN: Bytes = Bytes::mib(4);
const WAITING_PARTS: u64 = 16;
/// What may wait for them at all, in terms of that.
const WAITING_TIMES: u64 = 4;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Takes bytes for an entry, and frees some if they are not there.
    pub(super) fn charge(&self, group: &Memcg, bytes: Bytes, node: NodeId) -> Result<(), Reason> {
        if self.inner.core.index.slab().waiting() > self.waiting_low() {
            self.help_readers(group, bytes)?;
        }
        if group.try_charge_from_stock(bytes) {
            return Ok(());
        }
        if bytes <= SMALL_MAX && self.pays_for_itself(group) {
            for _ in 0..LOOKS {
                let (scanned, freed) = self.inner.core.evict(group, node, BATCH);
                if freed != 0 && group.try_charge_from_stock(bytes) {
                    return Ok(());
                }
                if scanned == 0 || freed != 0 {
                    break;
                }
            }
        }
        self.inner.runtime.charge(group, bytes).map_err(|over| {
            let (group, max) = (over.memcg.path(), over.memcg.max());
            match bytes > max {
                true => Reason::TooLarge { bytes, group, max },
                false => Reason::NoRoom { bytes, group },
            }
        })
    }

    /// Is memory nearly used up, and by this group?
    fn pays_for_itself(&self, group: &Memcg) -> bool {
        let usage = group.usage();
        let marks = self.inner.runtime.reclaimer().watermarks();
        let mut above = Some(group);
        while let Some(limited) = above {
            let (all, max) = (limited.usage(), limited.max());
            // A stock of 32 KiB earlier than the reclaimer, which so has nothing to do.
            if marks.is_low(all.saturating_add(Bytes::kib(32)), max) {
                let is_alone = all.saturating_sub(usage).get() <= all.get() / OTHERS_PARTS;
                let protected = || {
                    let protection = group.protection(limited);
                    usage <= protection.low.max(protection.min)
                };
                return is_alone && (limited == group || !protected());
            }
            above = limited.parent();
        }
        false
    }

    /// What may wait for readers before inserts help.
    fn waiting_low(&self) -> Bytes {
        match self.inner.runtime.root().max() {
            Bytes::MAX => Bytes::MAX,
            budget => WAITING_MIN.max(Bytes::new(budget.get() / WAITING_PARTS)),
        }
    }

    /// Lets readers run, and frees what they have let go of. Where that does not help, and much waits, this goes on for as long as a charge
    /// may take.
    #[cold]
    fn help_readers(&self, group: &Memcg, bytes: Bytes) -> Result<(), Reason> {
        let most = Bytes::new(self.waiting_low().get().saturating_mul(WAITING_TIMES));
        let deadline = Instant::now() + self.inner.runtime.direct_time_max();
        while self.collect() > self.waiting_low() {
            std::thread::yield_now();
            if self.inner.core.index.slab().waiting() <= most {
                break;
            }
            if Instant::now() >= deadline {
                return Err(Reason::NoRoom { bytes, group: group.path() });
            }
        }
        Ok(())
    }
}
