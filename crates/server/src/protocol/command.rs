//! Commands: what one line of the protocol asks for.
//!
//! Keys are slices of the connection's buffer; only a store command's key is copied, for its block
//! may arrive much later.

use std::borrow::Cow;

use super::meta_command::{MetaCommand, MetaStore};
use super::words::Words;

/// One line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets` (with each value's unique number), `gat`, `gats` (with a new exptime for all
    /// keys).
    Get {
        keys: Words<'a>,
        unique: bool,
        touch: Option<i64>,
    },
    /// A line that announces a block of data; the decoder keeps it until the block is complete.
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
    /// `tenant set`: the words behind the name are not read yet.
    TenantSet {
        name: &'a [u8],
        limits: Words<'a>,
    },
    TenantList,
    WatchEvictions,
    /// `lru_crawler`; not of everything, that is of nothing.
    Crawl {
        crawl: CrawlAction,
        everything: bool,
    },
}

/// What `lru_crawler` does with each value.
#[doc(alias = "crawler_run_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrawlAction {
    /// Writes a line about it.
    Metadump,
    /// Writes the `mg` command that reads it.
    Mgdump,
    /// `crawl`: removes it if it has expired.
    Expire,
}

/// The six commands that bring a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// `<verb> <key> <flags> <exptime> <length> [<unique>] [noreply]`, or what an `ms` says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCommand<'a> {
    pub verb: StoreVerb,
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
