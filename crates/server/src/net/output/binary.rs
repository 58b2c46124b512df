//! Replies of the binary protocol, beside the lines of the text protocol.
//!
//! A change must ensure that a header's lengths are those of what follows it.

use super::{Output, COPIED_BYTES_MAX};
use crate::protocol::binary::header::{Lengths, ReplyTo};
use crate::protocol::binary::status::Status;
use crate::value::Value;

impl Output {
    /// Adds a reply of success, unless the request is quiet.
    pub fn binary_success(&mut self, to: ReplyTo, value: &[u8], unique: u64) {
        if !to.is_quiet {
            self.binary_reply(to, Status::Success, b"", value, unique);
        }
    }

    /// Adds an error, also if the request is quiet. The text is that of the status, unless `text`
    /// tells more.
    pub fn binary_error(&mut self, to: ReplyTo, status: Status, text: Option<&str>) {
        self.binary_reply(to, status, b"", text.unwrap_or(status.text()).as_bytes(), 0);
    }

    /// Adds a reply without extras.
    pub fn binary_reply(&mut self, to: ReplyTo, status: Status, key: &[u8], value: &[u8], unique: u64) {
        self.push(&to.header(status, Lengths { extras: 0, key: key.len(), value: value.len() }, unique));
        self.push(key);
        self.push(value);
        self.trace_reply(to, status);
    }

    /// Adds one of the replies to a `stat`: a name and a value; the last reply has neither.
    pub fn binary_stat(&mut self, to: ReplyTo, name: &str, value: &str) {
        self.binary_reply(to, Status::Success, name.as_bytes(), value.as_bytes(), 0);
    }

    /// Adds the reply to a read that found `value`: its flags are the extras. `key` is empty unless
    /// the reply has it.
    pub fn binary_value(&mut self, to: ReplyTo, key: &[u8], value: &Value, with_value: bool) {
        let length = if with_value { value.len() } else { 0 };
        let flags = value.client_flags().to_be_bytes();
        let lengths = Lengths { extras: flags.len(), key: key.len(), value: length };
        self.push(&to.header(Status::Success, lengths, value.unique()));
        self.push(&flags);
        self.push(key);
        if length > COPIED_BYTES_MAX {
            self.refer_to(value, length);
        } else if with_value {
            value.pieces().for_each(|piece| self.push(piece));
        }
        self.trace_reply(to, Status::Success);
    }

    fn trace_reply(&mut self, to: ReplyTo, status: Status) {
        if let Some(trace) = &mut self.trace {
            let failed = if status.is_failure() { "ERROR " } else { "" };
            let text = if status.text().is_empty() { "success" } else { status.text() };
            trace.note(|| format!("{failed}binary {:#04x}: {:#06x} {text}", to.opcode, status.code()));
            trace.skip_to(self.text.len());
        }
    }
}
