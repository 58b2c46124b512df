//! Kinds of commands, and sets of kinds, which a tenant's `deny=` forbids.
//!
//! A kind has the name of its best known command, and includes the meta command that does the same:
//! a denied `set` forbids `ms` as well. `version`, `mn` and `quit` are of no kind, and are never
//! denied.
//!
//! A command that has several effects has several kinds, and is denied if one of them is. A change
//! must ensure that a new command has its kinds here, and that a set stays one word, so that an
//! atomic can hold it. docs/OPERATING.md lists the names.

use super::command::Command;
use super::meta_command::{MetaCommand, MetaVerb};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal,)*) => {
        /// A kind of commands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CommandKind {
            $($(#[$doc])* $kind,)*
        }

        const KINDS: &[(CommandKind, &str)] = &[$((CommandKind::$kind, $name),)*];
    };
}

kinds! {
    /// `get`, `gets`, `gat`, `gats`, `mg`, `me`
    Get "get",
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`; `mg` and `ma` that create a value
    Set "set",
    /// `delete`, `md`
    Delete "delete",
    /// `incr`, `decr`, `ma`
    Incr "incr",
    /// `touch`, `gat`, `gats`; `mg`, `md` and `ma` with an exptime (`T`)
    Touch "touch",
    FlushAll "flush_all",
    Stats "stats",
    Watch "watch",
    Crawl "lru_crawler",
    /// `tenant set`, `tenant list`
    Tenant "tenant",
    MemoryLimit "cache_memlimit",
    Verbosity "verbosity",
    Shutdown "shutdown",
}

/// A set of kinds of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandSet(u32);

const _: () = assert!(KINDS.len() <= u32::BITS as usize);

impl CommandSet {
    /// Adds `kind`.
    pub fn with(self, kind: CommandKind) -> Self {
        Self(self.0 | 1 << kind as u32)
    }

    /// Adds `kind` if `is_needed` is true.
    pub fn with_if(self, kind: CommandKind, is_needed: bool) -> Self {
        match is_needed {
            true => self.with(kind),
            false => self,
        }
    }

    /// Returns the kinds of `command`: mostly one.
    pub fn of(command: &Command<'_>) -> Self {
        let one = |kind| Self::default().with(kind);
        match command {
            Command::Get { touch, .. } => one(CommandKind::Get).with_if(CommandKind::Touch, touch.is_some()),
            Command::Store(_) => one(CommandKind::Set),
            Command::Delete { .. } => one(CommandKind::Delete),
            Command::Arithmetic { .. } => one(CommandKind::Incr),
            Command::Touch { .. } => one(CommandKind::Touch),
            Command::FlushAll { .. } => one(CommandKind::FlushAll),
            Command::Verbosity { .. } => one(CommandKind::Verbosity),
            Command::Stats { .. } => one(CommandKind::Stats),
            Command::Shutdown { .. } => one(CommandKind::Shutdown),
            Command::Meta(meta) => Self::of_meta(meta),
            Command::MetaDebug { .. } => one(CommandKind::Get),
            Command::MemoryLimit { .. } => one(CommandKind::MemoryLimit),
            Command::TenantSet { .. } | Command::TenantList => one(CommandKind::Tenant),
            Command::Watch { .. } => one(CommandKind::Watch),
            Command::Crawl { .. } => one(CommandKind::Crawl),
            Command::Version | Command::MetaNoop | Command::Quit => Self::default(),
        }
    }

    fn of_meta(meta: &MetaCommand<'_>) -> Self {
        let kind = match meta.verb {
            MetaVerb::Get => CommandKind::Get,
            MetaVerb::Delete => CommandKind::Delete,
            MetaVerb::Arithmetic => CommandKind::Incr,
        };
        let sets = meta.verb != MetaVerb::Delete && meta.options.vivify.is_some();
        let kinds = Self::default().with(kind).with_if(CommandKind::Set, sets);
        kinds.with_if(CommandKind::Touch, meta.options.exptime.is_some())
    }

    /// Returns the name of a kind that is in both sets, if there is one.
    pub fn common_name(self, other: Self) -> Option<&'static str> {
        let both = Self(self.0 & other.0);
        both.names().next()
    }

    /// Returns the names of the kinds.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        KINDS.iter().filter(move |(kind, _)| self.0 & 1 << *kind as u32 != 0).map(|(_, name)| *name)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Parses names with a comma between them; `none` is the empty set.
    ///
    /// # Errors
    ///
    /// A sentence with all names.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::default());
        }
        text.split(',').try_fold(Self::default(), |set, word| {
            let found = KINDS.iter().find(|(_, name)| *name == word);
            let (kind, _) = found.ok_or_else(|| {
                let names: Vec<_> = KINDS.iter().map(|(_, name)| *name).collect();
                format!("{word:?} cannot be denied; the commands are {}, or none", names.join(", "))
            })?;
            Ok(set.with(*kind))
        })
    }

    /// Returns the set as a number, for an atomic.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set that [`bits`](Self::bits) was called on.
    pub fn of_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// The names, as [`CommandSet::parse`] reads them.
impl std::fmt::Display for CommandSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        self.names().enumerate().try_for_each(|(at, name)| write!(f, "{}{name}", if at > 0 { "," } else { "" }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::line;

    #[test]
    fn a_set_is_printed_as_it_is_read() {
        for text in ["none", "get", "flush_all,stats,watch,lru_crawler,tenant", "get,set,delete,incr,touch"] {
            let set = CommandSet::parse(text).unwrap();
            assert_eq!(set.to_string(), text);
            assert_eq!(CommandSet::of_bits(set.bits()), set);
        }
        for text in ["", "get,", "gets", "none,get", "GET"] {
            let why = CommandSet::parse(text).unwrap_err();
            assert!(why.contains("cannot be denied; the commands are get, set,"), "{text}: {why}");
        }
    }

    #[test]
    fn each_command_has_its_kinds() {
        for (text, kinds) in [
            ("get a b", "get"),
            ("gat 5 a", "get,touch"),
            ("set a 0 0 1", "set"),
            ("cas a 0 0 1 1", "set"),
            ("ms a 1", "set"),
            ("mg a v", "get"),
            ("mg a v T5", "get,touch"),
            ("mg a v N5", "get,set"),
            ("ma a", "incr"),
            ("ma a N5", "set,incr"),
            ("md a", "delete"),
            ("me a", "get"),
            ("delete a", "delete"),
            ("decr a 1", "incr"),
            ("touch a 1", "touch"),
            ("flush_all", "flush_all"),
            ("stats items", "stats"),
            ("watch", "watch"),
            ("lru_crawler metadump all", "lru_crawler"),
            ("tenant list", "tenant"),
            ("tenant set a max=1", "tenant"),
            ("cache_memlimit 9", "cache_memlimit"),
            ("verbosity 1", "verbosity"),
            ("shutdown", "shutdown"),
            ("version", "none"),
            ("mn", "none"),
            ("quit", "none"),
        ] {
            let command = line::command(text.as_bytes()).unwrap();
            assert_eq!(CommandSet::of(&command).to_string(), kinds, "{text}");
        }
    }
}
