//! Small slot numbers for threads: a thread owns its slot as long as the thread lives, while there
//! are free slots. The other threads share slots until one becomes free.
//!
//! A change must ensure that a thread that owns a slot is the only writer of the data that the slot
//! indexes, until `END` is dropped; the lock of `OWNED` orders the writes of successive owners. The
//! thread-locals have no destructor except `END`, so that they can be used late in a thread's life.

use crate::hash::GOLDEN_RATIO;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::Mutex;
use core::cell::Cell;

/// The number of slots that can be owned at one time, in the whole process.
pub const OWNED_MAX: usize = 16;

/// The slot of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadSlot {
    /// No other thread has this slot until this thread ends. The number is below [`OWNED_MAX`].
    Owned(usize),
    /// Other threads may have this slot as well, and this thread may own one at its next call. The
    /// number is below 65,536; a structure takes it modulo the number of its shared slots.
    Shared(usize),
}

/// A bitmap of the slots that are owned.
static OWNED: Mutex<u16> = Mutex::new(0);

/// Whether all slots are owned. Stored under the lock of `OWNED`, and read without. Relaxed: an
/// outdated value costs a lock, or a shared slot for another call.
static ARE_ALL_OWNED: AtomicBool = AtomicBool::new(false);

const _: () = assert!(OWNED_MAX == u16::BITS as usize, "a bit for each slot");

/// The value of `SLOT` of a thread that owns no slot.
const NONE: usize = usize::MAX;

std::thread_local! {
    /// This thread's owned slot, or [`NONE`]. Without a destructor, so that an access needs no
    /// check.
    static SLOT: Cell<usize> = const { Cell::new(NONE) };
    /// Releases the slot when the thread ends.
    static END: End = const { End };
}

/// Returns the calling thread's slot. A thread without an owned slot takes the lowest free one
/// under a lock, or gets a shared one; later calls of an owner only read a thread-local.
#[inline]
pub fn current() -> ThreadSlot {
    owned().map_or_else(owned_or_shared, ThreadSlot::Owned)
}

/// Returns the calling thread's slot if [`current`] has given the thread one of its own.
#[inline]
pub fn owned() -> Option<usize> {
    Some(SLOT.get()).filter(|own| *own < OWNED_MAX)
}

#[cold]
fn owned_or_shared() -> ThreadSlot {
    // A thread whose thread-locals are being destroyed gets no owned slot, since it would not be
    // released.
    if !ARE_ALL_OWNED.load(Ordering::Relaxed) && END.try_with(|_| ()).is_ok() {
        let mut owned = OWNED.lock();
        let own = owned.trailing_ones() as usize;
        if own < OWNED_MAX {
            *owned |= 1 << own;
            ARE_ALL_OWNED.store(*owned == u16::MAX, Ordering::Relaxed);
            SLOT.set(own);
            return ThreadSlot::Owned(own);
        }
    }
    ThreadSlot::Shared(shared())
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
        let own = SLOT.replace(NONE);
        if own < OWNED_MAX {
            let mut owned = OWNED.lock();
            *owned &= !(1 << own);
            ARE_ALL_OWNED.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::sync::Barrier;

    /// Held by each test, as the slots belong to the process.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_thread_takes_over_a_slot_that_becomes_free() {
        let _alone = ALONE.lock();
        let (are_owned, may_end) = (Barrier::new(OWNED_MAX + 1), Barrier::new(OWNED_MAX + 1));
        std::thread::scope(|s| {
            let one = || {
                assert!(matches!(current(), ThreadSlot::Owned(_)));
                are_owned.wait();
                may_end.wait();
            };
            let owners: Vec<_> = (0..OWNED_MAX).map(|_| s.spawn(one)).collect();
            are_owned.wait();
            let late = || {
                assert!(matches!(current(), ThreadSlot::Shared(_)), "all slots are owned");
                assert_eq!(owned(), None);
                may_end.wait();
                owners.into_iter().for_each(|owner| owner.join().unwrap());
                let slot = current();
                assert!(matches!(slot, ThreadSlot::Owned(own) if owned() == Some(own)), "{slot:?}");
            };
            s.spawn(late).join().unwrap();
        });
    }

    #[test]
    fn concurrent_threads_own_different_slots() {
        let _alone = ALONE.lock();
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
