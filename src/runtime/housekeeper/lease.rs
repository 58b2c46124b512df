//! The lease: the right of one thread at a time to do the housekeeping.
//!
//! A thread cannot be stopped while it is blocked in user code. When that code returns, the thread
//! finds that its generation is old, and does not go on: so two threads never do the same work.
//!
//! A change must ensure that a generation is never used twice.

/// The right to do the housekeeping. A lease that was taken over has an old generation.
#[doc(alias = "fencing token")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) generation: u64,
}

/// Another thread has taken the lease over.
pub(super) struct LeaseLost;
