//! Received bytes that are not decoded yet.
//!
//! The decoder reads from the input and `advance`s it. A connection holds a buffer only while a
//! part of a command is in it; empty buffers are in the thread's [`buffer_pool`]. The buffer's
//! growth per read is bounded; its size is bounded by the longest line that the decoder accepts.
//!
//! A change must ensure that an empty input holds no buffer.

use std::future::Future;
use std::io;
use std::ops::Deref;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt};

use super::buffer_pool;

/// Maximum growth of the buffer per read, however long the line in progress is.
const READ_BYTES_MAX: usize = 64 * 1024;

/// The input of a connection.
#[derive(Debug, Default)]
pub struct Input(Vec<u8>);

impl Input {
    /// Reads once, appending to the buffer, and returns the number of bytes read; 0 at the end of
    /// the stream.
    pub fn poll_read(&mut self, from: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.0.capacity() == 0 {
            self.0 = buffer_pool::take();
        }
        if self.is_full() {
            self.0.reserve_exact(self.0.capacity().min(READ_BYTES_MAX));
        }
        let read = pin!(from.read_buf(&mut self.0)).poll(cx);
        self.rest();
        read
    }

    /// Returns whether the buffer is full, so that the last read may have left bytes in the socket;
    /// also true without a buffer.
    pub fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    /// Removes the first `bytes` bytes, which are decoded.
    pub fn advance(&mut self, bytes: usize) {
        self.0.drain(..bytes);
        self.rest();
    }

    /// Returns the buffer to the pool if it is empty. A buffer that has grown is freed there.
    fn rest(&mut self) {
        if self.0.is_empty() {
            buffer_pool::give(std::mem::take(&mut self.0));
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
    use crate::net::buffer_pool::BUFFER_BYTES;

    #[test]
    fn an_empty_input_returns_its_buffer_to_the_pool() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = |input: &mut Input, mut from: &[u8]| match input.poll_read(&mut from, &mut cx) {
            Poll::Ready(Ok(read)) => read,
            other => panic!("{other:?}"),
        };
        let (mut one, mut other) = (Input::default(), Input::default());
        assert_eq!((read(&mut one, b"get a"), &*one), (5, &b"get a"[..]));
        let buffer = one.as_ptr();
        assert_eq!(read(&mut other, b"get b\r\n"), 7);
        assert_ne!(other.as_ptr(), buffer, "the first input still holds the buffer");
        other.advance(3);
        assert_eq!(&*other, b" b\r\n");
        other.advance(4);
        assert_eq!((other.0.capacity(), read(&mut one, b"\r\n")), (0, 2));
        assert_eq!((&*one, one.as_ptr()), (&b"get a\r\n"[..], buffer));
        one.advance(7);
        // If the buffer had been freed, this allocation would probably get its memory.
        let _taken = Vec::<u8>::with_capacity(BUFFER_BYTES);
        assert_eq!((read(&mut other, b"x"), other.as_ptr()), (1, buffer), "the buffer that was returned last");
    }

    #[test]
    fn a_long_line_grows_the_buffer_which_is_not_pooled() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut input = Input::default();
        for _ in 0..3 {
            let mut from = &[b'x'; 200_000][..];
            assert!(matches!(input.poll_read(&mut from, &mut cx), Poll::Ready(Ok(1..=READ_BYTES_MAX))));
            assert!(input.is_full());
        }
        assert_eq!(input.len(), 4 * BUFFER_BYTES);
        input.advance(4 * BUFFER_BYTES);
        assert_eq!(input.0.capacity(), 0);
    }
}
