//! A ninth type of retired objects. In a process of its own: other tests would use some of the
//! eight types.
//!
//! The bound is `KINDS_MAX` in `queue.rs`; a workspace that needs more types must raise it.

#![cfg(all(not(lowwater_loom), not(lowwater_epoch), not(feature = "embedder"), target_os = "linux"))]

use lowwater_base::sync::UnsafeCell;
use lowwater_rcu::{pin, Guard, Retired, RetiredKind, KINDS_MAX};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};

static FREED: AtomicUsize = AtomicUsize::new(0);

/// A type for each `N`.
struct Node<const N: usize>(UnsafeCell<*mut Self>);

// SAFETY: only the queue that owns the object uses the link.
unsafe impl<const N: usize> Send for Node<N> {}

impl<const N: usize> Drop for Node<N> {
    fn drop(&mut self) {
        FREED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Implements [`Retired`] for each number: a static in a generic function would be shared by all
/// types.
macro_rules! retired {
    ($($n:literal)*) => {$(
        // SAFETY: `kind` returns one static, and no other code uses the link.
        unsafe impl Retired for Node<$n> {
            fn kind() -> &'static RetiredKind {
                static KIND: RetiredKind = RetiredKind::of::<Node<$n>>();
                &KIND
            }

            fn link(&self) -> &UnsafeCell<*mut Self> {
                &self.0
            }
        }
    )*};
}

retired!(0 1 2 3 4 5 6 7 8);

fn retire<const N: usize>(guard: &Guard)
where
    Node<N>: Retired,
{
    let node = Box::into_raw(Box::new(Node(UnsafeCell::new(std::ptr::null_mut()))));
    // SAFETY: the object came from a box, no reader has a pointer to it, and it is retired once.
    unsafe { guard.retire(node) };
}

// A single test, so that nothing else is retired meanwhile.
#[test]
fn a_ninth_type_is_refused_with_a_message_and_the_others_are_freed() {
    let guard = pin();
    let of_each: [fn(&Guard); 8] =
        [retire::<0>, retire::<1>, retire::<2>, retire::<3>, retire::<4>, retire::<5>, retire::<6>, retire::<7>];
    assert_eq!(of_each.len(), KINDS_MAX);
    (0..2).for_each(|_| of_each.iter().for_each(|retire| retire(&guard)));
    let panic = catch_unwind(AssertUnwindSafe(|| retire::<8>(&guard))).unwrap_err();
    let message = panic.downcast_ref::<String>().expect("a message");
    assert_eq!(message, "a process can retire objects of at most 8 types (`KINDS_MAX`), and this is one more");
    // No lock is left taken, and the objects retired before are freed.
    of_each[3](&guard);
    drop(guard);
    lowwater_rcu::flush();
    assert_eq!(FREED.load(Ordering::Relaxed), 17);
}
