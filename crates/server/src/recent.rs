//! The result of the last walk over all values or tenants, for calls within a second.
//!
//! Any client may request such a walk: calls soon after a walk get the same result. The server
//! keeps it for all connections, so the module is apart from the commands.
//!
//! A change must ensure that a result older than [`REUSE_TIME`] is not used again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The result of a walk is reused this long after its end.
const REUSE_TIME: Duration = Duration::from_secs(1);

/// The result of the last walk, with the time of its end.
#[derive(Debug)]
pub struct Recent<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Recent<T> {
    /// Returns the result, unless it is older than [`REUSE_TIME`] at `now`.
    pub fn at(&self, now: Instant) -> Option<Arc<T>> {
        let last = self.0.lock();
        let (end, result) = last.as_ref()?;
        (now.saturating_duration_since(*end) < REUSE_TIME).then(|| Arc::clone(result))
    }

    /// Keeps the result of a walk that ended at `end`.
    pub fn set(&self, end: Instant, result: &Arc<T>) {
        *self.0.lock() = Some((end, Arc::clone(result)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_reused_for_a_second() {
        let (last, end) = (Recent::default(), Instant::now());
        assert_eq!(last.at(end), None);
        let result = Arc::new(96);
        last.set(end, &result);
        assert_eq!(last.at(end + Duration::from_millis(999)), Some(result));
        assert_eq!(last.at(end + Duration::from_secs(1)), None);
    }
}
