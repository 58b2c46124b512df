//! Settings of criterion, for the benches of this folder that have `mod settings`.
//!
//! `cargo bench -- --quick` must take less than 5 minutes with 2 processors (`ci/bench.sh` checks
//! the time), so measurements are short, and the distributions that criterion draws have few
//! points. That script also has a list of the benchmark groups, and fails if one is not in the
//! report.

use std::time::Duration;

use criterion::Criterion;

/// Points of the distributions by which criterion estimates errors, and which it draws. With
/// criterion's default of 100,000 a plot took 7 s of processor time, more than ten times a quick
/// measurement.
/// 95 % intervals of 10 to 20 samples need no more than this.
const RESAMPLES: usize = 5_000;

/// Returns criterion with these settings and those of the command line. It accepts no less than 10
/// samples.
pub fn criterion(samples: usize) -> Criterion {
    Criterion::default()
        .sample_size(samples)
        .nresamples(RESAMPLES)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args()
}
