//! The policy of Linux to 5.12: every caller takes the whole debt, and scans up to half the cache
//! for it.

use super::{delta, total_max, Ended, Plan, PlanInput, Policy};
use crate::deferred::Debt;

/// The policy of Linux to 5.12; a baseline for benches. The debt has no cap, and a single caller
/// pays all of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Windup;

impl Policy for Windup {
    fn pays(&self, _background: bool) -> bool {
        true
    }

    fn plan(&self, ask: &PlanInput, debt: Debt) -> Plan {
        let delta = delta(ask);
        let mut total = debt.owed.saturating_add(delta);
        if delta < ask.freeable / 4 {
            total = total.min(ask.freeable / 2);
        }
        let total = total.min(total_max(ask.freeable));
        Plan { delta, total, scan_min: ask.batch.min(ask.freeable), rest: 0 }
    }

    fn commit(&self, _ask: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, _ended: Ended) -> Debt {
        Debt { owed: debt.owed.saturating_add(plan.delta).saturating_sub(scanned), carry: 0 }
    }

    fn owed_max(&self, _freeable: u64) -> u64 {
        u64::MAX
    }
}
