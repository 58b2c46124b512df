//! Received bytes that are not decoded yet.
//!
//! The decoder reads from the input and `advance`s it. A connection holds a buffer only while a
//! part of a command is in it; empty buffers are in the thread's [`buffer_pool`]. The buffer's
//! growth per read is bounded; its size is bounded by the longest line that the decoder accepts.
//!
//! A change must ensure that an empty input holds no buffer.

use std::io;
use std::ops::Deref;
use std::task::{ready, Context, Poll};

use super::buffer_pool;
use super::stream::Stream;

/// Maximum growth of the buffer per read, however long the line in progress is.
const READ_BYTES_MAX: usize = 64 * 1024;

/// The input of a connection.
#[derive(Debug, Default)]
pub struct Input {
    buffer: Vec<u8>,
    /// The last read did not fill the buffer.
    is_drained: bool,
}

impl Input {
    /// Reads once, appending to the buffer, and returns the number of bytes read; 0 at the end of
    /// the stream.
    pub fn poll_read(&mut self, from: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if std::mem::take(&mut self.is_drained) {
            // Most often nothing has arrived yet, and then no buffer is needed.
            ready!(from.poll_read_ready(cx))?;
        }
        let read = self.fill(|buffer| from.poll_read_buf(cx, buffer));
        self.is_drained = !self.is_full();
        read
    }

    /// Calls `read` with a buffer that has room.
    fn fill<T>(&mut self, read: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        if self.buffer.capacity() == 0 {
            self.buffer = buffer_pool::take();
        }
        if self.is_full() {
            self.buffer.reserve_exact(self.buffer.capacity().min(READ_BYTES_MAX));
        }
        let read = read(&mut self.buffer);
        self.rest();
        read
    }

    /// Returns whether the buffer is full, so that the last read may have left bytes in the socket;
    /// also true without a buffer.
    pub fn is_full(&self) -> bool {
        self.buffer.len() == self.buffer.capacity()
    }

    /// Removes the first `bytes` bytes, which are decoded.
    #[inline]
    pub fn advance(&mut self, bytes: usize) {
        match bytes == self.buffer.len() {
            true => self.buffer.clear(),
            false => drop(self.buffer.drain(..bytes)),
        }
        self.rest();
    }

    /// Returns the buffer to the pool if it is empty. A buffer that has grown is freed there.
    #[inline]
    fn rest(&mut self) {
        if self.buffer.is_empty() {
            buffer_pool::give(std::mem::take(&mut self.buffer));
        }
    }
}

impl Deref for Input {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::buffer_pool::BUFFER_BYTES;

    /// Reads bytes as a socket that has `bytes`: as many as the buffer has room for.
    fn read(input: &mut Input, bytes: &[u8]) -> usize {
        input.fill(|buffer| {
            let read = bytes.len().min(buffer.capacity() - buffer.len());
            buffer.extend_from_slice(&bytes[..read]);
            read
        })
    }

    #[test]
    fn an_empty_input_returns_its_buffer_to_the_pool() {
        let (mut one, mut other) = (Input::default(), Input::default());
        assert_eq!((read(&mut one, b"get a"), &*one), (5, &b"get a"[..]));
        let buffer = one.as_ptr();
        assert_eq!(read(&mut other, b"get b\r\n"), 7);
        assert_ne!(other.as_ptr(), buffer, "the first input still holds the buffer");
        other.advance(3);
        assert_eq!(&*other, b" b\r\n");
        other.advance(4);
        assert_eq!((other.buffer.capacity(), read(&mut one, b"\r\n")), (0, 2));
        assert_eq!((&*one, one.as_ptr()), (&b"get a\r\n"[..], buffer));
        one.advance(7);
        // If the buffer had been freed, this allocation would probably get its memory.
        let _taken = Vec::<u8>::with_capacity(BUFFER_BYTES);
        assert_eq!((read(&mut other, b"x"), other.as_ptr()), (1, buffer), "the buffer that was returned last");
    }

    #[test]
    fn a_long_line_grows_the_buffer_which_is_not_pooled() {
        let mut input = Input::default();
        for _ in 0..3 {
            assert!((1..=READ_BYTES_MAX).contains(&read(&mut input, &[b'x'; 200_000])));
            assert!(input.is_full());
        }
        assert_eq!(input.len(), 4 * BUFFER_BYTES);
        input.advance(4 * BUFFER_BYTES);
        assert_eq!(input.buffer.capacity(), 0);
    }
}
