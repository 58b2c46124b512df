//! One registered shrinker, and the right to call it.

use alloc::{boxed::Box, sync::Arc};

use lowwater_lru_core::sync::atomic::{AtomicBool, Ordering};
use lowwater_lru_core::Bytes;

use super::arc_bytes;
use super::gate::Gate;
use super::options::Options;
use crate::control::ShrinkControl;
use crate::map::Key;
use crate::shrinker::{Count, Scan, Shrinker};
use crate::stats::Visited;

/// What the registry keeps of a shrinker.
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    pub(crate) key: Key,
    pub(crate) options: Options,
    pub(crate) gate: Arc<Gate>,
    /// Set by the first callback that panics, and never cleared: nobody calls this shrinker again.
    aside: AtomicBool,
    shrinker: Arc<dyn Shrinker>,
}

/// The right to call a shrinker: while it is held, the shrinker is not unregistered.
pub(crate) struct Held {
    // Before `inside`: when the gate lets the closer go, nobody has a handle on the shrinker any more.
    entry: Arc<Entry>,
    inside: Inside,
}

/// A thread inside a gate.
struct Inside {
    gate: Arc<Gate>,
    visited: Visited,
}

/// A callback panicked.
pub(crate) struct Panicked;

impl Entry {
    pub(crate) fn new(
        name: Box<str>,
        key: Key,
        options: Options,
        gate: Arc<Gate>,
        shrinker: Arc<dyn Shrinker>,
    ) -> Self {
        Self { name, key, options, gate, aside: AtomicBool::new(false), shrinker }
    }

    /// Goes in, if the gate is open and the shrinker is well.
    pub(crate) fn hold(self: &Arc<Self>) -> Option<Held> {
        if self.is_aside() || !self.gate.enter() {
            return None;
        }
        Some(Held {
            entry: Arc::clone(self),
            inside: Inside { gate: Arc::clone(&self.gate), visited: Visited::default() },
        })
    }

    /// Bytes allocated for it: this, its gate, its listener, its name; not the shrinker.
    pub(crate) fn bytes(&self) -> usize {
        arc_bytes::<Self>() + arc_bytes::<Gate>() + arc_bytes::<super::builder::Listener>() + self.name.len()
    }

    /// Has a callback panicked?
    pub(crate) fn is_aside(&self) -> bool {
        // Relaxed: a call more by a thread that does not see it yet does no harm.
        self.aside.load(Ordering::Relaxed)
    }

    /// Nobody shall call it again; see [`Inner::set_aside`](super::Inner::set_aside).
    pub(super) fn set_aside(&self) {
        // Relaxed: see `is_aside`.
        self.aside.store(true, Ordering::Relaxed);
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.gate.leave(&self.visited);
    }
}

impl core::ops::Deref for Held {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl Held {
    /// Notes what was done, to be counted when the gate is left.
    pub(crate) fn visited(&mut self, visited: Visited) {
        self.inside.visited += visited;
    }

    pub(crate) fn count(&self, sc: &ShrinkControl<'_>) -> Result<Count, Panicked> {
        caught(|| self.shrinker.count_objects(sc))
    }

    pub(crate) fn weigh(&self, sc: &ShrinkControl<'_>) -> Result<Option<Bytes>, Panicked> {
        caught(|| self.shrinker.weigh_objects(sc))
    }

    pub(crate) fn scan(&self, sc: &mut ShrinkControl<'_>) -> Result<Scan, Panicked> {
        caught(|| self.shrinker.scan_objects(sc))
    }
}

/// Calls `callback` and keeps its panic from the others.
#[cfg(all(feature = "std", not(lowwater_loom)))]
fn caught<R>(callback: impl FnOnce() -> R) -> Result<R, Panicked> {
    // What the callback leaves half done is its own: it is not called again.
    std::panic::catch_unwind(core::panic::AssertUnwindSafe(callback)).map_err(|_payload| Panicked)
}

/// Calls `callback`. Without `std` a panic cannot be caught; under loom it is the model's.
#[cfg(not(all(feature = "std", not(lowwater_loom))))]
fn caught<R>(callback: impl FnOnce() -> R) -> Result<R, Panicked> {
    Ok(callback())
}
