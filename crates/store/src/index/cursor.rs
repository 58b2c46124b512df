//! Positions of walks over an index.
//!
//! A position is a hash prefix and not an address, so that a walk may pause for any time without a
//! read-side section, while segments are replaced. `None` is the end. A change must ensure that no
//! address is kept.

/// The position of a walk over an index.
#[derive(Clone, Debug)]
pub struct Cursor(pub(super) Option<u64>);

impl Cursor {
    /// Creates the position at the beginning of a walk.
    pub const fn new() -> Self {
        Self(Some(0))
    }

    /// Returns true if the walk has visited all segments.
    pub const fn is_done(&self) -> bool {
        self.0.is_none()
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}
