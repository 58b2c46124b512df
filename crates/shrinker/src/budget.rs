//! How many objects to scan: pure arithmetic, without waiting, counting or callbacks.
//!
//! A pass asks each live shrinker for its number of objects and scans the same small fraction of
//! each: more under higher pressure (a lower priority number), less from caches with objects that
//! are expensive to recreate (`seeks`). Objects that do not fill a batch, or cannot be scanned in
//! the current context, are recorded as a [`Debt`]. Scanning owed objects later *pays* the debt.
//! Latency and starvation depend on which caller pays, and when. A [`Policy`] decides this:
//!
//! | policy | debts are paid by | a small cache | most objects that a foreground caller scans in one call |
//! |---|---|---|---|
//! | [`Fair`] (default) | the background only | scanned within a stated number of passes (S26) | its own part |
//! | [`Proportional`], Linux since 5.13 | the next caller, `debt >> priority` | below `(batch / 4) << priority` objects never | grows with the debt |
//! | [`Windup`], Linux to 5.12 | the next caller, all of it | scanned eventually | half the cache; at high pressure, all of it twice |
//!
//! Numbers such as S26 are those of docs/INVARIANTS.md.
//
// A change must ensure that policies stay pure functions: no lock, no clock, no callback.

mod fair;
mod proportional;
mod windup;

pub use fair::Fair;
pub use proportional::Proportional;
pub use windup::Windup;

use crate::deferred::Debt;

/// The lightest pressure, at which reclaim begins: each cache gives up 1/2048 of its objects at
/// `seeks` 2.
#[doc(alias = "DEF_PRIORITY")]
pub const PRIORITY_DEFAULT: u8 = 12;

/// The default cost of recreating an object: two reads from a disk that seeks.
#[doc(alias = "DEFAULT_SEEKS")]
pub const SEEKS_DEFAULT: u32 = 2;

/// The default number of objects in one call of `scan_objects`.
#[doc(alias = "SHRINK_BATCH")]
pub const BATCH_DEFAULT: u64 = 128;

/// The input of a policy, about one shrinker, one group and one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanInput {
    /// The number of objects that the shrinker counted.
    pub freeable: u64,
    /// The priority, 12 (light) to 0 (scan everything).
    pub priority: u8,
    /// The cost of recreating an object; 0 if it costs nothing.
    pub seeks: u32,
    /// The number of objects in one call of `scan_objects`; at least 1.
    pub batch: u64,
    /// True on a background thread.
    pub background: bool,
}

/// The result of a policy: scan in batches of `batch` while at least `scan_min` of `total` is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The objects that this pass requests itself, without the owed ones.
    pub delta: u64,
    /// The number of objects to scan, owed ones included.
    pub total: u64,
    /// The smallest number of objects that is worth a call of `scan_objects`.
    pub scan_min: u64,
    /// The fraction of an object by which `delta` was rounded down, in 65,536ths: carried to the
    /// next pass.
    pub rest: u64,
}

/// How the execution of a plan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Less than `scan_min` was left, or all counted objects were freed.
    Finished,
    /// The shrinker could make no progress ([`Scan::Stop`](crate::Scan::Stop)).
    Stopped,
    /// The caller's bound was reached, or another thread scans ([`Scan::Busy`](crate::Scan::Busy)).
    Cut,
    /// Nothing was scanned ([`ShrinkControl::will_defer`](crate::ShrinkControl::will_defer)).
    Deferred,
}

/// Whether a background thread is notified of a debt that the foreground left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kick {
    /// No: the next pass sees the debt.
    Never,
    /// Yes, without urgency: the debt is small, and may be paid together with later ones.
    Soon,
    /// Yes, at once: the debt is large.
    Now,
}

/// Decides how many objects a visit scans, and how much of the rest is recorded as a debt. Pure:
/// equal arguments give equal results.
///
/// Called during a visit to a shrinker, inside a [`CallbackScope`](crate::CallbackScope), without a
/// lock held. An implementation may use the registry, but its reclaim calls do nothing; without
/// `std` they recurse without bound, so it must make none. A panic of [`plan`](Self::plan) or
/// [`commit`](Self::commit) loses the debt that was taken; the panic reaches the caller of reclaim,
/// and ends no thread of a [`Reclaimer`](crate::Reclaimer).
pub trait Policy: Send + Sync {
    /// Returns whether a caller takes the owed objects: a background thread if `background`, else a
    /// foreground caller. Other callers take only the carried fraction ([`Debt::carry`]).
    fn pays(&self, background: bool) -> bool;

    /// Returns the plan of a scan, given the debt that was taken. `input.freeable` is at least 1.
    fn plan(&self, input: &PlanInput, debt: Debt) -> Plan;

    /// Returns the debt to record after `scanned` objects of the plan were scanned.
    fn commit(&self, input: &PlanInput, debt: Debt, plan: &Plan, scanned: u64, ended: Ended) -> Debt;

    /// Returns the maximum of the owed objects after a visit, if `freeable` objects exist.
    fn owed_max(&self, freeable: u64) -> u64;

    /// Returns whether to notify the background when `owed` objects are owed. Linux never does.
    #[doc(hidden)]
    fn kick(&self, _input: &PlanInput, _owed: u64) -> Kick {
        Kick::Never
    }
}

/// Returns one pass's part of `freeable`, as in Linux: `((freeable >> priority) * 4) / seeks`, or
/// half if recreating the objects costs nothing.
fn delta(input: &PlanInput) -> u64 {
    if input.seeks == 0 {
        return input.freeable / 2;
    }
    let part = u128::from(input.freeable.checked_shr(u32::from(input.priority)).unwrap_or(0));
    u64::try_from(part * 4 / u128::from(input.seeks)).unwrap_or(u64::MAX)
}

/// Returns the objects that Linux' loop scans where a visit scanned `scanned`. A visit ends once
/// all objects are freed ([`Ended::Finished`] with at least `scan_min` left). Linux' loop continues
/// over the empty cache, which counts as scanned.
fn scanned_by_linux(input: &PlanInput, plan: &Plan, scanned: u64, ended: Ended) -> u64 {
    let left = plan.total.saturating_sub(scanned);
    if ended != Ended::Finished || left < plan.scan_min {
        return scanned;
    }
    let rest = left % input.batch.max(1);
    scanned + if rest < plan.scan_min { left - rest } else { left }
}

/// Returns the bound of [`Plan::total`], twice the existing objects: once round the list to age
/// them, once more to free them (S2).
fn total_max(freeable: u64) -> u64 {
    freeable.saturating_mul(2)
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests;
