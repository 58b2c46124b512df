//! Positions of walks over an index.

/// The position of a walk over an index.
#[derive(Clone, Debug)]
pub struct Cursor(pub(super) Option<u64>);

impl Cursor {
    /// The beginning of a walk.
    pub const fn new() -> Self {
        Self(Some(0))
    }

    /// True if the walk has visited all segments.
    pub const fn is_done(&self) -> bool {
        self.0.is_none()
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}
