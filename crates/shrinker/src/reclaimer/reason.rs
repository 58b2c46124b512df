//! The reasons for waking a reclaimer.
//!
//! | reason | when | until usage is at most |
//! |---|---|---|
//! | [`Watermark`](ReclaimReason::Watermark) | usage is near `max` | `max` less the high gap |
//! | [`High`](ReclaimReason::High) | usage is above `memory.high` | `high` |
//! | [`Limit`](ReclaimReason::Limit) | a charge was refused, or `max` was lowered below the usage | as for `Watermark` |
//! | [`Debt`](ReclaimReason::Debt) | direct reclaim deferred objects | no target |
//! | [`Manual`](ReclaimReason::Manual) | a program requests it | the usage at that time, less the requested bytes |
//! | [`Pressure`](ReclaimReason::Pressure) | pressure has lowered the ceiling | the ceiling |
//!
//! A reason selects the target of a job, and requests of one group and kind are merged (manual ones
//! add up). The target of a limit is read again at each step, as limits change. The `max` of 0 of
//! a dropped group is none of these limits, as the owner of the tree removes the group's objects.

use lowwater_lru_core::ByteSize;
use lowwater_lru_core::Memcg;

use super::watermark::Watermarks;

/// The reason why a group should use less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReclaimReason {
    /// Its usage has come near its `max`.
    #[doc(alias = "wakeup_kswapd")]
    Watermark,
    /// Its usage is above its `high`.
    #[doc(alias = "memory.high")]
    High,
    /// A charge was refused by its `max`, or its `max` was lowered below its usage.
    #[doc(alias = "memory.max")]
    Limit,
    /// Direct reclaim deferred objects of the group. Usage has no target; the deferred objects are
    /// scanned.
    #[doc(alias = "nr_deferred")]
    Debt,
    /// A program requested this many bytes.
    #[doc(alias = "memory.reclaim")]
    Manual(ByteSize),
    /// External pressure has lowered the group's ceiling to this.
    Pressure(ByteSize),
}

impl ReclaimReason {
    /// Returns the usage that `memcg` is to come down to.
    pub(crate) fn target(self, memcg: &Memcg, watermarks: &Watermarks) -> ByteSize {
        match self {
            Self::Watermark | Self::Limit => watermarks.target(memcg.reclaim_max()),
            Self::High => memcg.high(),
            Self::Debt => ByteSize::MAX,
            Self::Manual(bytes) => memcg.usage().saturating_sub(bytes),
            Self::Pressure(target) => target,
        }
    }
}
