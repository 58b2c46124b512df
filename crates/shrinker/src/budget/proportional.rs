//! The policy of Linux since 5.13: every caller takes the debt, and pays `debt >> priority` of it.

use super::{delta, total_max, Ended, Plan, PlanInput, Policy};
use crate::deferred::Debt;

/// The policy of Linux since 5.13; a baseline for benches. With `seeks` of 2, caches
/// below `(batch / 4) << priority` objects are never scanned at constant priority, and a caller's
/// work grows with the debts that other callers left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proportional;

impl Policy for Proportional {
    fn pays(&self, _background: bool) -> bool {
        true
    }

    fn plan(&self, ask: &PlanInput, debt: Debt) -> Plan {
        let delta = delta(ask);
        let part = debt.owed.checked_shr(u32::from(ask.priority)).unwrap_or(0);
        let total = part.saturating_add(delta).min(total_max(ask.freeable));
        Plan { delta, total, scan_min: ask.batch.min(ask.freeable), rest: 0 }
    }

    fn commit(&self, ask: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, _ended: Ended) -> Debt {
        let owed = debt.owed.saturating_add(plan.delta).saturating_sub(scanned).min(total_max(ask.freeable));
        Debt { owed, carry: 0 }
    }

    fn owed_max(&self, _freeable: u64) -> u64 {
        u64::MAX
    }
}
