//! The policy of Linux to 5.12: every caller takes the whole debt and pays as much of it as it may
//! scan. The debt has no cap, so it can grow without bound ("wind-up", as of an integral
//! controller).
//!
//! The arithmetic must stay Linux's, to the object (S1): tests and benches compare with it.
//!
//! Numbers such as S1 are those of docs/INVARIANTS.md.

use super::{delta, scanned_by_linux, total_max, Ended, Plan, PlanInput, Policy};
use crate::deferred::Debt;

/// The policy of Linux to 5.12; a baseline for benches. The debt has no cap, and the next caller
/// pays it: half a cache in one call, or twice the cache at high pressure.
#[derive(Clone, Copy, Debug, Default)]
pub struct Windup;

impl Policy for Windup {
    fn pays(&self, _background: bool) -> bool {
        true
    }

    fn plan(&self, input: &PlanInput, debt: Debt) -> Plan {
        let delta = delta(input);
        let mut total = debt.owed.saturating_add(delta);
        if delta < input.freeable / 4 {
            total = total.min(input.freeable / 2);
        }
        let total = total.min(total_max(input.freeable));
        Plan { delta, total, scan_min: input.batch.min(input.freeable), rest: 0 }
    }

    fn commit(&self, input: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt {
        let scanned = scanned_by_linux(input, plan, scanned, ended);
        Debt { owed: debt.owed.saturating_add(plan.delta).saturating_sub(scanned), carry: 0 }
    }

    fn owed_max(&self, _freeable: u64) -> u64 {
        u64::MAX
    }
}
