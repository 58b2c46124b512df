//! The default policy: all callers age caches at the same rate, and only the background pays debts.
//!
//! Three differences from Linux:
//!
//! 1. Owed objects are taken by background threads only. A foreground caller scans its own part,
//!    whatever debts exist (S23), so debts of other threads add nothing to its tail latency.
//! 2. Aging is carried exactly, to a 65,536th of an object, rounded up. A cache of `f` objects is
//!    scanned within `ceil((batch * seeks << priority) / (4 * f))` passes at constant priority
//!    (S26), even the smallest cache. Linux rounds the part of a small cache down to zero in every
//!    pass.
//! 3. A shrinker is called once 1/32 of its cache is to be scanned, not only once a whole batch is.
//!    A cache of a hundred objects gives up four at a time, and not all of them after many passes
//!    in which it gave up none.
//!
//! Owed objects never exceed the existing objects, because a larger debt could never be paid. And a
//! debt does not wait for the next pressure: the background is notified of it, at once if it is
//! large, and pays all of it at its own pace.
//!
//! Numbers such as S23 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that a foreground call pays no debt, and that the smallest cache is reached
//! within the stated passes.

use super::{total_max, Ended, Kick, Plan, PlanInput, Policy};
use crate::deferred::{Debt, FRACTION_BITS};

/// The smallest part of a cache that is worth a call, as a divisor. At priority 6 one pass takes
/// 1/32 of a cache at `seeks` 2; at lighter pressure the parts of several passes add up to it.
const CACHE_PARTS: u64 = 32;

/// A debt is large if it is at least this part of the cache, as a divisor, and at least a batch. A
/// smaller one waits for others before it wakes a thread (`SOON` of `reclaimer/wake.rs`).
const LARGE_PARTS: u64 = 8;
/// A debt of at least this many batches is large, whatever the size of the cache.
const LARGE_BATCHES: u64 = 32;

/// The policy by which foreground calls scan a bounded part of each cache and leave debts to the
/// background, which pays a share of each debt in every pass. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair;

impl Policy for Fair {
    fn pays(&self, background: bool) -> bool {
        background
    }

    fn plan(&self, input: &PlanInput, debt: Debt) -> Plan {
        let delta_fixed = delta_fixed(input);
        let own_max = u128::from(total_max(input.freeable)) << FRACTION_BITS;
        let own_fixed = (u128::from(debt.carry) + delta_fixed).min(own_max);
        let own = whole(own_fixed);
        let total = own.saturating_add(share(input, debt)).min(total_max(input.freeable));
        let scan_min = input.batch.min(input.freeable.div_ceil(CACHE_PARTS)).max(1);
        Plan { delta: own, total, scan_min, rest: (own_fixed % (1 << FRACTION_BITS)) as u64 }
    }

    fn commit(&self, input: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt {
        // The share of the debt is paid first, so that the last owed objects are paid too, even
        // where the own part alone reaches the bound of the total. The rest of the own part is
        // carried if it is small.
        let share = share(input, debt);
        let own = scanned.saturating_sub(share);
        let over = own.saturating_sub(plan.delta);
        let owed = debt.owed.saturating_sub(scanned.min(share).saturating_add(over));
        let left = plan.delta.saturating_sub(own);
        match ended {
            Ended::Finished if left < plan.scan_min => Debt { owed, carry: fixed(left, plan.rest) },
            // The cache ran empty before the plan was done, or the total was cut off at twice the
            // objects; later objects start at zero.
            Ended::Finished => Debt { owed, carry: 0 },
            // One batch is kept, so that the next pass resumes here; a larger remainder would
            // accumulate and be scanned at once.
            Ended::Cut => Debt { owed, carry: fixed(left.min(input.batch), plan.rest) },
            Ended::Stopped | Ended::Deferred => {
                Debt { owed: owed.saturating_add(left).min(self.owed_max(input.freeable)), carry: plan.rest }
            }
        }
    }

    fn owed_max(&self, freeable: u64) -> u64 {
        freeable
    }

    fn kick(&self, input: &PlanInput, owed: u64) -> Kick {
        if owed == 0 {
            Kick::Never
        } else if owed >= (input.freeable / LARGE_PARTS).clamp(input.batch, input.batch.saturating_mul(LARGE_BATCHES)) {
            Kick::Now
        } else {
            Kick::Soon
        }
    }
}

/// Returns the owed objects that a pass pays: a twelfth of the debt at the lightest pressure, all
/// of it at the priorities 1 and 0; rounded up, so that every debt is paid eventually.
fn share(input: &PlanInput, debt: Debt) -> u64 {
    debt.owed.div_ceil(u64::from(input.priority.max(1)))
}

/// Returns this pass's part of the cache in 65,536ths of an object, rounded up.
fn delta_fixed(input: &PlanInput) -> u128 {
    // The same in 64 bits where the values fit: a 128-bit division is a function call, which most
    // caches do not need.
    if input.seeks > 0 && input.freeable <= u64::MAX >> (FRACTION_BITS + 2) {
        let parts = u64::from(input.seeks) << input.priority.min(super::PRIORITY_DEFAULT);
        return u128::from((input.freeable << (FRACTION_BITS + 2)).div_ceil(parts));
    }
    let freeable = u128::from(input.freeable) << FRACTION_BITS;
    if input.seeks == 0 {
        return freeable / 2;
    }
    // The dividend has at most 64 + 16 + 2 bits, the divisor 32 + 12.
    (freeable * 4).div_ceil(u128::from(input.seeks) << input.priority.min(super::PRIORITY_DEFAULT))
}

fn whole(fixed: u128) -> u64 {
    u64::try_from(fixed >> FRACTION_BITS).unwrap_or(u64::MAX)
}

/// Returns `objects` and a fraction as one fixed-point number, saturating.
fn fixed(objects: u64, rest: u64) -> u64 {
    u64::try_from((u128::from(objects) << FRACTION_BITS) + u128::from(rest)).unwrap_or(u64::MAX)
}
