//! Dropping the records of large caches that have ended.
//!
//! A change must ensure that no lock of the housekeeper is held while a leftover is dropped: the
//! drop runs user code, that of all keys and values in it.

use lowwater_base::unwind::caught;

use super::lease::{Lease, LeaseLost};
use super::shared::HousekeeperShared;
use super::Housekeeper;

impl Housekeeper {
    /// Drops the leftover that has waited longest, on this thread. Returns false if there is none.
    pub(crate) fn drop_leftover(&self) -> bool {
        self.shared.next_leftover().map(|leftover| caught(|| drop(leftover))).is_some()
    }
}

impl HousekeeperShared {
    /// Takes the leftover that has waited longest.
    pub(super) fn next_leftover(&self) -> Option<Box<dyn Send>> {
        self.state.lock().leftovers.pop_front()
    }

    /// Drops all leftovers.
    pub(super) fn drop_leftovers(&self, lease: Lease) -> Result<(), LeaseLost> {
        while let Some(leftover) = self.next_leftover() {
            self.before_callback(&mut self.state.lock());
            let _panicked = caught(|| drop(leftover));
            self.after_callback(&mut self.state.lock(), lease)?;
        }
        Ok(())
    }
}
