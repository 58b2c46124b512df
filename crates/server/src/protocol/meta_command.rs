//! Parsed meta commands: a key, and flags of one letter each, some with a token.
//!
//! Plain data between the parser (`meta.rs`) and the commands (`commands/meta`).
//!
//! A flag that is added here must be parsed, executed and echoed.

use std::borrow::Cow;

use super::words::Words;

/// A meta command without a data block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaCommand<'a> {
    pub verb: MetaVerb,
    pub key: Cow<'a, [u8]>,
    pub options: MetaOptions,
    /// The flags as received; the reply repeats some of them.
    pub flags: Words<'a>,
}

/// The meta commands that have flags and no data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    Get,
    Delete,
    Arithmetic,
}

/// The options that the flags of a command set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaOptions {
    /// `b`: the key was sent in base64.
    pub binary: bool,
    /// `v`: reply with the value.
    pub value: bool,
    /// `u`: do not count the read as a use of the value.
    pub unused: bool,
    /// `q`: no reply in the nominal case.
    pub quiet: bool,
    /// `I`: mark as stale.
    pub invalidate: bool,
    /// `C`: only if the value has this CAS number. An `mg` leaves out the bytes of such a value.
    pub unique: Option<u64>,
    /// `E`: the CAS number of the value that is stored.
    pub new_unique: Option<u64>,
    /// `x`: remove the bytes, but keep the item.
    pub remove_bytes: bool,
    /// `T`: set this exptime.
    pub exptime: Option<i64>,
    /// `N`: on a miss, create the value with this exptime.
    pub vivify: Option<i64>,
    /// `R`: win if less time than this is left.
    pub recache: Option<i64>,
    /// `F`: the client flags.
    pub flags: u32,
    /// `M`: the mode.
    pub mode: Option<u8>,
    /// `J`: the number that an `ma` creates on a miss.
    pub initial: u64,
    /// `D`: the change of an `ma`; 1 if absent.
    pub delta: Option<u64>,
}

impl MetaCommand<'_> {
    /// Returns the exptime of a value that an `mg` or `ma` creates: that of `T` or `N`, whichever
    /// is the later flag.
    pub fn exptime_of_created(&self) -> Option<i64> {
        let last = self.flags.clone().filter(|flag| matches!(flag[0], b'T' | b'N')).last()?;
        if last[0] == b'T' {
            self.options.exptime
        } else {
            self.options.vivify
        }
    }
}

/// The part of an `ms` that the classic store commands lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaStore {
    pub binary: bool,
    pub quiet: bool,
    pub invalidate: bool,
    /// `E`: the CAS number of the value.
    pub new_unique: Option<u64>,
    /// `N`: on a miss, an append or prepend stores the value with this exptime.
    pub vivify: Option<i64>,
    /// The flags that the reply repeats, separated by spaces.
    pub echo: Box<[u8]>,
}
