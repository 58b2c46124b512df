//! Small slots for threads: each is owned by one thread as long as that lives, while there are slots. The others share.

use crate::hash::GOLDEN_RATIO;
use crate::sync::Mutex;
use core::cell::Cell;

/// Slots that have an owner.
pub const OWNED_MAX: usize = 16;

/// A thread's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadSlot {
    /// No other thread has it.
    Owned(usize),
    /// Other threads may have it as well.
    Shared(usize),
}

/// One bit for each slot that has an owner.
static OWNED: Mutex<u16> = Mutex::new(0);

const _: () = assert!(OWNED_MAX == u16::BITS as usize, "a bit for each slot");

/// The thread asked for no slot yet.
const NONE: usize = usize::MAX;

std::thread_local! {
    /// This thread's slot, from [`OWNED_MAX`] on a shared one. No destructor, so that asking costs nothing.
    static HERE: Cell<usize> = const { Cell::new(NONE) };
    /// Gives the slot back.
    static END: End = const { End };
}

/// Returns the calling thread's slot.
#[inline]
pub fn current() -> ThreadSlot {
    match HERE.get() {
        own if own < OWNED_MAX => ThreadSlot::Owned(own),
        NONE => first(),
        shared => ThreadSlot::Shared(shared - OWNED_MAX),
    }
}

/// Returns the calling thread's slot if the thread owns it and asked for it before.
#[inline]
pub fn owned() -> Option<usize> {
    Some(HERE.get()).filter(|own| *own < OWNED_MAX)
}

#[cold]
fn first() -> ThreadSlot {
    // A thread whose end has begun owns no slot: nobody would give it back.
    if END.try_with(|_| ()).is_ok() {
        let mut owned = OWNED.lock();
        let own = owned.trailing_ones() as usize;
        if own < OWNED_MAX {
            *owned |= 1 << own;
            HERE.set(own);
            return ThreadSlot::Owned(own);
        }
    }
    HERE.set(OWNED_MAX + shared());
    current()
}

/// A slot from the address of a thread-local, which differs between threads that live at one time.
fn shared() -> usize {
    HERE.with(|here| core::ptr::from_ref(here).addr().wrapping_mul(GOLDEN_RATIO as usize) >> 16 & 0xffff)
}

/// The thread's end.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let own = HERE.replace(OWNED_MAX + shared());
        if own < OWNED_MAX {
            *OWNED.lock() &= !(1 << own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::sync::Barrier;

    #[test]
    fn threads_that_live_at_one_time_have_different_numbers_of_their_own() {
        let together = Barrier::new(40);
        for _ in 0..3 {
            let mut numbers: Vec<_> = std::thread::scope(|s| {
                let one = || {
                    let number = current();
                    assert_eq!(number, super::current());
                    together.wait();
                    number
                };
                let threads: Vec<_> = (0..40).map(|_| s.spawn(one)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            numbers.retain(|number| matches!(number, ThreadSlot::Owned(_)));
            let count = numbers.len();
            assert!(count <= OWNED_MAX);
            numbers.sort_unstable_by_key(|number| if let ThreadSlot::Owned(own) = number { *own } else { NONE });
            numbers.dedup();
            assert_eq!(numbers.len(), count, "each once");
        }
    }
}
