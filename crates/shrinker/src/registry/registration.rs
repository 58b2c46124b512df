//! The registration of a shrinker, and its end.
//!
//! When `unregister` returns `Ok`, no callback runs or will run (S14). With `std`, an end inside a
//! callback does not wait, since two threads could wait for each other: the last thread that leaves
//! a visit of the shrinker completes the end. Without `std` it is unknown whether a thread is
//! inside a callback, so a drop never waits, and `unregister` always does.
//!
//! A change must keep the order of the steps in `end`; its comments state the reason of each.
//!
//! Numbers such as S14 are those of docs/INVARIANTS.md.

use lowwater_base::fallible::TryArc;

use super::registry_core::{IdClaim, Registered};
use crate::callback::CallbackScope;
use crate::error::UnregisterError;
use crate::id::ShrinkerId;
use crate::stats::ShrinkerStats;

/// The registration of a shrinker with a registry, which may call the shrinker until the
/// registration ends. Dropping this ends it (`docs/INVARIANTS.md`, S14).
///
/// # State after the end
///
/// The end clears the bits and debts of the shrinker's id, which costs O(pairs with objects), frees
/// the id, and drops the registry's handles on the shrinker. A panic of the shrinker's own `Drop`
/// is caught if the registry's handle is the last one.
///
/// | ended by | where | state when it returns |
/// |---|---|---|
/// | drop, [`unregister`](Self::unregister) | outside of callbacks | no callback runs or will run; the end is complete |
/// | [`unregister`](Self::unregister) | inside a callback of any shrinker, or another [`CallbackScope`](crate::CallbackScope) | as in the first row if no callback of this shrinker is in flight; else an error, and nothing has changed |
/// | drop | inside a callback of any shrinker of any registry, or another [`CallbackScope`](crate::CallbackScope) | as in the next row |
/// | [`unregister_nowait`](Self::unregister_nowait) | anywhere | no visit of the shrinker begins any more; a visit in flight ends before its next batch, and the last thread to leave one completes the end |
///
/// So an end outside of callbacks waits for callbacks of the shrinker in flight, and for nothing
/// else; its thread must hold no lock that these callbacks take. An end inside a callback does not
/// wait, because two threads could wait for each other's callbacks for ever. If no callback of the
/// shrinker is in flight, each end is complete when the call returns.
///
/// Without `std` there is no thread identity: the drop never waits, and `unregister` always does.
#[must_use = "dropping the registration ends it"]
pub struct Registration {
    /// The registry's handle on the shrinker, and the claim that keeps the shrinker's id in use.
    /// `None` after the end.
    live: Option<(TryArc<Registered>, IdClaim)>,
}

impl Registration {
    pub(super) fn new(registered: TryArc<Registered>, claim: IdClaim) -> Self {
        Self { live: Some((registered, claim)) }
    }

    /// Returns the shrinker's id.
    pub fn id(&self) -> ShrinkerId {
        ShrinkerId::new(self.registered().key.id)
    }

    /// Returns the shrinker's name.
    pub fn name(&self) -> &str {
        &self.registered().name
    }

    /// Returns the shrinker's statistics.
    pub fn stats(&self) -> ShrinkerStats {
        self.registered().stats()
    }

    /// Ends the registration. When this returns `Ok`, no callback runs or will run. Waits for
    /// callbacks in flight.
    ///
    /// # Errors
    ///
    /// [`UnregisterError::InsideCallback`] and the unchanged registration, if a callback of the
    /// shrinker is in flight and the calling thread is itself inside a callback, of this shrinker
    /// or of any other, or inside another [`CallbackScope`](crate::CallbackScope). Without `std`
    /// this is not detected: a thread inside the shrinker's own callback would wait for itself.
    #[doc(alias = "shrinker_free")]
    pub fn unregister(mut self) -> Result<(), (UnregisterError, Self)> {
        match self.wait() {
            Ok(()) => Ok(()),
            Err(error) => Err((error, self)),
        }
    }

    /// Ends the registration without waiting. When this returns, no visit of the shrinker (a count,
    /// and the scans that follow it) begins any more. A visit in flight ends before its next batch:
    /// at most one scan and one count follow the present callback. The last thread to leave a visit
    /// completes the end; if none is in flight, this call completes it.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use lowwater_lru_core::{MemcgTree, NodeId};
    /// use lowwater_shrinker::{Count, Registration, Registry, Scan, ShrinkControl, Shrinker};
    ///
    /// /// Frees nothing, and unregisters itself at the first call.
    /// #[derive(Default)]
    /// struct Once(Mutex<Option<Registration>>);
    ///
    /// impl Shrinker for Once {
    ///     fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
    ///         let registration = self.0.lock().unwrap().take();
    ///         registration.map(Registration::unregister_nowait);
    ///         Count::Empty
    ///     }
    ///     fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
    ///         Scan::Stop
    ///     }
    /// }
    ///
    /// let tree = MemcgTree::default();
    /// let registry = Registry::new(&tree, 1);
    /// let (once, prepared) = (Arc::new(Once::default()), registry.builder("once").alloc()?);
    /// prepared.occupancy().occupied(tree.root(), NodeId::ZERO);
    /// let registration = prepared.register(Arc::clone(&once) as _);
    /// *once.0.lock().unwrap() = Some(registration);
    ///
    /// registry.drop_caches();
    /// assert!(registry.snapshot().shrinkers.is_empty());
    /// # Ok::<(), lowwater_shrinker::ShrinkerAllocError>(())
    /// ```
    #[doc(alias = "percpu_ref_kill")]
    pub fn unregister_nowait(mut self) {
        self.end();
    }

    /// Ends the registration, after waiting for callbacks in flight.
    fn wait(&mut self) -> Result<(), UnregisterError> {
        if let Some((registered, _)) = &self.live {
            registered.in_flight.kill_and_wait()?;
        }
        self.end();
        Ok(())
    }

    /// Ends the registration without waiting. If callbacks are in flight, the last thread that
    /// leaves a visit completes the end.
    fn end(&mut self) {
        let Some((registered, claim)) = self.live.take() else { return };
        // First, while the claim holds the id: after the claim has ended, the slot may belong to
        // another shrinker.
        claim.core().withdraw(&registered);
        let state = registered.state.clone();
        // Before `kill`, which may free the id: the id is reused only after the shrinker was
        // dropped. With callbacks in flight, the last guard drops the shrinker.
        drop(registered);
        // The claim goes to the last thread inside, or comes back if no thread is inside.
        let end = state.in_flight.kill(claim);
        // Frees the id, outside of the lock of `in_flight`.
        drop(end);
    }

    fn registered(&self) -> &Registered {
        // Only `end` takes `live`; after it only the drop uses `self`, and does not call this.
        &self.live.as_ref().expect("a registration in hand has not ended").0
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Without `std` it is unknown whether waiting is safe, so the drop does not wait.
        if !CallbackScope::KNOWN || self.wait().is_err() {
            self.end();
        }
    }
}

impl core::fmt::Debug for Registration {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Registration").field("id", &self.id()).field("name", &self.name()).finish()
    }
}
