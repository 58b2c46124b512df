//! Meta commands: a key, and flags of one letter each, some with a token.

use std::borrow::Cow;

use super::words::Words;

/// A key, what to do with it, and what to say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaCommand<'a> {
    pub verb: MetaVerb,
    pub key: Cow<'a, [u8]>,
    pub options: MetaOptions,
    /// The flags as they came, of which the reply repeats some.
    pub flags: Words<'a>,
}

/// The meta commands that have flags and no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    Get,
    Delete,
    Arithmetic,
}

/// What the flags of a command ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaOptions {
    /// `b`: the key came in base64.
    pub binary: bool,
    /// `v`: answer with the value.
    pub value: bool,
    /// `u`: the read is no use.
    pub unused: bool,
    /// `q`: no answer in the nominal case.
    pub quiet: bool,
    /// `I`: mark stale.
    pub invalidate: bool,
    /// `C`: only if this is its number.
    pub unique: Option<u64>,
    /// `T`: a new exptime.
    pub exptime: Option<i64>,
    /// `N`: on a miss, make it, with this exptime.
    pub vivify: Option<i64>,
    /// `R`: win if less than this is left.
    pub recache: Option<i64>,
    /// `F`
    pub flags: u32,
    /// `M`
    pub mode: Option<u8>,
    /// `J`: what an `ma` makes on a miss.
    pub initial: u64,
    /// `D`: by how much; 1 if absent.
    pub delta: Option<u64>,
}

/// What an `ms` has beyond the classic store commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaStore {
    pub binary: bool,
    pub quiet: bool,
    pub invalidate: bool,
    /// Those flags that the reply repeats, with a space between them.
    pub echo: Box<[u8]>,
}
