//! The output of a connection: lines, and values by reference.
//!
//! Replies of pipelined commands are collected here and written together. Short values are copied
//! between the lines; long ones are referenced, and written by vectored writes. A referenced value
//! stays in memory even if the cache evicts it meanwhile, so the connection writes its output
//! whenever [`Output::is_full`]: at most [`OUTPUT_BYTES_MAX`] and one value are referenced. Such
//! evicted values are outside the budget; if they become too many, no long value is stored until
//! clients read their replies or disconnect (see [`store::update`](crate::store::update)), or are
//! disconnected (see [`unread_replies`](crate::traffic::unread_replies)).
//!
//! A change must ensure that no byte is lost or repeated when a write is partial, and that the
//! referenced values stay bounded.

mod binary;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::buffer_pool;
use super::trace::Trace;
use crate::protocol::binary::header::ReplyTo;
use crate::protocol::binary::status::Status;
use crate::value::Value;

/// Output of this many bytes is written before the next command runs.
const OUTPUT_BYTES_MAX: usize = 128 * 1024;

/// Maximum number of slices in a write. The kernel accepts 1024; this many pieces of a value are
/// 255 KiB, about twice [`OUTPUT_BYTES_MAX`].
const SLICES_MAX: usize = 64;

/// Values of up to this length are copied: sharing a value costs a reference count that all readers
/// write, and a slice in the vectored write.
const COPIED_BYTES_MAX: usize = 2048;

/// Digits of the largest `u64`.
const DIGITS_MAX: usize = u64::MAX.ilog10() as usize + 1;

/// Length of a `VALUE` line without its key, at most: with three numbers, and a space before each.
const VALUE_LINE_MAX: usize = b"VALUE ".len() + 3 * (1 + DIGITS_MAX) + LINE_END.len();

const LINE_END: &[u8] = b"\r\n";

/// Replies that are not written yet.
#[derive(Debug, Default)]
pub struct Output {
    /// All lines and short values, written ones included until everything is written.
    text: Vec<u8>,
    /// Long values, each with its position in `text`.
    values: VecDeque<(usize, Value)>,
    /// Total bytes of text and values, including values that were written and dropped.
    length: usize,
    /// The part of `length` that belongs to dropped values.
    dropped: usize,
    /// The part of `length` that is written.
    written: usize,
    /// A record of the lines, if they are to be logged.
    trace: Option<Box<Trace>>,
    /// The request of the binary protocol to which statistics are replies, if it is one.
    stats_to: Option<ReplyTo>,
}

impl Output {
    /// Adds a line.
    #[inline]
    pub fn line(&mut self, text: &str) {
        let buffer = self.buffer();
        buffer.reserve(text.len() + LINE_END.len());
        buffer.extend_from_slice(text.as_bytes());
        buffer.extend_from_slice(LINE_END);
        self.length += text.len() + LINE_END.len();
        self.trace_line();
    }

    /// Adds a line that is given with its line end.
    #[inline]
    pub fn ended_line<const N: usize>(&mut self, line: &[u8; N]) {
        debug_assert!(line.ends_with(LINE_END));
        self.push(line);
        self.trace_line();
    }

    /// Records the lines from now on, or no longer.
    #[inline]
    pub fn set_trace(&mut self, is_on: bool) {
        if is_on != self.trace.is_some() {
            let mut trace = Trace::default();
            trace.skip_to(self.text.len());
            self.trace = is_on.then(|| Box::new(trace));
        }
    }

    /// Returns the lines that were recorded since the last call, and the number of lines that were
    /// not kept.
    pub fn take_trace(&mut self) -> (Vec<String>, usize) {
        self.trace.as_mut().map(|trace| trace.take()).unwrap_or_default()
    }

    #[inline]
    fn trace_line(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.end_line(&self.text);
        }
    }

    /// Adds a formatted line.
    pub fn format(&mut self, text: std::fmt::Arguments<'_>) {
        self.text(format_args!("{text}\r\n"));
        self.trace_line();
    }

    /// Makes the statistics that follow replies to a request of the binary protocol, or lines.
    pub fn set_stats_to(&mut self, to: Option<ReplyTo>) {
        self.stats_to = to;
    }

    /// Adds the line `STAT <name> <value>`, or the reply that stands for it.
    pub fn stat(&mut self, name: &str, value: impl std::fmt::Display) {
        match self.stats_to {
            None => self.format(format_args!("STAT {name} {value}")),
            Some(to) => self.binary_stat(to, name, &value.to_string()),
        }
    }

    /// Ends the statistics of a request.
    pub fn end_stats(&mut self) {
        match self.stats_to {
            None => self.line("END"),
            Some(to) => self.binary_stat(to, "", ""),
        }
    }

    /// Ends the statistics of a request with an error of the server.
    pub fn fail_stats(&mut self, why: &str) {
        match self.stats_to {
            None => self.format(format_args!("SERVER_ERROR {why}")),
            Some(to) => self.binary_error(to, Status::TemporaryFailure, Some(why)),
        }
    }

    /// Adds formatted text to the current line.
    pub fn text(&mut self, text: std::fmt::Arguments<'_>) {
        let buffer = self.buffer();
        let before = buffer.len();
        write!(buffer, "{text}").expect("writing to memory does not fail");
        let added = buffer.len() - before;
        self.length += added;
    }

    /// Adds a line with a number that is a stored value: unlike other lines, the number gets into
    /// no log.
    pub fn stored_number(&mut self, number: u64) {
        self.text(format_args!("{number}\r\n"));
        if let Some(trace) = &mut self.trace {
            trace.sends_number();
            trace.skip_to(self.text.len());
        }
    }

    /// Adds bytes to the current line.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer().extend_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Adds `VALUE <key> <flags> <length> [<unique>]` and the value's bytes.
    pub fn value(&mut self, key: &[u8], value: &Value, unique: bool) {
        let short = value.only_piece().filter(|bytes| bytes.len() <= COPIED_BYTES_MAX);
        let length = short.map_or_else(|| value.len(), <[u8]>::len);
        let buffer = self.buffer();
        let before = buffer.len();
        buffer.reserve(VALUE_LINE_MAX + key.len() + short.map_or(0, |bytes| bytes.len() + LINE_END.len()));
        buffer.extend_from_slice(b"VALUE ");
        buffer.extend_from_slice(key);
        push_number(buffer, value.client_flags().into());
        push_number(buffer, length as u64);
        if unique {
            push_number(buffer, value.unique());
        }
        buffer.extend_from_slice(LINE_END);
        if let Some(bytes) = short {
            buffer.extend_from_slice(bytes);
            buffer.extend_from_slice(LINE_END);
        }
        let added = buffer.len() - before;
        self.length += added;
        if let Some(trace) = &mut self.trace {
            trace.sends_key(key);
            trace.skip_to(self.text.len());
        }
        if short.is_none() {
            self.data_of(value, length);
        }
    }

    /// Adds the value's bytes and a line end.
    pub fn data(&mut self, value: &Value) {
        self.data_of(value, value.len());
    }

    fn data_of(&mut self, value: &Value, length: usize) {
        if length <= COPIED_BYTES_MAX {
            value.pieces().for_each(|piece| self.push(piece));
        } else {
            self.refer_to(value, length);
        }
        self.push(LINE_END);
        if let Some(trace) = &mut self.trace {
            trace.skip_to(self.text.len());
        }
    }

    /// Adds the bytes of a long value, without a copy.
    #[inline]
    fn refer_to(&mut self, value: &Value, length: usize) {
        self.values.push_back((self.text.len(), value.clone()));
        self.length += length;
    }

    /// Returns whether the output should be written before more is added.
    pub fn is_full(&self) -> bool {
        self.unwritten() >= OUTPUT_BYTES_MAX
    }

    /// Returns the number of bytes that are not written yet.
    pub fn unwritten(&self) -> usize {
        self.length - self.written
    }

    /// Returns the bytes of the values to which the output refers.
    pub fn referred_bytes(&self) -> u64 {
        self.values.iter().map(|(_, value)| value.len() as u64).sum()
    }

    /// Writes once, by `write`. Returns whether everything is written.
    ///
    /// # Errors
    ///
    /// Those of `write`, except `WouldBlock`.
    #[inline]
    pub fn try_write(&mut self, write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<bool> {
        if self.unwritten() > 0 {
            match self.with_slices(write) {
                Ok(written) => self.advance(written),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                Err(why) => return Err(why),
            }
        }
        Ok(self.unwritten() == 0)
    }

    /// Writes all output and flushes the stream, as one with TLS may still hold the end of what was
    /// written. Passes the number of bytes of each write to `note`: a client may leave before the
    /// last one.
    ///
    /// # Errors
    ///
    /// The connection failed.
    pub async fn flush(&mut self, to: &mut (impl AsyncWrite + Unpin), mut note: impl FnMut(usize)) -> io::Result<()> {
        if self.unwritten() == 0 {
            return Ok(());
        }
        while self.unwritten() > 0 {
            let written =
                poll_fn(|cx| self.with_slices(|slices| Pin::new(&mut *to).poll_write_vectored(cx, slices))).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.advance(written);
            note(written);
        }
        to.flush().await
    }

    #[inline]
    fn buffer(&mut self) -> &mut Vec<u8> {
        if self.text.capacity() == 0 {
            self.text = buffer_pool::take();
        }
        &mut self.text
    }

    /// Calls `write` with the front of the remaining output, as slices.
    #[inline]
    fn with_slices<T>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        if self.values.is_empty() {
            return write(&[IoSlice::new(&self.text[self.written - self.dropped..])]);
        }
        // Built again for each attempt, so that a connection that waits does not store a kilobyte
        // of slices.
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = self.slices(&mut slices);
        write(&slices[..count])
    }

    /// Fills `slices` from the front of the remaining output, and returns the number of slices
    /// used.
    fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut count = 0;
        let mut skip = self.written - self.dropped;
        let mut from = 0;
        let end = (self.text.len(), None);
        let values = self.values.iter().map(|(at, value)| (*at, Some(value)));
        for (at, value) in values.chain([end]) {
            let text = &self.text[from..at];
            from = at;
            count += fill(&mut slices[count..], [&text[skip.min(text.len())..]].into_iter());
            skip = skip.saturating_sub(text.len());
            if let Some(value) = value {
                let skipped = skip.min(value.len());
                count += fill(&mut slices[count..], value.pieces_from(skipped));
                skip -= skipped;
            }
            if count == SLICES_MAX {
                break;
            }
        }
        count
    }

    /// Marks `written` more bytes as written. Drops values that are written completely, and resets
    /// the output when everything is written.
    #[inline]
    fn advance(&mut self, written: usize) {
        self.written += written;
        while let Some((at, value)) = self.values.front() {
            let end = self.dropped + at + value.len();
            if self.written < end {
                break;
            }
            self.dropped += value.len();
            self.values.pop_front();
        }
        if self.written == self.length {
            buffer_pool::give(std::mem::take(&mut self.text));
            (self.length, self.dropped, self.written) = (0, 0, 0);
            if let Some(trace) = &mut self.trace {
                trace.skip_to(0);
            }
        }
    }
}

/// Puts `bytes`, without empty ones, into `slices` as long as there are free ones. Returns the
/// number of slices filled.
fn fill<'a>(slices: &mut [IoSlice<'a>], bytes: impl Iterator<Item = &'a [u8]>) -> usize {
    let mut count = 0;
    for (slice, bytes) in slices.iter_mut().zip(bytes.filter(|bytes| !bytes.is_empty())) {
        *slice = IoSlice::new(bytes);
        count += 1;
    }
    count
}

/// Adds a space and a number. `core::fmt` would take longer than all other work of a `get` for its
/// line.
#[inline]
fn push_number(buffer: &mut Vec<u8>, mut number: u64) {
    if number < 10 {
        return buffer.extend_from_slice(&[b' ', b'0' + number as u8]);
    }
    // Put together from the end. A space is at the front already.
    let mut text = [b' '; 1 + DIGITS_MAX];
    let mut at = text.len();
    while number > 0 {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    buffer.extend_from_slice(&text[at - 1..]);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use super::*;
    use crate::value::data::Data;
    use crate::value::item_flags::ItemFlags;
    use crate::value::piece_pool::PiecePool;

    /// A writer that accepts at most `step` bytes per write, and sends nothing before it is
    /// flushed.
    struct Slow {
        step: usize,
        held: Vec<u8>,
        sent: Vec<u8>,
    }

    impl AsyncWrite for Slow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.step);
            self.held.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            let Self { held, sent, .. } = self.get_mut();
            sent.append(held);
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn buffered_and_partial_writes_neither_lose_nor_repeat_a_byte() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let pool = Arc::new(PiecePool::new(0));
        for step in [1, 7, 4088, 100_000] {
            let mut slow = Slow { step, held: Vec::new(), sent: Vec::new() };
            let mut output = Output::default();
            let mut expected = Vec::new();
            for length in [0, 10, 2049, 4088, 8176, 50_000] {
                let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
                let value = Value::new(b"k", 3, ItemFlags::default(), u64::MAX, &Data::copy(&bytes, &pool));
                output.value(b"k", &value, length == 10);
                output.line("END");
                let unique = if length == 10 { format!(" {}", u64::MAX) } else { String::new() };
                expected.extend(format!("VALUE k 3 {length}{unique}\r\n").bytes());
                expected.extend(bytes);
                expected.extend(b"\r\nEND\r\n");
            }
            assert_eq!(output.unwritten(), expected.len());
            let mut noted = 0;
            runtime.block_on(output.flush(&mut slow, |written| noted += written)).unwrap();
            assert!(slow.sent == expected, "at {step} bytes a write the stream differs");
            assert_eq!(noted, expected.len());
            assert_eq!(output.unwritten(), 0);
            runtime.block_on(output.flush(&mut slow, |_| panic!("nothing is left"))).unwrap();
            assert!(slow.sent.len() == expected.len(), "everything was written once");
        }
    }

    #[test]
    fn a_socket_that_is_ready_takes_short_output_at_once() {
        let mut output = Output::default();
        let never = |_: &[IoSlice<'_>]| panic!("nothing is to be written");
        assert!(output.try_write(never).unwrap());
        output.line("STORED");
        assert!(!output.try_write(|_| Err(io::ErrorKind::WouldBlock.into())).unwrap());
        assert!(output.try_write(|_| Err(io::ErrorKind::BrokenPipe.into())).is_err());
        assert!(!output.try_write(|slices| Ok(slices[0].len() - 2)).unwrap());
        assert_eq!(output.unwritten(), 2);
        let rest = |slices: &[IoSlice<'_>]| {
            assert!(matches!(slices, [only] if **only == *b"\r\n"));
            Ok(2)
        };
        assert!(output.try_write(rest).unwrap());
        let long = Data::copy(&[7; COPIED_BYTES_MAX + 1], &Arc::new(PiecePool::new(0)));
        output.value(b"k", &Value::new(b"k", 0, ItemFlags::default(), 1, &long), false);
        output.line("END");
        let lengths = |slices: &[IoSlice<'_>]| slices.iter().map(|slice| slice.len()).collect::<Vec<_>>();
        let in_the_value = |slices: &[IoSlice<'_>]| {
            assert_eq!(lengths(slices), [16, COPIED_BYTES_MAX + 1, 7], "a long value is not copied");
            Ok(16 + 2000)
        };
        assert!(!output.try_write(in_the_value).unwrap());
        let after_the_value = |slices: &[IoSlice<'_>]| {
            assert_eq!(lengths(slices), [COPIED_BYTES_MAX + 1 - 2000, 7]);
            Ok(COPIED_BYTES_MAX + 1 - 2000 + 3)
        };
        assert!(!output.try_write(after_the_value).unwrap());
        let rest = |slices: &[IoSlice<'_>]| {
            assert!(matches!(slices, [only] if **only == *b"ND\r\n"));
            Ok(4)
        };
        assert!(output.try_write(rest).unwrap());
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 9, 10, 99, 100, 65_536, u64::MAX] {
            let mut text = Vec::new();
            push_number(&mut text, number);
            assert_eq!(text, format!(" {number}").as_bytes());
        }
    }

    #[test]
    fn a_record_has_no_value_and_no_stored_number() {
        let mut output = Output::default();
        output.set_trace(true);
        output.line("END");
        output.stored_number(1_234_567);
        output.text(format_args!("VA 7"));
        output.line("");
        output.stored_number(1_234_567);
        output.line("STORED");
        let lines = ["END", "sending number", "VA 7", "sending number", "STORED"].map(str::to_owned);
        assert_eq!(output.take_trace(), (lines.to_vec(), 0));
        assert_eq!(output.text, b"END\r\n1234567\r\nVA 7\r\n1234567\r\nSTORED\r\n");
    }
}
