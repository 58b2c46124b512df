//! Small numbers for threads: what one has no other has while it lives, as long as there are numbers.

use std::cell::Cell;

use parking_lot::Mutex;

/// Numbers that are had alone.
pub(super) const OWN: usize = 16;

/// A thread's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// Nobody else has it.
    Own(usize),
    /// Others may have it too.
    Shared(usize),
}

/// One bit for each number that is had.
static HAD: Mutex<u16> = Mutex::new(0);

const _: () = assert!(OWN == u16::BITS as usize, "a bit for each number");

/// No number was asked for yet.
const NONE: usize = usize::MAX;

thread_local! {
    /// This thread's number, from [`OWN`] on a shared one. No destructor, so that asking costs nothing.
    static HERE: Cell<usize> = const { Cell::new(NONE) };
    /// Gives the number back.
    static END: End = const { End };
}

/// The calling thread's number.
#[inline]
pub(super) fn number() -> Number {
    match HERE.get() {
        own if own < OWN => Number::Own(own),
        NONE => first(),
        shared => Number::Shared(shared - OWN),
    }
}

/// The calling thread's number, if nobody else has it, and it has been asked for before.
#[inline]
pub(super) fn own_number() -> Option<usize> {
    Some(HERE.get()).filter(|own| *own < OWN)
}

#[cold]
fn first() -> Number {
    // A thread whose end has begun has no number of its own: nobody would give it back.
    if END.try_with(|_| ()).is_ok() {
        let mut had = HAD.lock();
        let own = had.trailing_ones() as usize;
        if own < OWN {
            *had |= 1 << own;
            HERE.set(own);
            return Number::Own(own);
        }
    }
    HERE.set(OWN + shared());
    number()
}

/// A number from the address of a thread-local, which differs between threads that live at one time.
fn shared() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr().wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as usize) >> 16 & 0xffff)
}

/// The thread's end.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let own = HERE.replace(OWN + shared());
        if own < OWN {
            *HAD.lock() &= !(1 << own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn threads_that_live_at_one_time_have_different_numbers_of_their_own() {
        let together = Barrier::new(40);
        for _ in 0..3 {
            let mut numbers: Vec<_> = std::thread::scope(|s| {
                let one = || {
                    let number = number();
                    assert_eq!(number, super::number());
                    together.wait();
                    number
                };
                let threads: Vec<_> = (0..40).map(|_| s.spawn(one)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            numbers.retain(|number| matches!(number, Number::Own(_)));
            let count = numbers.len();
            assert!(count <= OWN);
            numbers.sort_unstable_by_key(|number| if let Number::Own(own) = number { *own } else { NONE });
            numbers.dedup();
            assert_eq!(numbers.len(), count, "each once");
        }
    }
}
