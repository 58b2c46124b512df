//! Counts of the bytes of values to which replies refer that clients do not read.
//!
//! Such values stay in memory after their eviction, and while there are too many of them, no long
//! value is stored (`store/update.rs`). Clients must not prevent the stores of all others for as
//! long as they like. So meanwhile, connections that cannot write their replies are closed: those
//! of tenants above a bound; and if all tenants together are above it, those of tenants whose bytes
//! are at least the average of the tenants that have any, as the one with the most bytes always is.
//!
//! A change must ensure that a reply which the client's socket accepts at once is not counted: it
//! would cost each `get` an access to a shared word.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Traffic;

/// The counts of all tenants together.
#[derive(Debug, Default)]
pub struct AllUnreadReplies {
    bytes: AtomicU64,
    /// The tenants that have any of these bytes.
    tenants: AtomicU64,
}

/// The values to which the output of one connection refers, counted until drop.
#[derive(Debug)]
pub struct UnreadReplies<'a> {
    all: &'a AllUnreadReplies,
    traffic: &'a Traffic,
    bytes: u64,
}

// Relaxed, unless stated otherwise: the counts guard no other memory. A sum that is read while
// another connection changes it is corrected at the next check.
impl<'a> UnreadReplies<'a> {
    /// Counts `bytes` bytes for the tenant; more than 0.
    pub fn new(all: &'a AllUnreadReplies, traffic: &'a Traffic, bytes: u64) -> Self {
        if traffic.unread_bytes.fetch_add(bytes, Ordering::Relaxed) == 0 {
            all.tenants.fetch_add(1, Ordering::Relaxed);
        }
        all.bytes.fetch_add(bytes, Ordering::Relaxed);
        Self { all, traffic, bytes }
    }

    /// Returns whether this tenant has more than `max` bytes; or all tenants together have, and
    /// this one at least the average of those that have any.
    pub fn are_too_many(&self, max: u64) -> bool {
        let (all, tenants) = (self.all.bytes.load(Ordering::Relaxed), self.all.tenants.load(Ordering::Relaxed));
        let own = self.traffic.unread_bytes.load(Ordering::Relaxed);
        own > max || all > max && own.saturating_mul(tenants) >= all
    }
}

impl Drop for UnreadReplies<'_> {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // AcqRel: pairs with itself. The drop that takes the last bytes of a tenant follows the
        // increment of `tenants` for its first bytes, so `tenants` is never below 0.
        if self.traffic.unread_bytes.fetch_sub(self.bytes, Ordering::AcqRel) == self.bytes {
            self.all.tenants.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_with_at_least_the_average_are_above_a_bound_of_all() {
        let all = AllUnreadReplies::default();
        let tenants: [Traffic; 4] = Default::default();
        let unread = |tenant: usize, bytes: u64| UnreadReplies::new(&all, &tenants[tenant], bytes);
        let [few, many, most] = [unread(0, 10), unread(1, 50), unread(2, 60)];
        let more = unread(2, 30);
        let too_many = |max| [&few, &many, &most, &more].map(|unread| unread.are_too_many(max));
        // The average is 50.
        assert_eq!(too_many(149), [false, true, true, true]);
        assert_eq!(too_many(150), [false; 4]);
        assert_eq!(too_many(9), [true; 4], "each is above the bound");
        drop((more, most));
        // 10 and 50 are left.
        assert_eq!([few.are_too_many(59), many.are_too_many(59)], [false, true]);
        drop(many);
        assert!(few.are_too_many(9), "the only one");
        drop(few);
        assert_eq!((all.bytes.into_inner(), all.tenants.into_inner()), (0, 0));
    }
}
