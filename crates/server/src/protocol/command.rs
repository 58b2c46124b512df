//! Commands: the parsed form of a line.
//!
//! Keys are slices of the connection's buffer; only a store command's key is copied, as its block
//! may arrive much later.
//!
//! A change must ensure that a command borrows its key from the connection's buffer; only a key in
//! base64 is owned, because it is decoded.

use std::borrow::Cow;

use super::event::EventSet;
use super::meta_command::{MetaCommand, MetaStore};
use super::words::Words;

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets` (with each value's unique number), `gat`, `gats` (with a new exptime for all
    /// keys).
    Get {
        keys: Words<'a>,
        unique: bool,
        touch: Option<i64>,
    },
    /// A line that announces a data block; the decoder keeps the command until the block is
    /// complete.
    Store(StoreCommand<'a>),
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
    /// Flushes now, or at the time `exptime`.
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
        /// The word after the argument.
        second: Option<&'a [u8]>,
    },
    Version,
    Quit,
    /// `shutdown`, `shutdown graceful`
    Shutdown {
        graceful: bool,
    },
    /// `mg`, `md`, `ma`.
    Meta(MetaCommand<'a>),
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
    /// `tenant set`: the words after the name are not parsed yet.
    TenantSet {
        name: &'a [u8],
        limits: Words<'a>,
    },
    TenantList,
    Watch {
        events: EventSet,
    },
    /// `lru_crawler`; if `everything` is false, the crawl visits nothing.
    Crawl {
        crawl: CrawlAction,
        everything: bool,
    },
}

impl Command<'_> {
    /// Returns whether the line has `noreply`.
    pub fn is_noreply(&self) -> bool {
        match self {
            Self::Delete { noreply, .. }
            | Self::Arithmetic { noreply, .. }
            | Self::Touch { noreply, .. }
            | Self::FlushAll { noreply, .. }
            | Self::Verbosity { noreply, .. }
            | Self::MemoryLimit { noreply, .. } => *noreply,
            Self::Store(store) => store.noreply,
            _ => false,
        }
    }
}

/// The action of `lru_crawler` for each value.
#[doc(alias = "crawler_run_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrawlAction {
    /// Writes a line of metadata.
    Metadump,
    /// Writes the `mg` command that reads the value.
    Mgdump,
    /// `crawl`: removes the value if it has expired.
    Expire,
}

/// The six commands that carry a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

impl StoreVerb {
    /// Returns the command's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Cas => "cas",
        }
    }
}

/// `set <key> <flags> <exptime> <length> [noreply]`, of digits alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSet<'a> {
    pub key: &'a [u8],
    pub flags: u32,
    pub exptime: i64,
    /// Length of the value in bytes, without the CR LF.
    pub length: usize,
    pub noreply: bool,
}

/// `<verb> <key> <flags> <exptime> <length> [<unique>] [noreply]`, or the equivalent `ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCommand<'a> {
    pub verb: StoreVerb,
    pub key: Cow<'a, [u8]>,
    pub flags: u32,
    pub exptime: i64,
    /// Length of the value in bytes, without the CR LF.
    pub length: usize,
    /// The CAS number of a `cas`, or of an `ms`; 0 if there is none, which no stored value has.
    pub unique: u64,
    pub noreply: bool,
    /// The part that only an `ms` has.
    pub meta: Option<Box<MetaStore>>,
}
