//! The lease: the right of one thread at a time to do the housekeeping.
//!
//! A thread that was blocked in user code finds an old generation and stops; so two threads never
//! do the same work, without killing either.
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
