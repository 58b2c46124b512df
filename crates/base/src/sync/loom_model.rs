//! The runner of model checks.
//!
//! All model checks run through this function, so that `ci/loom.sh` can bound them in one place.
//!
//! A model that calls loom directly would escape the bound.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Runs `story` in every interleaving of its threads, within the bounds that the environment sets
/// for loom.
///
/// # Panics
///
/// If an execution fails; or if there is only one interleaving, because then the threads never
/// interact and nothing was checked.
pub fn model(story: impl Fn() + Sync + Send + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    ::loom::model(move || {
        // Relaxed: loom runs one execution after the other.
        counted.fetch_add(1, Ordering::Relaxed);
        story();
    });
    assert!(runs.load(Ordering::Relaxed) > 1, "a story with one interleaving checks nothing");
}
