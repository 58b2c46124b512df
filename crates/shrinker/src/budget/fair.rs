//! Ours: everybody ages caches at the same rate, and only the background pays debts.
//!
//! Three differences from Linux:
//!
//! 1. What is owed is taken by background threads only. A caller in the foreground scans its own part, whatever others left
//!    (S23), so its latency has no tail made of other people's debts.
//! 2. Aging is carried exactly, to a 65,536th of an object, rounded up. A cache of `f` objects is scanned within
//!    `ceil(batch * seeks << priority / (4 * f))` passes at constant priority (S26), the smallest ones too. Linux rounds the
//!    part of a small cache down to nothing, pass after pass.
//! 3. A call is worth making from 1/32 of a cache on, not only from a whole batch on. With a thousand caches of a hundred
//!    objects, a batch of 128 would mean all of one cache or none; this way each gives three.
//!
//! What is owed never stands above what exists: a debt that nothing could pay is no debt. And it does not wait for the next
//! pressure: the background is told of it, at once where it is large, and pays it whole, at its own pace.

use super::{total_max, Ended, Kick, Plan, PlanInput, Policy};
use crate::deferred::{Debt, FRACTION_BITS};

/// Fraction of a cache from which on a scan is worth the call, as a divisor. Priority 6 (1/32 at `seeks` 2) is where
/// pressure begins to be felt; below it, turns add up until they come to this.
const CACHE_PARTS: u64 = 32;

/// A debt is large from this part of the cache on, as a divisor; not below a batch, ..
const LARGE_PARTS: u64 = 8;
/// .. and in any case from so many batches on.
const LARGE_BATCHES: u64 = 32;

/// The default policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair;

impl Policy for Fair {
    fn pays(&self, background: bool) -> bool {
        background
    }

    fn plan(&self, ask: &PlanInput, debt: Debt) -> Plan {
        let delta_fixed = delta_fixed(ask);
        let own_max = u128::from(total_max(ask.freeable)) << FRACTION_BITS;
        let own_fixed = (u128::from(debt.carry) + delta_fixed).min(own_max);
        let own = whole(own_fixed);
        // A twelfth of the debt at the lightest pressure, all of it at the highest; rounded up, so that it ends.
        let share = debt.owed.div_ceil(u64::from(ask.priority.max(1)));
        let total = own.saturating_add(share).min(total_max(ask.freeable));
        let scan_min = ask.batch.min(ask.freeable.div_ceil(CACHE_PARTS)).max(1);
        Plan { delta: own, total, scan_min, rest: (own_fixed % (1 << FRACTION_BITS)) as u64 }
    }

    fn commit(&self, ask: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt {
        // Debts first: the rest of our own part is carried, so nothing is lost, and the last objects owed are paid as well.
        let share = plan.total.saturating_sub(plan.delta);
        let over = scanned.saturating_sub(plan.total);
        let owed = debt.owed.saturating_sub(scanned.min(share).saturating_add(over));
        let left = plan.delta.saturating_sub(scanned.saturating_sub(share));
        match ended {
            Ended::Finished if left < plan.scan_min => Debt { owed, carry: fixed(left, plan.rest) },
            // It gave all that was there before the plan was through; what comes next is new.
            Ended::Finished => Debt { owed, carry: 0 },
            // One batch is kept, so that the next pass begins here; more would be wound up and come out at once.
            Ended::Cut => Debt { owed, carry: fixed(left.min(ask.batch), plan.rest) },
            Ended::Stopped | Ended::Deferred => {
                Debt { owed: owed.saturating_add(left).min(self.owed_max(ask.freeable)), carry: plan.rest }
            }
        }
    }

    fn owed_max(&self, freeable: u64) -> u64 {
        freeable
    }

    fn kick(&self, ask: &PlanInput, owed: u64) -> Kick {
        if owed == 0 {
            Kick::Never
        } else if owed >= (ask.freeable / LARGE_PARTS).clamp(ask.batch, ask.batch.saturating_mul(LARGE_BATCHES)) {
            Kick::Now
        } else {
            Kick::Soon
        }
    }
}

/// This pass's part in 65,536ths, rounded up.
fn delta_fixed(ask: &PlanInput) -> u128 {
    // The same in 64 bits, for whatever fits: 128 of them take a call of a division that most caches do not need.
    if ask.seeks > 0 && ask.freeable <= u64::MAX >> (FRACTION_BITS + 2) {
        let parts = u64::from(ask.seeks) << ask.priority.min(super::PRIORITY_DEFAULT);
        return u128::from((ask.freeable << (FRACTION_BITS + 2)).div_ceil(parts));
    }
    let freeable = u128::from(ask.freeable) << FRACTION_BITS;
    if ask.seeks == 0 {
        return freeable / 2;
    }
    // 64 + 16 + 2 bits above, 32 + 12 below.
    (freeable * 4).div_ceil(u128::from(ask.seeks) << ask.priority.min(super::PRIORITY_DEFAULT))
}

fn whole(fixed: u128) -> u64 {
    u64::try_from(fixed >> FRACTION_BITS).unwrap_or(u64::MAX)
}

/// `objects` and a fraction, stopping at the largest number.
fn fixed(objects: u64, rest: u64) -> u64 {
    u64::try_from((u128::from(objects) << FRACTION_BITS) + u128::from(rest)).unwrap_or(u64::MAX)
}
