//! Every interleaving of a story.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Runs `story` in every interleaving of its threads, within the bounds that the environment sets for loom.
///
/// # Panics
///
/// If one of them fails; or if there is only one, because then nothing was checked: the threads never meet.
pub fn model(story: impl Fn() + Sync + Send + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    ::loom::model(move || {
        // Relaxed: loom runs one after another.
        counted.fetch_add(1, Ordering::Relaxed);
        story();
    });
    assert!(runs.load(Ordering::Relaxed) > 1, "a story with one interleaving checks nothing");
}
