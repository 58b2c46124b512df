//! Small slot numbers for threads: a thread owns its slot as long as the thread lives, while there
//! are free slots. The other threads share slots.
//!
//! A change must ensure that a thread that owns a slot is the only writer of the data that the slot
//! indexes, until `END` is dropped; the lock of `OWNED` orders the writes of successive owners. The
//! thread-locals have no destructor except `END`, so that they can be used late in a thread's life.

use crate::hash::GOLDEN_RATIO;
use crate::sync::Mutex;
use core::cell::Cell;

/// The number of slots that can be owned at one time, in the whole process.
pub const OWNED_MAX: usize = 16;

/// The slot of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadSlot {
    /// No other thread has this slot until this thread ends. The number is below [`OWNED_MAX`].
    Owned(usize),
    /// Other threads may have this slot as well. The number is below 65,536; a structure takes it
    /// modulo the number of its shared slots.
    Shared(usize),
}

/// A bitmap of the slots that are owned.
static OWNED: Mutex<u16> = Mutex::new(0);

const _: () = assert!(OWNED_MAX == u16::BITS as usize, "a bit for each slot");

/// The value of `SLOT` before the thread's first call.
const NONE: usize = usize::MAX;

std::thread_local! {
    /// This thread's slot: [`NONE`], an owned slot, or [`OWNED_MAX`] plus a shared one. Without a
    /// destructor, so that an access needs no check.
    static SLOT: Cell<usize> = const { Cell::new(NONE) };
    /// Releases the slot when the thread ends.
    static END: End = const { End };
}

/// Returns the calling thread's slot. The first call of a thread takes the lowest free slot under a
/// lock, or chooses a shared one; later calls only read a thread-local.
#[inline]
pub fn current() -> ThreadSlot {
    match SLOT.get() {
        own if own < OWNED_MAX => ThreadSlot::Owned(own),
        NONE => first(),
        shared => ThreadSlot::Shared(shared - OWNED_MAX),
    }
}

/// Returns the calling thread's slot if the thread owns one and has called [`current`] before.
#[inline]
pub fn owned() -> Option<usize> {
    Some(SLOT.get()).filter(|own| *own < OWNED_MAX)
}

#[cold]
fn first() -> ThreadSlot {
    // A thread whose thread-locals are being destroyed gets no owned slot, since it would not be
    // released.
    if END.try_with(|_| ()).is_ok() {
        let mut owned = OWNED.lock();
        let own = owned.trailing_ones() as usize;
        if own < OWNED_MAX {
            *owned |= 1 << own;
            SLOT.set(own);
            return ThreadSlot::Owned(own);
        }
    }
    SLOT.set(OWNED_MAX + shared());
    current()
}

/// Returns a shared slot computed from the address of a thread-local, which differs between threads
/// that exist at the same time.
fn shared() -> usize {
    SLOT.with(|slot| core::ptr::from_ref(slot).addr().wrapping_mul(GOLDEN_RATIO as usize) >> 16 & 0xffff)
}

/// A guard whose destructor runs at the thread's end.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let own = SLOT.replace(OWNED_MAX + shared());
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
    fn concurrent_threads_own_different_slots() {
        // More threads than slots, in rounds, so that later threads take released slots.
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
            assert_eq!(count, OWNED_MAX, "each slot is owned");
            numbers.sort_unstable_by_key(|number| if let ThreadSlot::Owned(own) = number { *own } else { NONE });
            numbers.dedup();
            assert_eq!(numbers.len(), count, "each once");
        }
    }
}
