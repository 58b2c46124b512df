//! The names of a tenant's two queues.
//!
//! The meaning of a queue depends on the order: SIEVE, for example, uses both queues as the two
//! sides of its hand ([`queues`](super::queues)).
//!
//! A new queue would change the record's state bits and every walk.

/// One of a tenant's queues: probation for new records, main for used ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Probation,
    Main,
}

impl Queue {
    /// Returns the tenant's other queue.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Probation => Self::Main,
            Self::Main => Self::Probation,
        }
    }
}
