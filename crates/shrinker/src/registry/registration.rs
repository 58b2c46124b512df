//! The right to be called, and its end.

use alloc::sync::Arc;

use super::builder::Claim;
use super::entry::Entry;
use crate::error::UnregisterError;
use crate::id::ShrinkerId;
use crate::stats::ShrinkerStats;

/// A shrinker that is being asked. Dropping this ends it: after that no callback runs, nor will one (S14).
///
/// The drop waits for callbacks in flight, and for nothing else; then it clears the bits and debts of its id, which costs
/// O(pairs that hold something), and gives the id back.
///
/// # Panics
///
/// Dropping it inside the shrinker's own callback panics instead of waiting for itself for ever; the shrinker is set aside,
/// and its id is not used again. Use [`unregister`](Self::unregister) to be told.
#[must_use = "dropping the registration ends it"]
pub struct Registration {
    /// None once it has ended.
    live: Option<(Arc<Entry>, Claim)>,
}

impl Registration {
    pub(super) fn new(entry: Arc<Entry>, claim: Claim) -> Self {
        Self { live: Some((entry, claim)) }
    }

    /// The shrinker's id.
    pub fn id(&self) -> ShrinkerId {
        ShrinkerId::new(self.entry().key.id)
    }

    /// The shrinker's name.
    pub fn name(&self) -> &str {
        &self.entry().name
    }

    /// What it did so far.
    pub fn stats(&self) -> ShrinkerStats {
        ShrinkerStats::of(self.entry())
    }

    /// Ends it, as dropping does, but says so where it cannot.
    ///
    /// # Errors
    ///
    /// [`UnregisterError::InsideCallback`] and the registration, when the calling thread is inside this shrinker's callback.
    #[doc(alias = "shrinker_free")]
    pub fn unregister(mut self) -> Result<(), (UnregisterError, Self)> {
        match self.end() {
            Ok(()) => Ok(()),
            Err(error) => Err((error, self)),
        }
    }

    fn end(&mut self) -> Result<(), UnregisterError> {
        if let Some((entry, _)) = &self.live {
            entry.gate.close()?;
        }
        if let Some((entry, claim)) = self.live.take() {
            claim.inner.withdraw(&entry);
            // The last handle on the shrinker that is ours: nobody inside the gate has one.
            drop(entry);
            drop(claim);
        }
        Ok(())
    }

    fn entry(&self) -> &Entry {
        // `live` is taken only by `end`, after which nobody can name `self` but its drop.
        &self.live.as_ref().expect("a registration in hand has not ended").0
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Err(error) = self.end() else { return };
        if let Some((entry, claim)) = self.live.take() {
            claim.inner.set_aside(&entry);
            // The id stays in use: the entry is still found under it.
            core::mem::forget(claim);
        }
        #[cfg(feature = "std")]
        if std::thread::panicking() {
            return;
        }
        panic!("{error}");
    }
}

impl core::fmt::Debug for Registration {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Registration").field("id", &self.id()).field("name", &self.name()).finish()
    }
}
