//! A pool of buffers for each thread, shared by the connections of the thread in turn.
//!
//! A connection's turn mostly consumes all input that it reads and writes out all its replies. So
//! two buffers per thread serve all its connections, and stay in the processor's cache. A
//! connection that waits for its client, or for the rest of a command, keeps its buffer if there is
//! something in it; other connections allocate new ones meanwhile.
//!
//! A change must ensure that a pooled buffer is empty, as it had the bytes of another connection,
//! that no pooled buffer has grown, and that each thread keeps two buffers at most: one for input,
//! one for output.

use std::cell::Cell;

/// Capacity of a buffer: enough for many commands, and for many replies.
pub const BUFFER_BYTES: usize = 16 * 1024;

thread_local! {
    /// The buffer that was returned last, and the one before it; without capacity: taken.
    static POOL: [Cell<Vec<u8>>; 2] = const { [Cell::new(Vec::new()), Cell::new(Vec::new())] };
}

/// Takes an empty buffer of capacity [`BUFFER_BYTES`].
#[inline]
pub fn take() -> Vec<u8> {
    let pooled = POOL.with(|[last, older]| match last.take() {
        buffer if buffer.capacity() == 0 => older.take(),
        buffer => buffer,
    });
    match pooled.capacity() {
        0 => Vec::with_capacity(BUFFER_BYTES),
        _ => pooled,
    }
}

/// Returns a buffer to the pool, whatever it contains. A buffer that has grown is freed; so is the
/// older one of two that are there.
#[inline]
pub fn give(mut buffer: Vec<u8>) {
    if buffer.capacity() == BUFFER_BYTES {
        buffer.clear();
        POOL.with(|[last, older]| {
            let before = last.replace(buffer);
            if before.capacity() > 0 {
                older.set(before);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_two_buffers_and_no_grown_one() {
        let taken: Vec<_> = (0..3).map(|_| take()).collect();
        let places: Vec<_> = taken.iter().map(|buffer| buffer.as_ptr()).collect();
        taken.into_iter().for_each(|mut buffer| {
            buffer.push(7);
            give(buffer);
        });
        give(Vec::with_capacity(2 * BUFFER_BYTES));
        let again = [take(), take()];
        assert_eq!(again.each_ref().map(|buffer| buffer.as_ptr()), [places[2], places[1]]);
        assert!(again.iter().all(|buffer| buffer.is_empty() && buffer.capacity() == BUFFER_BYTES));
        assert!(POOL.with(|pool| pool.iter().all(|place| place.take().capacity() == 0)));
    }
}
