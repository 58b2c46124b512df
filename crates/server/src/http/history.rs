//! `/history.json`: the figures of the last two minutes.
//!
//! A page that is opened begins its curves with these figures, and not empty.
//!
//! A change must ensure that the number of samples stays bounded. `PERIOD` and `SAMPLES_MAX` are
//! equal to `PERIOD_MS` and `SAMPLES_MAX` of `http/page/page.js`.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

/// The time between two samples.
pub const PERIOD: Duration = Duration::from_secs(1);
/// The number of samples that are kept: two minutes of them.
const SAMPLES_MAX: usize = 120;

/// Samples of the figures, the oldest first.
#[derive(Debug, Default)]
pub struct History(Mutex<VecDeque<Value>>);

impl History {
    /// Adds a sample, and drops the oldest one if there are too many.
    pub fn add(&self, sample: Value) {
        let mut samples = self.0.lock();
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Returns all samples as one JSON array.
    pub fn json(&self) -> Value {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_minutes_are_kept() {
        let history = History::default();
        assert_eq!(history.json(), serde_json::json!([]));
        (0..SAMPLES_MAX + 3).for_each(|n| history.add(n.into()));
        let kept = history.json();
        let kept = kept.as_array().unwrap();
        assert_eq!((kept.len(), &kept[0], &kept[SAMPLES_MAX - 1]), (SAMPLES_MAX, &3.into(), &(SAMPLES_MAX + 2).into()));
    }
}
