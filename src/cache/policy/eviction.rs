//! The eviction orders that a builder can choose from.
//!
//! [`queues`](super::queues) explains how each order uses the two lists. A new order needs a
//! variant here, a decision in `isolate_batch`, and an entry in `ORDERS` of benches/hit_ratio.rs,
//! which makes its column in docs/MEASURED.md.

/// The order in which the entries of a tenant are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Eviction {
    /// A short queue for new entries (probation), a long one for used entries (main), and ghosts of
    /// evicted keys. Entries that are read only once are evicted first. The share of probation
    /// adapts to the workload.
    #[default]
    Adaptive,
    /// The same queues with a fixed share: probation always has a tenth (S3-FIFO).
    S3Fifo,
    /// One queue, and a hand that moves from the oldest entry to the youngest and starts over. An
    /// entry that was used since the hand last passed it keeps its position (SIEVE).
    ///
    /// This order and the following ones do not adapt to ghost hits. The runtime uses ghost hits to
    /// divide memory between caches under every order.
    Sieve,
    /// One queue. A victim candidate that was used since its last visit becomes the youngest entry
    /// instead (CLOCK).
    #[doc(alias = "Clock")]
    SecondChance,
    /// One queue. Every use makes the entry the youngest, under the list's lock. For comparison,
    /// and for applications that must be able to predict the next victim.
    Lru,
}
