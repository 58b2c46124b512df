//! The eviction orders that a builder can choose from.

/// The order in which entries are let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Eviction {
    /// A short queue for what is new, a long one for what was used, and a memory of what left: what is read once leaves first. The
    /// share of the short one follows the workload.
    #[default]
    Adaptive,
    /// The same queues, where the short one has always a tenth (S3-FIFO).
    S3Fifo,
    /// One queue, and a hand that goes round from the oldest to the youngest: what was used since it came by stays where it is (SIEVE).
    /// Learns nothing from what left, as all that follow; the runtime does, in whichever order.
    Sieve,
    /// One queue; what was used since it was last looked at goes round once more (CLOCK).
    #[doc(alias = "Clock")]
    SecondChance,
    /// One queue; every use moves an entry behind all others, with the list's lock. For comparison, and for those who need to be able to
    /// tell what goes next.
    Lru,
}
