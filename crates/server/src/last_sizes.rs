//! The counts of the last walk for `stats sizes`, for the calls that follow within a second.
//!
//! A walk visits all values, and any client may request one: calls soon after a walk get the same
//! counts. The server keeps them for all connections, so the module is apart from the command.
//!
//! A change must ensure that counts older than [`REUSE_TIME`] are not used again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The counts of a walk are reused this long after its end.
const REUSE_TIME: Duration = Duration::from_secs(1);

/// The number of values of each size that occurs, by the size in bytes.
pub type SizeCounts = BTreeMap<usize, u64>;

/// The counts of the last walk, with the time of its end.
#[derive(Debug, Default)]
pub struct LastSizes(Mutex<Option<(Instant, Arc<SizeCounts>)>>);

impl LastSizes {
    /// Returns the counts, unless they are older than [`REUSE_TIME`] at `now`.
    pub fn at(&self, now: Instant) -> Option<Arc<SizeCounts>> {
        let last = self.0.lock();
        let (end, counts) = last.as_ref()?;
        (now.saturating_duration_since(*end) < REUSE_TIME).then(|| Arc::clone(counts))
    }

    /// Keeps the counts of a walk that ended at `end`.
    pub fn set(&self, end: Instant, counts: &Arc<SizeCounts>) {
        *self.0.lock() = Some((end, Arc::clone(counts)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_reused_for_a_second() {
        let (last, end) = (LastSizes::default(), Instant::now());
        assert_eq!(last.at(end), None);
        let counts = Arc::new(SizeCounts::from([(96, 2)]));
        last.set(end, &counts);
        assert_eq!(last.at(end + Duration::from_millis(999)), Some(counts));
        assert_eq!(last.at(end + Duration::from_secs(1)), None);
    }
}
