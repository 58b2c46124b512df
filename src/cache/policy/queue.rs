//! The two queues of a tenant.

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Probation,
    Main,
}

impl Queue {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Probation => Self::Main,
            Self::Main => Self::Probation,
        }
    }
}
