//! What is to be written to a client: lines, and values from where they lie.
//!
//! Replies of pipelined commands gather here and leave in one vectored write. Short values are copied between the lines;
//! long ones are held by reference, not copied. A held value stays in memory even if the cache drops it meanwhile, so the
//! connection writes out whenever [`Output::is_full`] says so: at most [`OUTPUT_BYTES_MAX`] and one value are held. What is held like
//! that is in no budget; when it is too much, nothing long is stored until somebody reads, or leaves ([`store`](crate::store)).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;

use tokio::io::AsyncWrite;

use crate::value::Value;

/// Replies of so many bytes are written out before the next command is looked at.
const OUTPUT_BYTES_MAX: usize = 128 * 1024;

/// Slices for one write; the kernel takes up to 1024, but this many pieces are more than a socket buffer takes.
const SLICES_MAX: usize = 64;

/// Text kept from one batch to the next; more is given back.
const TEXT_KEPT_BYTES_MAX: usize = 4096;

/// Replies on their way out.
#[derive(Debug, Default)]
pub struct Output {
    parts: VecDeque<Part>,
    /// Of the first part: bytes already written.
    written: usize,
    /// All parts, less what is written.
    length: usize,
}

#[derive(Debug)]
enum Part {
    Text(Vec<u8>),
    Value(Value),
}

impl Output {
    /// Adds one line.
    pub fn line(&mut self, text: &str) {
        self.push(text.as_bytes());
        self.push(b"\r\n");
    }

    /// Adds one line, formatted.
    pub fn format(&mut self, text: std::fmt::Arguments<'_>) {
        self.text(format_args!("{text}\r\n"));
    }

    /// Adds to a line, formatted.
    pub fn text(&mut self, text: std::fmt::Arguments<'_>) {
        let buffer = self.buffer();
        let before = buffer.len();
        write!(buffer, "{text}").expect("writing to memory does not fail");
        let added = buffer.len() - before;
        self.length += added;
    }

    /// Adds to a line.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer().extend_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Adds `VALUE <key> <flags> <length> [<unique>]` and the bytes.
    pub fn value(&mut self, key: &[u8], value: &Value, unique: bool) {
        self.push(b"VALUE ");
        self.push(key);
        let (flags, length) = (value.flags(), value.len());
        if unique {
            self.format(format_args!(" {flags} {length} {}", value.unique()));
        } else {
            self.format(format_args!(" {flags} {length}"));
        }
        self.data(value);
    }

    /// Adds the bytes, and a line's end.
    pub fn data(&mut self, value: &Value) {
        if let Some(short) = value.short() {
            self.push(short);
        } else {
            self.parts.push_back(Part::Value(value.clone()));
            self.length += value.len();
        }
        self.push(b"\r\n");
    }

    /// Whether it should be written out before more is added.
    pub fn is_full(&self) -> bool {
        self.length >= OUTPUT_BYTES_MAX
    }

    /// Writes everything out, and says how much that was.
    ///
    /// # Errors
    ///
    /// The client is gone.
    pub async fn flush(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<u64> {
        let total = self.length;
        while self.length > 0 {
            // Made again for each try, so that who waits does not keep a kilobyte of them.
            let written = poll_fn(|cx| {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = self.slices(&mut slices);
                Pin::new(&mut *to).poll_write_vectored(cx, &slices[..count])
            })
            .await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.advance(written);
        }
        Ok(total as u64)
    }

    /// The text at the end; a new one behind a value.
    fn buffer(&mut self) -> &mut Vec<u8> {
        if !matches!(self.parts.back(), Some(Part::Text(_))) {
            self.parts.push_back(Part::Text(Vec::new()));
        }
        match self.parts.back_mut() {
            Some(Part::Text(text)) => text,
            _ => unreachable!("a text was just put there"),
        }
    }

    /// Fills `slices` from the front of the output; how many it filled.
    fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut count = 0;
        for (index, part) in self.parts.iter().enumerate() {
            let skip = if index == 0 { self.written } else { 0 };
            match part {
                Part::Text(text) => count += fill(&mut slices[count..], [&text[skip..]].into_iter()),
                Part::Value(value) => count += fill(&mut slices[count..], value.pieces_from(skip)),
            }
            if count == SLICES_MAX {
                break;
            }
        }
        count
    }

    fn advance(&mut self, written: usize) {
        self.length -= written;
        self.written += written;
        while let Some(part) = self.parts.pop_front() {
            let length = match &part {
                Part::Text(text) => text.len(),
                Part::Value(value) => value.len(),
            };
            if self.written < length {
                self.parts.push_front(part);
                return;
            }
            self.written -= length;
            if let (Part::Text(mut text), true) = (part, self.parts.is_empty()) {
                // The last text stays, as the next batch's first.
                text.clear();
                text.shrink_to(TEXT_KEPT_BYTES_MAX);
                self.parts.push_back(Part::Text(text));
                return;
            }
        }
    }
}

fn fill<'a>(slices: &mut [IoSlice<'a>], bytes: impl Iterator<Item = &'a [u8]>) -> usize {
    let mut count = 0;
    for (slice, bytes) in slices.iter_mut().zip(bytes.filter(|bytes| !bytes.is_empty())) {
        *slice = IoSlice::new(bytes);
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use super::*;
    use crate::data::Data;
    use crate::stash::Stash;
    use crate::value::Marks;

    /// Takes `step` bytes a write.
    struct Slow {
        step: usize,
        taken: Vec<u8>,
    }

    impl AsyncWrite for Slow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.step);
            self.taken.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn partial_writes_neither_lose_nor_repeat_a_byte() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let stash = Arc::new(Stash::new(0));
        for step in [1, 7, 4088, 100_000] {
            let mut slow = Slow { step, taken: Vec::new() };
            let mut output = Output::default();
            let mut expected = Vec::new();
            for length in [0, 10, 2049, 4088, 8176, 50_000] {
                let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
                let value = Value::new(b"k", 3, Marks::default(), 9, &Data::copy(&bytes, &stash));
                output.value(b"k", &value, length == 10);
                output.line("END");
                let unique = if length == 10 { " 9" } else { "" };
                expected.extend(format!("VALUE k 3 {length}{unique}\r\n").bytes());
                expected.extend(bytes);
                expected.extend(b"\r\nEND\r\n");
            }
            let written = runtime.block_on(output.flush(&mut slow)).unwrap();
            assert_eq!(written, expected.len() as u64);
            assert!(slow.taken == expected, "at {step} bytes a write the stream differs");
            assert_eq!(runtime.block_on(output.flush(&mut slow)).unwrap(), 0, "everything was written once");
        }
    }
}
