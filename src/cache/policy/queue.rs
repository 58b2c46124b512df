//! The names of a tenant's two queues.

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
