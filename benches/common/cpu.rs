//! Processor time of the calling thread, for the benches of the dentry cache: other load on the
//! machine distorts it less than wall-clock time.
//!
//! A change must ensure that both ends of a measurement are read on one thread.

use std::time::Instant;

/// Returns the processor time of the calling thread so far, in ns; the wall-clock time if the
/// system does not report it.
fn thread_ns(begun: Instant) -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let run = told.and_then(|text| text.split_whitespace().next()?.parse().ok());
    run.unwrap_or_else(|| u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the processor time in ns of `work`, divided by its `operations`.
pub fn ns_each(operations: u64, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    let before = thread_ns(begun);
    work();
    (thread_ns(begun) - before) as f64 / operations as f64
}

/// Returns the least result of several rounds: the cost without interference.
pub fn least(rounds: usize, mut round: impl FnMut() -> f64) -> f64 {
    (0..rounds).map(|_| round()).fold(f64::INFINITY, f64::min)
}
