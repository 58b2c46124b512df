//! How near a usage is to its limit.
//!
//! A usage that leaves at most half of the margin below the limit is pressure. Then the caches have
//! to free the *excess*, the amount that makes three quarters of the margin unused: a quarter of
//! the margin more than necessary, so that the next reading does not find pressure again.
//!
//! ```text
//!     0 ------------------------------------- medium --- critical --- limit
//!                                 |<----------- margin ------------->|
//!                                             |<------- 1/2 ------->|
//!                                                        |<-- 1/4 ->|
//! ```
//!
//! A change must ensure that a usage from which the excess was freed is no pressure.

use lowwater_lru_core::ByteSize;

use crate::Level;

/// The bytes below a limit that are to stay unused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margin(pub(super) ByteSize);

impl Margin {
    /// Returns how much of `usage` has to be freed under `limit` to leave three quarters of the
    /// margin.
    pub(super) fn excess(self, usage: ByteSize, limit: ByteSize) -> ByteSize {
        let margin = self.0.get();
        usage.saturating_sub(limit.saturating_sub(ByteSize::new(margin - margin / 4)))
    }

    /// Returns the level of pressure that `usage` of `limit` means.
    pub(super) fn level(self, usage: ByteSize, limit: ByteSize) -> Level {
        let margin = self.0.get();
        let left = limit.saturating_sub(usage).get();
        if limit == ByteSize::MAX || left > margin / 2 {
            Level::Calm
        } else if left > margin / 4 {
            Level::Medium
        } else {
            Level::Critical
        }
    }
}
