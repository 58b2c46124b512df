//! Where a walk is.

/// How far a walk over an index has come.
#[derive(Clone, Debug)]
pub struct Cursor(pub(super) Option<u64>);

impl Cursor {
    /// At the beginning.
    pub const fn new() -> Self {
        Self(Some(0))
    }

    /// Was everything seen?
    pub const fn is_done(&self) -> bool {
        self.0.is_none()
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}
