//! One registered shrinker, and the right to call it.

use alloc::{boxed::Box, sync::Arc};

use lowwater_lru_core::Bytes;

use super::arc_bytes;
use super::seat::Seat;
use crate::control::ShrinkControl;
use crate::shrinker::{Count, Scan, Shrinker};
use crate::stats::Visited;

/// What the registry keeps of a shrinker.
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    seat: Arc<Seat>,
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
    seat: Arc<Seat>,
    visited: Visited,
}

/// A callback panicked.
pub(crate) struct Panicked;

impl Entry {
    pub(crate) fn new(name: Box<str>, seat: Arc<Seat>, shrinker: Arc<dyn Shrinker>) -> Self {
        Self { name, seat, shrinker }
    }

    /// Goes in, if the gate is open and the shrinker is well.
    pub(crate) fn hold(self: &Arc<Self>) -> Option<Held> {
        if self.is_aside() || !self.gate.enter() {
            return None;
        }
        Some(Held {
            entry: Arc::clone(self),
            inside: Inside { seat: Arc::clone(&self.seat), visited: Visited::default() },
        })
    }

    /// Bytes allocated for it: this, its seat, its name; not the shrinker.
    pub(crate) fn bytes(&self) -> usize {
        arc_bytes::<Self>() + arc_bytes::<Seat>() + self.name.len()
    }
}

impl core::ops::Deref for Entry {
    type Target = Seat;

    fn deref(&self) -> &Seat {
        &self.seat
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.seat.gate.leave(&self.visited);
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
