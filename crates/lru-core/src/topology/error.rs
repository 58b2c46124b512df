//! Errors of reading a topology.
//!
//! Errors quote the file and its text, because they come from machines that the authors cannot
//! inspect.
//!
//! A change must ensure that an error of a file names the file, and quotes the text that could not
//! be parsed.

use alloc::string::String;
use std::path::PathBuf;

use super::TextError;

/// A machine's topology could not be read. [`detect`](super::detect) falls back to a single node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file does not exist or cannot be read.
    #[error("cannot read {}: {error}", file.display())]
    Read {
        /// The path of the file.
        file: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The content of a file is malformed.
    #[error("{} says {text:?}: {reason}", file.display())]
    Malformed {
        /// The path of the file.
        file: PathBuf,
        /// Its content, without white space at the end; for a processor on two nodes, the
        /// processor's number.
        text: String,
        /// The rule of the format that the content violates.
        reason: TextError,
    },
    /// hwloc cannot detect the machine, does not understand a description, or finds no node or too
    /// many.
    #[cfg(feature = "hwloc")]
    #[error("hwloc finds no topology in {what}: {reason}")]
    Hwloc {
        /// The description, or "this machine".
        what: String,
        /// hwloc's error message, or the rule that the number of nodes violates.
        reason: String,
    },
}
