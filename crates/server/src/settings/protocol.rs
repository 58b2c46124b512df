//! The protocols that a client may speak (`-B`).
//!
//! A change must keep memcached's names, which its start scripts and `stats settings` have.

use clap::ValueEnum;

/// The protocols of clients.
#[doc(alias = "binding_protocol")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// The first byte of a connection tells.
    #[default]
    #[value(alias = "auto-negotiate")]
    Auto,
    Ascii,
    Binary,
}

impl Protocol {
    /// Returns memcached's word in `stats settings`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto-negotiate",
            Self::Ascii => "ascii",
            Self::Binary => "binary",
        }
    }

    /// Returns memcached's word for a new connection, in the log.
    pub fn of_connection(self) -> &'static str {
        match self {
            Self::Auto => "auto-negotiating",
            other => other.name(),
        }
    }
}
