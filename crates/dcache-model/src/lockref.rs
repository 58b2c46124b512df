//! The count of a dentry's users: who may come in, and who may end it.
//!
//! | value | meaning | who leaves it |
//! |---|---|---|
//! | 0 | unused, cached | `get` to 1; `kill` to dead |
//! | 1 .. 2^31 - 2 | users, children among them | `get`, `put` |
//! | 2^31 - 1 | saturated: counted no more, never freed (D25) | nobody |
//! | 2^31 | dead: nobody comes in again (D7); or frozen, for an instant, by its only user | the freezer, by `unfreeze`, or by killing what it froze |
//!
//! The kernel keeps the dentry's lock and this count in one word, so that who holds the lock sees the count stand still. Here the
//! decision itself is the exchange to dead; no lock is needed for it, and none stops a user.

use lowwater_base::mutated;
use lowwater_base::sync::atomic::{AtomicU32, Ordering};

/// A count of users; the module lists its values.
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

    /// Users now; `None` when dead.
    #[inline]
    pub(crate) fn users(&self) -> Option<u32> {
        // Relaxed: who must not miss a change brings the fence.
        let n = self.0.load(Ordering::Relaxed);
        (n != DEAD).then_some(n)
    }

    /// Adds a user, unless dead.
    #[inline]
    #[doc(alias = "lockref_get_not_dead")]
    pub(crate) fn get(&self) -> bool {
        // Relaxed: the value only chooses what the exchange tries.
        let mut n = self.0.load(Ordering::Relaxed);
        loop {
            match n {
                DEAD => return false,
                SATURATED => return true,
                _ => {
                    // Acquire: meets the Release in `put` and `unfreeze`, so that we see what the
                    // last user did.
                    match self.0.compare_exchange_weak(n, n + 1, Ordering::Acquire, Ordering::Relaxed) {
                        Ok(_) => return true,
                        Err(now) => n = now,
                    }
                }
            }
        }
    }

    /// Removes a user. Returns true for the last one.
    #[inline]
    #[doc(alias = "lockref_put_return")]
    pub(crate) fn put(&self) -> bool {
        // Relaxed: the value only chooses what the exchange tries.
        let mut n = self.0.load(Ordering::Relaxed);
        loop {
            debug_assert!(n != 0 && n != DEAD, "only a user goes out");
            if n == SATURATED {
                return false;
            }
            // Release: meets the Acquire in `get` and in `kill`.
            match self.0.compare_exchange_weak(n, n - 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return n == 1,
                Err(now) => n = now,
            }
        }
    }

    /// Marks as dead if there is no user. Returns true to exactly one caller.
    #[doc(alias = "lockref_mark_dead")]
    pub(crate) fn kill(&self) -> bool {
        if mutated!("kill_without_exchange") {
            let unused = self.0.load(Ordering::Relaxed) == 0;
            if unused {
                self.0.store(DEAD, Ordering::Relaxed);
            }
            return unused;
        }
        // Acquire: meets the Release in `put`: what users did comes before what the killer does. Relaxed on failure.
        self.0.compare_exchange(0, DEAD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Called by the only user: refuses new users until [`unfreeze`](Self::unfreeze). False if
    /// there are others.
    #[doc(alias = "page_ref_freeze")]
    pub(crate) fn freeze(&self) -> bool {
        // Acquire: as in `kill`.
        self.0.compare_exchange(1, DEAD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Ends what [`freeze`](Self::freeze) began.
    #[doc(alias = "page_ref_unfreeze")]
    pub(crate) fn unfreeze(&self) {
        // Release: meets the Acquire in `get`.
        self.0.store(1, Ordering::Release);
    }

    /// As many users as can be told apart, for a test of what comes then.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(crate) fn set_users(&self, users: u32) {
        self.0.store(users, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn d25_a_count_that_is_full_sticks_and_never_wraps_to_dead() {
        let count = LockRef::new(0);
        count.set_users(SATURATED - 1);
        for _ in 0..3 {
            assert!(count.get());
        }
        assert_eq!(count.users(), Some(SATURATED));
        assert!(!count.put() && !count.put());
        assert_eq!(count.users(), Some(SATURATED), "it is not known any more how many there are");
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

    /// One comes in while another ends it: exactly one of them gets what it asked for. Two threads, all executions.
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
    fn not_if_the_killer_looks_first_and_stores_then() {
        with_mutant("kill_without_exchange", check);
    }
}
