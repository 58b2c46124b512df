//! Time on the processor, which a busy machine does not change as it does the time on the wall.

use std::time::Instant;

/// What the calling thread has run so far, in ns; the time on the wall where the system does not tell.
fn thread_ns(begun: Instant) -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let run = told.and_then(|text| text.split_whitespace().next()?.parse().ok());
    run.unwrap_or_else(|| u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Nanoseconds that `work` ran for each of its `operations`.
pub fn ns_each(operations: u64, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    let before = thread_ns(begun);
    work();
    (thread_ns(begun) - before) as f64 / operations as f64
}

/// The least of several rounds: what it costs when nobody disturbs.
pub fn least(rounds: usize, mut round: impl FnMut() -> f64) -> f64 {
    (0..rounds).map(|_| round()).fold(f64::INFINITY, f64::min)
}
