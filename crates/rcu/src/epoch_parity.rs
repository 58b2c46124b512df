//! Clearing a set of objects at once: each object has the parity of the epoch in which it entered
//! the set, and a new epoch makes all objects of the last one *past*.
//!
//! ```text
//!     epoch   even, none is past   odd, even is past                    odd, none is past
//!             begin                grace, remove the past, grace        end
//! ```
//!
//! A thread reads the epoch and enters its object in one read-side section. So after the first
//! grace period every object that enters has the new parity, and a walk over the set that begins
//! then finds all past ones. A reader finds an object, and asks whether it is past, in one section,
//! too. So after the second grace period no reader has a past object, and `end` changes no answer.
//!
//! A change must ensure that one load decides whether an object is past: the epoch and the mark
//! that the last one is past are in one byte.

use crate::guard::{pin, Guard};
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::{start_poll, GracePeriod};

#[cfg(test)]
mod tests;

/// The present epoch is odd.
const ODD: u8 = 1;
/// Objects of the last epoch are past.
const HAS_PAST: u8 = 2;

/// The epoch of a set of objects, of which each object has one bit: its parity. All objects of an
/// epoch become *past* at once, and are removed afterwards.
///
/// ```
/// use lowwater_rcu::{pin, EpochParity};
///
/// let epoch = EpochParity::new();
/// let first = epoch.current(&pin());
/// let grace = epoch.begin();
/// assert_eq!((epoch.past(), epoch.current(&pin())), (Some(first), !first));
/// while !grace.poll() {}
/// // The past objects are removed here, and the readers that may have found one wait for.
/// epoch.end();
/// assert_eq!(epoch.past(), None);
/// ```
#[derive(Debug)]
pub struct EpochParity(AtomicU8);

impl EpochParity {
    /// Returns an even epoch, with no past objects.
    #[cfg(not(lowwater_loom))]
    pub const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    #[cfg(lowwater_loom)]
    pub fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Returns the parity of objects that enter the set before the guard is dropped.
    #[inline]
    pub fn current(&self, _guard: &Guard) -> bool {
        // Relaxed: ordered by the grace period from `begin`. A reader that is inside when `begin`
        // stores may read either epoch, and is waited for; a later one reads the new epoch.
        self.0.load(Ordering::Relaxed) & ODD != 0
    }

    /// Returns the parity of past objects; `None` if no object is past. To be compared with that of
    /// an object in the read-side section in which the object was found.
    #[inline]
    pub fn past(&self) -> Option<bool> {
        // Relaxed: a thread that must know of a `begin` has synchronized with it by other means.
        let epoch = self.0.load(Ordering::Relaxed);
        (epoch & HAS_PAST != 0).then_some(epoch & ODD == 0)
    }

    /// Begins an epoch: the objects of the last one are past until [`end`](Self::end). After the
    /// returned grace period no past object enters the set. To be called by one thread at a time,
    /// and not between a `begin` and its `end`.
    ///
    /// Drops a guard, which may run destructors of retired values if the thread has no other guard.
    /// So a caller with a lock that these destructors may need pins before it takes the lock, and
    /// drops that guard after the lock.
    pub fn begin(&self) -> GracePeriod {
        // The grace period demands that the store is inside the read side.
        let _guard = pin();
        // Relaxed, both: see `current` and `past`.
        let odd = !self.0.load(Ordering::Relaxed) & ODD;
        self.0.store(odd | HAS_PAST, Ordering::Relaxed);
        start_poll()
    }

    /// Ends the clear: no object is past from now on. To be called a grace period after the last
    /// past object was removed from the set.
    pub fn end(&self) {
        // Relaxed: no object of the last parity is in the set or in a reader's hands, so no answer
        // depends on the mark. Only the caller writes.
        let epoch = self.0.load(Ordering::Relaxed);
        self.0.store(epoch & !HAS_PAST, Ordering::Relaxed);
    }
}

impl Default for EpochParity {
    fn default() -> Self {
        Self::new()
    }
}
