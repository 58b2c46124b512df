//! The counts of refused `membarrier` calls.
//!
//! An operator sees here whether a sandbox refuses the fence: then memory is freed late or never.

/// Counts of refused and replaced `membarrier` calls, returned by
/// [`heavy_fences`](crate::heavy_fences()).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeavyFences {
    /// `membarrier` was refused, and a thread of this library ran on every processor of this
    /// process' readers instead. This takes milliseconds if processors are busy.
    pub visited: u64,
    /// `membarrier` and the replacement were both refused. Retired memory waits for the next
    /// attempt: while `refused` grows and `visited` does not, no retired memory is freed. Caches
    /// then refuse inserts once too much memory waits. Lists and hash tables have no such bound.
    pub refused: u64,
}
