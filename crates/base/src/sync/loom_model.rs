//! The runner of model checks, which rejects a model that checks nothing.
//!
//! A model that calls loom directly escapes this test: only `lookup/loom.rs` of
//! `lowwater-dcache-model` does, because it has a bound of its own for preemptions.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Runs `execution` in every interleaving of its threads, within the bounds that the environment
/// sets for loom (`ci/loom.sh`).
///
/// # Panics
///
/// If an execution fails; or if there is only one interleaving, because then the threads never
/// interact and nothing was checked.
pub fn model(execution: impl Fn() + Sync + Send + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    ::loom::model(move || {
        // Relaxed: loom runs one execution after the other.
        counted.fetch_add(1, Ordering::Relaxed);
        execution();
    });
    assert!(runs.load(Ordering::Relaxed) > 1, "a model with one interleaving checks nothing");
}
