//! How often `membarrier` was refused.

/// Counts of refused and replaced `membarrier` calls: from [`heavy_fences`](crate::heavy_fences()).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeavyFences {
    /// `membarrier` was refused, and a thread of this library ran on every processor of this
    /// process' readers instead. Takes milliseconds where processors are busy.
    pub visited: u64,
    /// Both were refused. Retired memory waits for the next try: while `refused` grows and
    /// `visited` does not, no retired memory is freed. Caches then refuse inserts once too much
    /// waits. Lists and hash tables have no such bound.
    pub refused: u64,
}
