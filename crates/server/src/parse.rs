//! From bytes to commands: pure, no socket, no clock, no cache.
//!
//! ```text
//!   bytes --> Decoder (stream: lines, blocks, what to swallow) --> line::command (one line) --> Command
//!                                                    meta (mg ms md ma me mn), base64, number (as strtoull)
//! ```
//!
//! Keys are slices of the connection's buffer; only a store command's key is copied, for its block may arrive much later.
//!
//! # How we differ from memcached 1.6.18
//!
//! 1. Numbers that do not fit are refused; there, flags, lengths and times wrap at 32 bits (a date after 2038 is in the past).
//! 2. The block behind a store line with a bad key, flags or time is swallowed; there, it is run as commands. An `ms` with an opaque
//!    or a number of flags that is too large is such a line; an `mg` or `ma` with such an opaque does nothing but say so.
//! 3. Keys with control characters are refused, as its `protocol.txt` says; there, they are taken. Keys in base64 may have any bytes.
//! 4. A line that is too long is answered before the connection closes; a `get` may have 256 KiB of keys, not any number.
//! 5. A `get` with a bad key gets its error; there, replies of earlier commands that were still waiting are lost with it.
//! 6. A value that is too large is refused when its line has come; there, when its block has.
//!
//! Of the commands that both have, all other replies to a line are equal byte for byte; `ci/memcached.sh` compares them.

pub mod base64;
mod control;
mod decoder;
mod gate;
mod line;
mod meta;
pub mod number;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use decoder::{item_bytes, Block, Decoder, Step};
pub use gate::{Gate, Knock};
pub use meta::{Meta, MetaStore, MetaVerb};

/// memcached's limit, and that of the clients which check it.
pub const KEY_BYTES_MAX: usize = 250;

/// One line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets` (with each value's unique number), `gat`, `gats` (with a new exptime for all keys).
    Get {
        keys: Keys<'a>,
        unique: bool,
        touch: Option<i64>,
    },
    /// A line that announces a block of data; the decoder keeps it until the block is complete.
    Store(Store<'a>),
    Delete {
        key: &'a [u8],
        noreply: bool,
    },
    /// `incr` or `decr`.
    Arithmetic {
        key: &'a [u8],
        increment: bool,
        delta: u64,
        noreply: bool,
    },
    Touch {
        key: &'a [u8],
        exptime: i64,
        noreply: bool,
    },
    /// Now, or when `exptime` comes.
    FlushAll {
        exptime: i64,
        noreply: bool,
    },
    Verbosity {
        level: u32,
        noreply: bool,
    },
    Stats {
        topic: Option<&'a [u8]>,
        argument: Option<&'a [u8]>,
    },
    Version,
    Quit,
    /// `mg`, `md`, `ma`.
    Meta(Meta<'a>),
    /// `me`
    MetaDebug {
        key: Cow<'a, [u8]>,
    },
    /// `mn`
    MetaNoop,
    /// `cache_memlimit`
    MemoryLimit {
        megabytes: u32,
        noreply: bool,
    },
    /// `tenant set`: the words behind the name are not read yet.
    TenantSet {
        name: &'a [u8],
        limits: Keys<'a>,
    },
    TenantList,
    WatchEvictions,
    /// `lru_crawler`; not of everything, that is of nothing.
    Crawl {
        crawl: Crawl,
        everything: bool,
    },
}

/// What is done with each value there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crawl {
    /// `metadump`: a line about it.
    Describe,
    /// `mgdump`: the command that reads it.
    Name,
    /// `crawl`: it is let go if its time is over.
    Expire,
}

/// The six commands that bring a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// `<verb> <key> <flags> <exptime> <length> [<unique>] [noreply]`, or what an `ms` says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    pub verb: Verb,
    pub key: Cow<'a, [u8]>,
    pub flags: u32,
    pub exptime: i64,
    /// Bytes of the value, CR LF not counted.
    pub length: usize,
    /// Of a `cas`, or of an `ms` that joins; 0 for the others, which no stored value has.
    pub unique: u64,
    pub noreply: bool,
    /// Of an `ms`.
    pub meta: Option<Box<MetaStore>>,
}

/// The words of a line, one after the other. Only the space separates words, as in memcached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    line: &'a [u8],
}

impl<'a> Keys<'a> {
    /// The words of `line`.
    pub fn of(line: &'a [u8]) -> Self {
        Self { line }
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.line.iter().position(|&b| b != b' ')?;
        let line = &self.line[start..];
        let end = line.iter().position(|&b| b == b' ').unwrap_or(line.len());
        self.line = &line[end..];
        Some(&line[..end])
    }
}

/// A line was not understood, or may not be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub why: Refusal,
    pub noreply: bool,
    /// Bytes behind the line that belong to it and must not be taken for commands.
    pub swallow: usize,
}

impl From<Refusal> for Refused {
    fn from(why: Refusal) -> Self {
        Self { why, noreply: false, swallow: 0 }
    }
}

/// Why, in memcached's own words where it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Unknown,
    Format,
    Exptime,
    Delta,
    DeleteUsage,
    BadDataChunk,
    TenantUsage,
    WatchEvictionsOnly,
    BadClass,
    TooLarge,
    /// The connection is closed after this one: nobody knows where the next command starts.
    LineTooLong,
    /// Of a meta command.
    Meta(meta::Fault),
}

impl Refusal {
    /// The reply line, without its line end.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unknown => "ERROR",
            Self::Format => "CLIENT_ERROR bad command line format",
            Self::Exptime => "CLIENT_ERROR invalid exptime argument",
            Self::Delta => "CLIENT_ERROR invalid numeric delta argument",
            Self::DeleteUsage => "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
            Self::BadDataChunk => "CLIENT_ERROR bad data chunk",
            Self::TenantUsage => "CLIENT_ERROR usage: tenant list | tenant set <name> [min|low|high|max]=<bytes>...",
            Self::WatchEvictionsOnly => "CLIENT_ERROR only evictions can be watched here",
            Self::BadClass => "BADCLASS invalid class id",
            Self::TooLarge => "SERVER_ERROR object too large for cache",
            Self::LineTooLong => "CLIENT_ERROR line too long",
            Self::Meta(fault) => fault.text(),
        }
    }
}
