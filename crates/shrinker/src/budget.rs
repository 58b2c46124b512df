//! How many objects to scan: arithmetic only, nothing here waits, counts or calls.
//!
//! A pass asks each live shrinker how much it holds and takes the same small part of each, more when pressure (a lower
//! priority number) is higher, less from caches whose objects are dear to make again (`seeks`). What does not fill a batch,
//! or could not be done in this context, is remembered as a [`Debt`]. How that is done decides who waits and who starves, so
//! it is behind one small trait:
//!
//! | policy | who pays debts | a small cache | most a caller in the foreground scans in one call |
//! |---|---|---|---|
//! | [`Fair`] (default) | the background only | scanned within a stated number of passes (S26) | its own part |
//! | [`Proportional`], Linux since 5.13 | whoever comes next, `debt >> priority` | below `256 << priority` objects never | grows with the debt |
//! | [`Windup`], Linux to 5.12 | whoever comes next, all of it | in the end | half the cache |

mod fair;
mod proportional;
mod windup;

pub use fair::Fair;
pub use proportional::Proportional;
pub use windup::Windup;

use crate::deferred::Debt;

/// The lightest pressure, at which a pass begins: each cache gives 1/2048 of itself at `seeks` 2.
#[doc(alias = "DEF_PRIORITY")]
pub const PRIORITY_DEFAULT: u8 = 12;

/// What it costs to make an object again, where nothing else is said: two reads from a disk that seeks.
#[doc(alias = "DEFAULT_SEEKS")]
pub const SEEKS_DEFAULT: u32 = 2;

/// Objects in one call of `scan_objects`, where nothing else is said.
#[doc(alias = "SHRINK_BATCH")]
pub const BATCH_DEFAULT: u64 = 128;

/// The input of a policy: one shrinker, one group, one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanInput {
    /// Objects that the shrinker counted.
    pub freeable: u64,
    /// 12 (light) to 0 (all of it).
    pub priority: u8,
    /// What it costs to make an object again; 0 for nothing.
    pub seeks: u32,
    /// Objects in one call of `scan_objects`; at least 1.
    pub batch: u64,
    /// Is this a background thread?
    pub background: bool,
}

/// The answer of a policy: scan in batches of `batch` while at least `scan_min` of `total` is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// This pass's own part, of which debts are no part.
    pub delta: u64,
    /// Objects to scan.
    pub total: u64,
    /// Less than this is not worth a call.
    pub scan_min: u64,
    /// Fraction of an object that `total` leaves out, in 65,536ths.
    pub rest: u64,
}

/// How the scanning of one plan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Less than `scan_min` was left.
    Finished,
    /// The shrinker could make no progress ([`Scan::Stop`](crate::Scan::Stop)).
    Stopped,
    /// The caller's own bound was reached.
    Cut,
    /// Nothing was tried ([`ShrinkControl::will_defer`](crate::ShrinkControl::will_defer)).
    Deferred,
}

/// Should a background thread be told of a debt that the foreground left?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kick {
    /// No: whoever comes next will see it.
    Never,
    /// Yes, when it has a moment: it is small, and more may come with which it can be paid together.
    Soon,
    /// Yes: it is large.
    Now,
}

/// Decides how many objects a visit scans, and what becomes of the rest. Pure: the same arguments give the same answer.
///
/// Called while a shrinker is asked, inside a [`CallbackScope`](crate::CallbackScope), without a lock held. It may use the
/// registry, but nothing is reclaimed for it. A panic of [`plan`](Self::plan) or [`commit`](Self::commit) loses the debt that was
/// taken; it reaches the caller of reclaim, and ends no thread of a [`Reclaimer`](crate::Reclaimer).
pub trait Policy: Send + Sync {
    /// Does such a caller take what is owed? Those who do not, take only what is carried.
    fn pays(&self, background: bool) -> bool;

    /// The plan of a scan, given the debt that was taken. `ask.freeable` is at least 1.
    fn plan(&self, ask: &PlanInput, debt: Debt) -> Plan;

    /// The debt to put back after `scanned` objects of the plan.
    fn commit(&self, ask: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt;

    /// The most that may stand as owed in the end, where `freeable` objects exist.
    fn owed_max(&self, freeable: u64) -> u64;

    /// Is the background to be told that `owed` objects are owed now? Linux never does.
    #[doc(hidden)]
    fn kick(&self, _ask: &PlanInput, _owed: u64) -> Kick {
        Kick::Never
    }
}

/// One pass's part of `freeable`, as Linux has it: `((freeable >> priority) * 4) / seeks`, or half when making the objects
/// again costs nothing.
fn delta(ask: &PlanInput) -> u64 {
    if ask.seeks == 0 {
        return ask.freeable / 2;
    }
    let part = u128::from(ask.freeable.checked_shr(u32::from(ask.priority)).unwrap_or(0));
    u64::try_from(part * 4 / u128::from(ask.seeks)).unwrap_or(u64::MAX)
}

/// At most twice what is there: once round the list to age, once more to free (S2).
fn total_max(freeable: u64) -> u64 {
    freeable.saturating_mul(2)
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests;
