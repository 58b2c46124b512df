//! Latencies of single calls, and whether the thread was preempted during a call.
//!
//! On a machine with other load the longest calls are those of preempted threads; so each call
//! records whether it was preempted, and both maxima are shown.
//!
//! A change must keep the recording outside of the measured time: it makes a system call, which may
//! take longer than the call that is measured.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::threads::interruptions;

/// The longest latency that is recorded, in ns; longer ones count as this.
const NS_MAX: u64 = 600_000_000_000;

/// The latencies of one thread's calls.
#[derive(Debug)]
pub struct Recorder {
    calls: Histogram<u64>,
    max_ns: u64,
    /// The longest call in which the thread was not preempted.
    max_unpreempted_ns: u64,
    interruptions: i64,
}

impl Recorder {
    pub fn new() -> Self {
        let calls = Histogram::new_with_bounds(1, NS_MAX, 3).expect("fixed bounds");
        Self { calls, max_ns: 0, max_unpreempted_ns: 0, interruptions: interruptions() }
    }

    /// Runs `call` and records its latency. Called on the thread that created the recorder, whose
    /// context switches it counts.
    pub fn time<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let begin = Instant::now();
        let result = call();
        self.record(begin.elapsed());
        result
    }

    /// Records a call that has just ended, and that began after the previous one or after the last
    /// [`look`](Self::look).
    pub fn record(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(NS_MAX).min(NS_MAX);
        self.calls.saturating_record(ns);
        self.max_ns = self.max_ns.max(ns);
        // Read after every call: a difference comes from a preemption in this call, or in the few
        // instructions around it.
        let now = interruptions();
        if now == self.interruptions {
            self.max_unpreempted_ns = self.max_unpreempted_ns.max(ns);
        }
        self.interruptions = now;
    }

    /// Discards preemptions since the last call: they happened outside of calls.
    pub fn look(&mut self) {
        self.interruptions = interruptions();
    }

    /// Adds the latencies that another thread recorded.
    pub fn add(&mut self, other: &Self) {
        self.calls.add(&other.calls).expect("the same bounds");
        self.max_ns = self.max_ns.max(other.max_ns);
        self.max_unpreempted_ns = self.max_unpreempted_ns.max(other.max_unpreempted_ns);
    }

    /// Returns the latency in microseconds that `percent` of the calls did not exceed; NaN without
    /// calls.
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
