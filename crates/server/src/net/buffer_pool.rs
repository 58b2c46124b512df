//! A pool of buffers for each thread, which its connections use in turns.
//!
//! A turn mostly uses up all that it has read and gets rid of all that it has to say, so two
//! buffers a thread do for all its connections, and stay in the processor's cache. A connection
//! that waits, for its client or for the rest of a command, keeps what it needs; others get new
//! ones meanwhile.

use std::cell::RefCell;

/// Capacity of a buffer: enough for many commands, and for many replies.
pub const BUFFER_BYTES: usize = 16 * 1024;

/// Buffers in a pool: one for input, one for output.
const POOLED_MAX: usize = 2;

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Takes an empty buffer of [`BUFFER_BYTES`].
pub fn take() -> Vec<u8> {
    POOL.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
}

/// Puts a buffer back, whatever is in it. A buffer that has grown, or for which the pool has no
/// room, is freed.
pub fn give(mut buffer: Vec<u8>) {
    if buffer.capacity() == BUFFER_BYTES {
        buffer.clear();
        POOL.with_borrow_mut(|spares| {
            if spares.len() < POOLED_MAX {
                spares.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_are_kept_and_none_that_has_grown() {
        let taken: Vec<_> = (0..3).map(|_| take()).collect();
        let places: Vec<_> = taken.iter().map(|buffer| buffer.as_ptr()).collect();
        taken.into_iter().for_each(|mut buffer| {
            buffer.push(7);
            give(buffer);
        });
        give(Vec::with_capacity(2 * BUFFER_BYTES));
        let again = [take(), take()];
        assert_eq!(again.each_ref().map(|buffer| buffer.as_ptr()), [places[1], places[0]]);
        assert!(again.iter().all(|buffer| buffer.is_empty() && buffer.capacity() == BUFFER_BYTES));
        assert!(POOL.with_borrow(Vec::is_empty));
    }
}
