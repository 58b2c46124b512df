//! A registered shrinker, and the right to call it.
//!
//! All callbacks run through a `ShrinkerGuard`, which marks the thread as inside, catches panics
//! and adds the statistics. A change must ensure that the end of a registration waits for every
//! guard, or is finished by the last one.

use alloc::{boxed::Box, sync::Arc};

use lowwater_base::fallible::TryArc;
use lowwater_lru_core::ByteSize;

use super::shrinker_state::ShrinkerState;
use crate::callback::CallbackScope;
use crate::control::ShrinkControl;
use crate::id::ShrinkerId;
use crate::shrinker::{Count, Scan, Shrinker};
use crate::stats::{ShrinkerStats, VisitCounts};

/// A shrinker, its name, and its [`ShrinkerState`]. `E` is the end of its registration; see
/// [`InFlight`](super::in_flight::InFlight).
#[doc(alias = "struct shrinker")]
pub(crate) struct RegisteredShrinker<E> {
    pub(crate) name: Box<str>,
    pub(crate) state: TryArc<ShrinkerState<E>>,
    /// `None` only while this is dropped.
    shrinker: Option<Arc<dyn Shrinker>>,
}

/// The right to call a shrinker: while it is held, the shrinker's registration does not end.
#[doc(alias = "shrinker_try_get")]
pub(crate) struct ShrinkerGuard<E> {
    // Dropped before `inside`: when the end is dropped, or the thread that waits for it continues,
    // no thread that was inside has a handle on the shrinker any more.
    registered: TryArc<RegisteredShrinker<E>>,
    inside: Inside<E>,
}

/// The calling thread, while it is inside a shrinker's callbacks.
struct Inside<E> {
    state: TryArc<ShrinkerState<E>>,
    visited: VisitCounts,
    // Last, so that a shrinker and an end are dropped inside the scope.
    _scope: CallbackScope,
}

/// A callback panicked.
pub(crate) struct CallbackPanicked;

impl<E> RegisteredShrinker<E> {
    pub(crate) fn new(name: Box<str>, state: TryArc<ShrinkerState<E>>, shrinker: Arc<dyn Shrinker>) -> Self {
        Self { name, state, shrinker: Some(shrinker) }
    }

    /// Returns the right to call the shrinker, unless it is quarantined or killed, the thread is
    /// inside it, or other threads are and there is no memory to record one more.
    pub(crate) fn try_get(this: &TryArc<Self>) -> Option<ShrinkerGuard<E>> {
        if this.is_quarantined() || !this.in_flight.try_get() {
            return None;
        }
        let (state, visited, _scope) = (this.state.clone(), VisitCounts::default(), CallbackScope::enter());
        Some(ShrinkerGuard { registered: this.clone(), inside: Inside { state, visited, _scope } })
    }

    fn shrinker(&self) -> &dyn Shrinker {
        self.shrinker.as_deref().expect("only this type's drop takes it")
    }

    /// Returns true if the shrinker should not be called again: it was killed, or a callback
    /// panicked.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_quarantined() || self.in_flight.is_killed()
    }

    /// Returns the statistics since the shrinker was registered.
    pub(crate) fn stats(&self) -> ShrinkerStats {
        let (sum, in_flight) = self.in_flight.counted();
        ShrinkerStats {
            id: ShrinkerId::new(self.key.id),
            name: (*self.name).into(),
            callbacks: sum.callbacks,
            requested: sum.requested,
            scanned: sum.scanned,
            freed: sum.freed,
            freed_in_background: sum.freed_in_background,
            deferred: sum.deferred,
            panics: sum.panics.into(),
            back_offs: sum.back_offs.into(),
            time_ns: sum.time_ns,
            last_run_ns: (sum.last_run_ns > 0).then_some(sum.last_run_ns),
            quarantined: self.is_quarantined(),
            in_flight,
        }
    }

    /// Returns the bytes allocated for this, its state and its name; without the shrinker.
    pub(crate) fn bytes(&self) -> usize {
        TryArc::<Self>::BYTES + TryArc::<ShrinkerState<E>>::BYTES + self.name.len()
    }
}

impl<E> core::ops::Deref for RegisteredShrinker<E> {
    type Target = ShrinkerState<E>;

    fn deref(&self) -> &ShrinkerState<E> {
        &self.state
    }
}

impl<E> Drop for RegisteredShrinker<E> {
    /// The thread with the last handle drops the shrinker. It may be a reclaiming thread, so a
    /// panic of the shrinker's `Drop` is caught.
    fn drop(&mut self) {
        let shrinker = self.shrinker.take();
        let _panicked = caught(|| drop(shrinker));
    }
}

impl<E> Drop for Inside<E> {
    fn drop(&mut self) {
        let end = self.state.in_flight.put(&self.visited);
        drop(end);
    }
}

impl<E> core::ops::Deref for ShrinkerGuard<E> {
    type Target = RegisteredShrinker<E>;

    fn deref(&self) -> &RegisteredShrinker<E> {
        &self.registered
    }
}

impl<E> ShrinkerGuard<E> {
    /// Adds to the statistics that are counted when the guard is dropped.
    pub(crate) fn visited(&mut self, visited: VisitCounts) {
        self.inside.visited += visited;
    }

    pub(crate) fn count(&self, sc: &ShrinkControl<'_>) -> Result<Count, CallbackPanicked> {
        caught(|| self.shrinker().count_objects(sc))
    }

    pub(crate) fn weigh(&self, sc: &ShrinkControl<'_>) -> Result<Option<ByteSize>, CallbackPanicked> {
        caught(|| self.shrinker().weigh_objects(sc))
    }

    pub(crate) fn scan(&self, sc: &mut ShrinkControl<'_>) -> Result<Scan, CallbackPanicked> {
        caught(|| self.shrinker().scan_objects(sc))
    }
}

/// Calls `callback` and catches a panic.
#[cfg(all(feature = "std", not(lowwater_loom)))]
fn caught<R>(callback: impl FnOnce() -> R) -> Result<R, CallbackPanicked> {
    // A panic quarantines the shrinker. Threads that are inside it may still make a call, and its
    // `Drop` runs: they may see inconsistent state, which is not unsound, as `Shrinker` is a safe
    // trait.
    lowwater_base::unwind::caught(callback).ok_or(CallbackPanicked)
}

/// Calls `callback`. Without `std` a panic cannot be caught; under loom it belongs to the model.
#[cfg(not(all(feature = "std", not(lowwater_loom))))]
fn caught<R>(callback: impl FnOnce() -> R) -> Result<R, CallbackPanicked> {
    Ok(callback())
}
