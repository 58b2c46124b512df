//! The lease: the right of one thread at a time to do the housekeeping.

/// The right to do the housekeeping. A lease that was taken over has an old generation.
#[doc(alias = "fencing token")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) generation: u64,
}

/// Another thread has taken the lease over.
pub(super) struct LeaseLost;
