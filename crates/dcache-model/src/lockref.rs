//! The user count of a dentry, which also tells whether the dentry is dead or frozen.
//!
//! | value | meaning | changed by |
//! |---|---|---|
//! | 0 | unused, cached | `get` to 1; `kill` to dead |
//! | 1 .. 2^31 - 2 | users, children among them | `get`, `put`; 1 also by `freeze` |
//! | 2^31 - 1 | saturated: no longer counted, never freed (D25) | no operation |
//! | 2^31 | dead: no user is added any more (D7); or frozen by the only user, until it kills the dentry or unfreezes it | `unfreeze` to 1 |
//!
//! The kernel keeps the dentry's lock and this count in one word, so that the count does not change
//! while the lock is held. Here the compare-exchange to dead is the decision itself: it needs no
//! lock, and no lock keeps users out.
//!
//! A change must ensure that the count of a dead dentry never changes.
//!
//! Numbers such as D25 are those of docs/INVARIANTS.md.

use lowwater_base::mutated;
use lowwater_base::sync::atomic::{AtomicU32, Ordering};

/// A count of users; the module's table lists its values.
#[derive(Debug)]
#[doc(alias = "lockref")]
pub(crate) struct LockRef(AtomicU32);

/// The count of a dead or frozen dentry.
const DEAD: u32 = 1 << 31;
/// The count at which users are no longer counted.
#[doc(alias = "REFCOUNT_SATURATED")]
const SATURATED: u32 = DEAD - 1;

impl LockRef {
    pub(crate) fn new(users: u32) -> Self {
        Self(AtomicU32::new(users))
    }

    /// Returns the number of users, `None` if the dentry is dead or frozen.
    #[inline]
    pub(crate) fn users(&self) -> Option<u32> {
        // Relaxed: a caller that must not miss a change issues a fence first.
        let n = self.0.load(Ordering::Relaxed);
        (n != DEAD).then_some(n)
    }

    /// Adds a user. Returns false if the dentry is dead or frozen.
    #[inline]
    #[doc(alias = "lockref_get_not_dead")]
    pub(crate) fn get(&self) -> bool {
        // Relaxed: the value only chooses the operands of the exchange.
        let mut n = self.0.load(Ordering::Relaxed);
        loop {
            match n {
                DEAD => return false,
                SATURATED => return true,
                _ => {
                    // Acquire: pairs with the Release in `put` and `unfreeze`, so that the caller
                    // sees the last user's writes.
                    match self.0.compare_exchange_weak(n, n + 1, Ordering::Acquire, Ordering::Relaxed) {
                        Ok(_) => return true,
                        Err(now) => n = now,
                    }
                }
            }
        }
    }

    /// Removes a user. Returns true if no user is left.
    #[inline]
    #[doc(alias = "lockref_put_return")]
    pub(crate) fn put(&self) -> bool {
        // Relaxed: the value only chooses the operands of the exchange.
        let mut n = self.0.load(Ordering::Relaxed);
        loop {
            debug_assert!(n != 0 && n != DEAD, "only a user calls put");
            if n == SATURATED {
                return false;
            }
            // Release: pairs with the Acquire in `get`, `kill` and `freeze`.
            match self.0.compare_exchange_weak(n, n - 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return n == 1,
                Err(now) => n = now,
            }
        }
    }

    /// Marks the dentry dead if it has no user. At most one call for a dentry returns true.
    #[doc(alias = "lockref_mark_dead")]
    pub(crate) fn kill(&self) -> bool {
        if mutated!("kill_without_exchange") {
            let unused = self.0.load(Ordering::Relaxed) == 0;
            if unused {
                self.0.store(DEAD, Ordering::Relaxed);
            }
            return unused;
        }
        // Acquire: pairs with the Release in `put`: the users' writes happen before those of the
        // killer. Relaxed on failure: the value is not used.
        self.0.compare_exchange(0, DEAD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Refuses new users until [`unfreeze`](Self::unfreeze). Called by a user; returns false if
    /// there are other users.
    #[doc(alias = "page_ref_freeze")]
    pub(crate) fn freeze(&self) -> bool {
        // Acquire: pairs with the Release in `put`, so that the caller sees the writes of users
        // that left.
        self.0.compare_exchange(1, DEAD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Ends a [`freeze`](Self::freeze): the caller is the only user again.
    #[doc(alias = "page_ref_unfreeze")]
    pub(crate) fn unfreeze(&self) {
        // Release: pairs with the Acquire in `get`.
        self.0.store(1, Ordering::Release);
    }

    /// Sets the number of users: lets a test start just below saturation.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(crate) fn set_users(&self, users: u32) {
        self.0.store(users, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;

    // `docs/HAZARDS.md` quotes this name.
    #[test]
    fn d25_a_count_that_is_full_sticks_and_never_wraps_to_dead() {
        let count = LockRef::new(0);
        count.set_users(SATURATED - 1);
        for _ in 0..3 {
            assert!(count.get());
        }
        assert_eq!(count.users(), Some(SATURATED));
        assert!(!count.put() && !count.put());
        assert_eq!(count.users(), Some(SATURATED), "a saturated count does not change");
        assert!(!count.kill());
    }

    #[test]
    fn d7_dead_is_final() {
        let count = LockRef::new(1);
        assert!(!count.kill(), "it has a user");
        assert!(count.put());
        assert!(count.kill() && !count.kill() && !count.get());
        assert_eq!(count.users(), None);
    }

    #[test]
    fn only_the_only_user_freezes() {
        let count = LockRef::new(2);
        assert!(!count.freeze());
        count.put();
        assert!(count.freeze() && !count.get());
        count.unfreeze();
        assert!(count.get());
    }
}

#[cfg(all(test, lowwater_loom))]
mod loom {
    use super::*;
    use lowwater_base::sync::{thread, with_mutant, Arc};

    /// A `get` races with a `kill`: exactly one of them succeeds. Two threads, all executions.
    /// docs/ORDERINGS.md names the test and the fault.
    fn check() {
        lowwater_base::sync::model(|| {
            let count = Arc::new(LockRef::new(0));
            let other = {
                let count = count.clone();
                thread::spawn(move || count.get())
            };
            let killed = count.kill();
            assert!(
                killed != other.join().unwrap(),
                "a dentry with a user is not freed, one without is found by its killer"
            );
        });
    }

    #[test]
    fn d7_a_user_or_a_killer() {
        check();
    }

    #[test]
    #[should_panic]
    fn fails_with_kill_without_exchange() {
        with_mutant("kill_without_exchange", check);
    }
}
