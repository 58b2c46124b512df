//! Times of single calls, and whether the thread was interrupted in one.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::threads::interruptions;

/// The longest that is told apart, ns.
const NS_MAX: u64 = 600_000_000_000;

/// What one thread's calls took.
#[derive(Debug)]
pub struct Recorder {
    calls: Histogram<u64>,
    max_ns: u64,
    /// The longest of those in which the thread kept its processor.
    max_unpreempted_ns: u64,
    interruptions: i64,
}

impl Recorder {
    pub fn new() -> Self {
        let calls = Histogram::new_with_bounds(1, NS_MAX, 3).expect("fixed bounds");
        Self { calls, max_ns: 0, max_unpreempted_ns: 0, interruptions: interruptions() }
    }

    /// Calls, and takes the time. To be used by one thread only.
    pub fn time<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let begin = Instant::now();
        let result = call();
        self.record(begin.elapsed());
        result
    }

    /// Notes a call that has just ended, and that began after the last one or the last [`look`](Self::look).
    pub fn record(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(NS_MAX).min(NS_MAX);
        self.calls.saturating_record(ns);
        self.max_ns = self.max_ns.max(ns);
        // Asked after every call: so one that differs fell into this call, or the few instructions around it.
        let now = interruptions();
        if now == self.interruptions {
            self.max_unpreempted_ns = self.max_unpreempted_ns.max(ns);
        }
        self.interruptions = now;
    }

    /// Interruptions so far fell into no call.
    pub fn look(&mut self) {
        self.interruptions = interruptions();
    }

    /// Adds what another thread recorded.
    pub fn add(&mut self, other: &Self) {
        self.calls.add(&other.calls).expect("the same bounds");
        self.max_ns = self.max_ns.max(other.max_ns);
        self.max_unpreempted_ns = self.max_unpreempted_ns.max(other.max_unpreempted_ns);
    }

    /// Microseconds within which so many per cent of the calls were done; NaN if there was none.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        if self.calls.is_empty() {
            return f64::NAN;
        }
        self.calls.value_at_percentile(percent) as f64 / 1e3
    }

    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1e3
    }

    pub fn max_unpreempted_us(&self) -> f64 {
        self.max_unpreempted_ns as f64 / 1e3
    }

    pub fn calls(&self) -> u64 {
        self.calls.len()
    }
}
