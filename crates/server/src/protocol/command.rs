//! Commands: the parsed form of a line.
//!
//! A command borrows from the connection's buffer. Owned are only a meta command's key in base64,
//! because it is decoded, and the [`MetaStore`] of an `ms`. The decoder copies the key of each
//! store command but a [`PlainSet`] whose value has arrived.
//!
//! A change must ensure that parsing a line copies no key that is not in base64.
//!
//! Common fields: `noreply` suppresses the reply; `exptime` is memcached's expiry in seconds, as
//! the client sent it ([`expiry`](super::expiry)).

use std::borrow::Cow;

use super::event::EventSet;
use super::meta_command::{MetaCommand, MetaStore};
use super::words::Words;

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get {
        keys: Words<'a>,
        /// Whether the reply has each value's CAS number (`gets`, `gats`).
        unique: bool,
        /// The new exptime of all keys (`gat`, `gats`).
        touch: Option<i64>,
    },
    /// A line that announces a data block. Never leaves the decoder, which turns it into a request
    /// with the block.
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
    /// Flushes now (0 or less), or when `exptime` is over.
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
    /// `shutdown`, or `shutdown graceful`, which saves the values.
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
    /// `tenant set`: `limits` are the words after the name, not parsed yet.
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

/// The action of `lru_crawler` on each value that it visits.
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

/// The six commands that carry a value, besides `ms`, which is one of them by its mode.
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

/// `set <key> <flags> <exptime> <length> [noreply]`, with numbers of digits alone: the form that
/// nearly all clients send, which is stored from the connection's buffer if the value has arrived.
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
    /// The CAS number that the stored value must have, of a `cas` or an `ms`; 0 if there is none.
    pub unique: u64,
    pub noreply: bool,
    /// The part that only an `ms` has.
    pub meta: Option<Box<MetaStore>>,
}
