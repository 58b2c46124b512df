//! The bound on the stores that a test repeats.
//!
//! On a busy machine a store may find no room for longer than the server waits, and a test sends it
//! again. A server that refuses some stores for another reason must fail the test all the same: it
//! refuses more of them.

/// Refused stores that are always allowed.
const REFUSED_MAX: u64 = 5;
/// Beyond [`REFUSED_MAX`], one refused store is allowed of this many.
const STORES_PER_REFUSED: u64 = 200;

/// The number of a client's stores, and of those that were refused and sent again. A store that is
/// refused several times counts once: its refusals have one cause.
#[derive(Default)]
pub(crate) struct Refusals {
    stores: u64,
    refused: u64,
}

impl Refusals {
    /// Counts a store, before it is sent.
    pub(crate) fn count_store(&mut self) {
        self.stores += 1;
    }

    /// Counts the store that was counted last as refused.
    ///
    /// # Panics
    ///
    /// If more stores were refused than a busy machine explains.
    pub(crate) fn count_refused(&mut self) {
        self.refused += 1;
        println!("{} of {} stores were refused and are repeated", self.refused, self.stores);
        assert!(self.refused <= REFUSED_MAX.max(self.stores / STORES_PER_REFUSED), "too many stores are refused");
    }
}
