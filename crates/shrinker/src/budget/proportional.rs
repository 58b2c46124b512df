//! The policy of Linux since 5.13: every caller takes the debt, and pays `debt >> priority` of it.
//!
//! The arithmetic must stay Linux's, to the object (S1): tests and benches compare with it.
//!
//! Numbers such as S1 are those of docs/INVARIANTS.md.

use super::{delta, scanned_by_linux, total_max, Ended, Plan, PlanInput, Policy};
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

    fn plan(&self, input: &PlanInput, debt: Debt) -> Plan {
        let delta = delta(input);
        let part = debt.owed.checked_shr(u32::from(input.priority)).unwrap_or(0);
        let total = part.saturating_add(delta).min(total_max(input.freeable));
        Plan { delta, total, scan_min: input.batch.min(input.freeable), rest: 0 }
    }

    fn commit(&self, input: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt {
        let scanned = scanned_by_linux(input, plan, scanned, ended);
        let owed = debt.owed.saturating_add(plan.delta).saturating_sub(scanned).min(total_max(input.freeable));
        Debt { owed, carry: 0 }
    }

    fn owed_max(&self, _freeable: u64) -> u64 {
        u64::MAX
    }
}
