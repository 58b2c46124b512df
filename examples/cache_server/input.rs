//! What a client has sent and nobody has looked at yet.
//!
//! A turn mostly uses up all it has read, so each thread has one buffer, which goes from one connection to the next and stays in the
//! processor's cache. A connection keeps it only while a part of a command is in it; the next one gets another.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::ops::Deref;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt};

/// Taken when the first bytes arrive; enough for many commands.
const INPUT_BYTES: usize = 16 * 1024;

/// A read fills at most so much, however long the line in progress is.
const READ_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    /// The thread's buffer, while no connection has it.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A connection's input.
#[derive(Debug, Default)]
pub struct Input(Vec<u8>);

impl Input {
    /// Reads once, behind what is there: how many bytes that brought; 0 at the connection's end.
    pub fn poll_read(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.0.capacity() == 0 {
            self.0 = SPARE.take();
        }
        if self.is_full() {
            let more = self.0.capacity().clamp(INPUT_BYTES, READ_BYTES_MAX);
            self.0.reserve_exact(more);
        }
        let read = pin!(from.read_buf(&mut self.0)).poll(cx);
        self.rest();
        read
    }

    /// Whether the last read may have left something behind for want of room.
    pub fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    /// The first `bytes` of it were looked at.
    pub fn advance(&mut self, bytes: usize) {
        self.0.drain(..bytes);
        self.rest();
    }

    /// Leaves the buffer to others while there is nothing in it.
    fn rest(&mut self) {
        if self.0.is_empty() {
            let buffer = std::mem::take(&mut self.0);
            if buffer.capacity() == INPUT_BYTES {
                SPARE.set(buffer);
            }
        }
    }
}

impl Deref for Input {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_buffer_goes_from_hand_to_hand() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = |input: &mut Input, mut from: &[u8]| match input.poll_read(&mut from, &mut cx) {
            Poll::Ready(Ok(read)) => read,
            other => panic!("{other:?}"),
        };
        let (mut one, mut other) = (Input::default(), Input::default());
        assert_eq!((read(&mut one, b"get a"), &*one), (5, &b"get a"[..]));
        let buffer = one.as_ptr();
        assert_eq!(read(&mut other, b"get b\r\n"), 7);
        assert_ne!(other.as_ptr(), buffer, "the first still has it");
        other.advance(3);
        assert_eq!(&*other, b" b\r\n");
        other.advance(4);
        assert_eq!((other.0.capacity(), read(&mut one, b"\r\n")), (0, 2));
        assert_eq!((&*one, one.as_ptr()), (&b"get a\r\n"[..], buffer));
        one.advance(7);
        assert_eq!((read(&mut other, b"x"), other.as_ptr()), (1, buffer), "the last that was left");
    }

    #[test]
    fn a_long_line_makes_it_grow_and_is_not_left_to_others() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut input = Input::default();
        for _ in 0..3 {
            let mut from = &[b'x'; 200_000][..];
            assert!(matches!(input.poll_read(&mut from, &mut cx), Poll::Ready(Ok(1..=READ_BYTES_MAX))));
            assert!(input.is_full());
        }
        assert_eq!(input.len(), 4 * INPUT_BYTES);
        input.advance(4 * INPUT_BYTES);
        assert_eq!((input.0.capacity(), SPARE.take().capacity()), (0, 0));
    }
}
