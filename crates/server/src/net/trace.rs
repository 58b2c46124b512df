//! A record of the reply lines of a command, for the log.
//!
//! It exists only while commands are logged. A change must ensure that its memory is bounded
//! whatever a reply contains, and that no value's bytes get into the log.

use crate::log::SENT_BYTES_MAX;

/// The most lines that are kept of a command's reply. Of a longer reply, the log has these, and the
/// number of those that were left out.
const LINES_MAX: usize = 8;

/// The reply lines that were added to an output since the last [`take`](Self::take).
#[derive(Debug, Default)]
pub struct Trace {
    lines: Vec<String>,
    /// Lines that are not kept.
    omitted: usize,
    /// The position in the output's text at which the current line begins.
    line_start: usize,
}

impl Trace {
    /// Records the line that ends the `text` of the output, if it is not empty.
    pub fn end_line(&mut self, text: &[u8]) {
        let line = &text[self.line_start.min(text.len())..];
        let line = line.strip_suffix(b"\r\n").unwrap_or(line);
        self.keep(line.len(), || line[..line.len().min(SENT_BYTES_MAX)].escape_ascii().to_string());
        self.line_start = text.len();
    }

    /// Records that the value of `key` is sent, as memcached does. The bytes are not recorded.
    pub fn sends_key(&mut self, key: &[u8]) {
        self.keep(key.len(), || format!("sending key {}", key.escape_ascii()));
    }

    /// Records that a number is sent, which is a value. Its digits are not recorded.
    pub fn sends_number(&mut self) {
        self.keep(1, || "sending number".to_owned());
    }

    /// Records a reply that is no line.
    pub fn note(&mut self, text: impl FnOnce() -> String) {
        self.keep(1, text);
    }

    /// Skips bytes that are no line: the output's text ends at `end` now.
    pub fn skip_to(&mut self, end: usize) {
        self.line_start = end;
    }

    /// Returns the recorded lines, and the number of those that are not kept.
    pub fn take(&mut self) -> (Vec<String>, usize) {
        (std::mem::take(&mut self.lines), std::mem::take(&mut self.omitted))
    }

    fn keep(&mut self, length: usize, line: impl FnOnce() -> String) {
        if length == 0 {
            return;
        }
        if self.lines.len() < LINES_MAX {
            self.lines.push(line());
        } else {
            self.omitted += 1;
        }
    }
}
