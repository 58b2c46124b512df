//! Why a topology could not be read.

use alloc::string::String;
use std::path::PathBuf;

use super::TextError;

/// A machine's topology could not be read. [`detect`](super::detect) takes a single node then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file is not there or cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file says something that makes no sense.
    #[error("{} says {text:?}: {reason}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What is in it, without the line's end.
        text: String,
        /// What is wrong with it.
        reason: TextError,
    },
    /// hwloc does not know the machine, or does not understand a description.
    #[cfg(feature = "hwloc")]
    #[error("hwloc finds no topology in {what}: {reason}")]
    Hwloc {
        /// The description, or "this machine".
        what: String,
        /// What hwloc says.
        reason: String,
    },
}
