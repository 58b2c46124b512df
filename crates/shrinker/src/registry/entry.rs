//! One registered shrinker, and the right to call it.

use alloc::{boxed::Box, sync::Arc};

use lowwater_lru_core::fallible::TryArc;
use lowwater_lru_core::Bytes;

use super::seat::Seat;
use crate::callback::CallbackScope;
use crate::control::ShrinkControl;
use crate::shrinker::{Count, Scan, Shrinker};
use crate::stats::Visited;

/// What the registry keeps of a shrinker.
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    pub(super) seat: TryArc<Seat>,
    /// None while it is dropped.
    shrinker: Option<Arc<dyn Shrinker>>,
}

/// The right to call a shrinker: while it is held, the shrinker's registration does not end.
pub(crate) struct Held {
    // Before `inside`: when the gate lets the closer go, or ends the claim, no thread that was inside has a handle on the
    // shrinker any more.
    entry: TryArc<Entry>,
    inside: Inside,
}

/// A thread inside a gate.
struct Inside {
    seat: TryArc<Seat>,
    visited: Visited,
    // Last: a shrinker and a claim are dropped inside the scope.
    _scope: CallbackScope,
}

/// A callback panicked.
pub(crate) struct Panicked;

impl Entry {
    pub(crate) fn new(name: Box<str>, seat: TryArc<Seat>, shrinker: Arc<dyn Shrinker>) -> Self {
        Self { name, seat, shrinker: Some(shrinker) }
    }

    /// Goes in, if the gate is open and the shrinker is well.
    pub(crate) fn hold(this: &TryArc<Self>) -> Option<Held> {
        if this.is_aside() || !this.gate.enter() {
            return None;
        }
        let (seat, visited, _scope) = (this.seat.clone(), Visited::default(), CallbackScope::enter());
        Some(Held { entry: this.clone(), inside: Inside { seat, visited, _scope } })
    }

    fn shrinker(&self) -> &dyn Shrinker {
        self.shrinker.as_deref().expect("only the entry's drop takes it")
    }

    /// Bytes allocated for it: this, its seat, its name; not the shrinker.
    pub(crate) fn bytes(&self) -> usize {
        TryArc::<Self>::BYTES + TryArc::<Seat>::BYTES + self.name.len()
    }
}

impl core::ops::Deref for Entry {
    type Target = Seat;

    fn deref(&self) -> &Seat {
        &self.seat
    }
}

impl Drop for Entry {
    /// The last thread that has the entry drops it: maybe one that reclaims, whom a panic of the shrinker's `Drop` must not
    /// reach.
    fn drop(&mut self) {
        let shrinker = self.shrinker.take();
        let _panicked = caught(|| drop(shrinker));
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let ended = self.seat.gate.leave(&self.visited);
        drop(ended);
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
        caught(|| self.shrinker().count_objects(sc))
    }

    pub(crate) fn weigh(&self, sc: &ShrinkControl<'_>) -> Result<Option<Bytes>, Panicked> {
        caught(|| self.shrinker().weigh_objects(sc))
    }

    pub(crate) fn scan(&self, sc: &mut ShrinkControl<'_>) -> Result<Scan, Panicked> {
        caught(|| self.shrinker().scan_objects(sc))
    }
}

/// Calls `callback` and keeps its panic from the others.
#[cfg(all(feature = "std", not(lowwater_loom)))]
fn caught<R>(callback: impl FnOnce() -> R) -> Result<R, Panicked> {
    // What the callback leaves half done is its own: it is not called again.
    lowwater_lru_core::unwind::caught(callback).ok_or(Panicked)
}

/// Calls `callback`. Without `std` a panic cannot be caught; under loom it is the model's.
#[cfg(not(all(feature = "std", not(lowwater_loom))))]
fn caught<R>(callback: impl FnOnce() -> R) -> Result<R, Panicked> {
    Ok(callback())
}
