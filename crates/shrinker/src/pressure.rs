//! Where pressure comes from: each source only says that a group should use less, and how much less.
//!
//! | source | when | until usage is at most |
//! |---|---|---|
//! | [`Watermarks`] | usage is near `max` | `max` less the high gap |
//! | `high` | a charge went above `memory.high` | `high` |
//! | `max` | a charge was refused | as for watermarks |
//! | by hand ([`Registry::reclaim`](crate::Registry::reclaim)) | somebody asks | what it was, less what was asked for |
//!
//! The reclaimer does the work at its own pace.

pub mod cgroup;
mod level;
mod manual;
pub mod psi;
mod target;
mod text;
mod watermark;

pub use level::Level;
pub use psi::{Psi, Stalls, Trigger, TriggerError};
pub use target::{PressureConfig, Target};
pub use text::TextError;
pub use watermark::Watermarks;

use lowwater_lru_core::{Bytes, Memcg};

/// Why a group should use less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Its usage has come near its `max`.
    #[doc(alias = "wakeup_kswapd")]
    Watermark,
    /// Its usage is above its `high`.
    #[doc(alias = "memory.high")]
    High,
    /// A charge was refused by its `max`.
    #[doc(alias = "memory.max")]
    Limit,
    /// Somebody asked for so many bytes.
    #[doc(alias = "memory.reclaim")]
    Manual(Bytes),
}

impl Reason {
    /// Usage that `memcg` is to come down to.
    pub(crate) fn target(self, memcg: &Memcg, watermarks: &Watermarks) -> Bytes {
        match self {
            Self::Watermark | Self::Limit => watermarks.target(memcg.max()),
            Self::High => memcg.high(),
            Self::Manual(bytes) => memcg.usage().saturating_sub(bytes),
        }
    }
}
