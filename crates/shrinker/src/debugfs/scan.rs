//! The `scan` file: one manual call of a shrinker.
//!
//! Parser and errors follow the kernel's, so that its scripts work. It is a debugging aid: debts,
//! bits and protection are ignored.
//!
//! A change must keep the kernel's errors.

use lowwater_lru_core::{MemcgId, NodeId};
use thiserror::Error;

use crate::id::ShrinkerId;
use crate::registry::Registry;

/// Bytes of a command that are read; the rest is ignored. The kernel's buffer has 72, with a NUL.
const COMMAND_BYTES_MAX: usize = 71;

/// The parsed command `"<group id> <node> <objects>"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct ScanRequest {
    /// The id of the group, which may not exist.
    pub memcg: MemcgId,
    /// The number of the node, which may not exist.
    pub node: u16,
    /// The number of objects to scan; 0: no call.
    pub objects: u64,
}

/// The reason why a `scan` command was refused; [`errno`](Self::errno) is the kernel's error
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[doc(hidden)]
pub enum ScanError {
    /// Not three numbers.
    #[error("not a scan command: write three numbers, \"<group id> <node> <objects>\"")]
    Malformed,
    /// The node number is too large.
    #[error("there is no such node: the second number must be below {nodes}")]
    NoNode {
        /// The number of nodes of the registry, which the node number must be below.
        nodes: usize,
    },
    /// The shrinker is memcg-aware, and no online group has this id.
    #[error("no online group has id {0}; the count file lists those that hold something")]
    NoGroup(MemcgId),
    /// The shrinker is not memcg-aware.
    #[error("this shrinker is not memcg-aware: the first number must be 0")]
    NotAware,
    /// No such shrinker is registered, or it is quarantined; or the calling thread is inside a
    /// callback or a no-reclaim scope, or has no memory to enter one.
    #[error("no shrinker with this id can be called now")]
    NoShrinker,
}

impl ScanError {
    /// Returns the kernel's error number: `EINVAL` (22) or `ENOENT` (2).
    pub const fn errno(self) -> i32 {
        match self {
            Self::Malformed | Self::NoNode { .. } | Self::NotAware => 22,
            Self::NoGroup(_) | Self::NoShrinker => 2,
        }
    }
}

impl ScanRequest {
    /// Parses a command as the kernel does: the first 71 bytes, three numbers with blanks before
    /// them; the text after the third number is ignored. A group or node beyond the type's range
    /// becomes the largest number, which no group or node has.
    ///
    /// # Errors
    ///
    /// [`ScanError::Malformed`]; also for numbers that overflow, which the kernel would wrap.
    pub fn parse(command: &str) -> Result<Self, ScanError> {
        let bytes = command.as_bytes();
        let mut rest = &bytes[..bytes.len().min(COMMAND_BYTES_MAX)];
        let mut number = || {
            let digits = rest.trim_ascii_start();
            let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
            let (number, behind) = digits.split_at(end);
            rest = behind;
            core::str::from_utf8(number).ok()?.parse::<u64>().ok()
        };
        let (memcg, node, objects) =
            number().zip(number()).zip(number()).map(|((a, b), c)| (a, b, c)).ok_or(ScanError::Malformed)?;
        let memcg = MemcgId::new(u32::try_from(memcg).unwrap_or(u32::MAX));
        Ok(Self { memcg, node: u16::try_from(node).unwrap_or(u16::MAX), objects })
    }
}

impl Registry {
    /// Executes a `scan` command on a shrinker: one call of `scan_objects` for that group and node,
    /// without a preceding count, without batches, and with no debt taken or left; the result is in
    /// the shrinker's statistics. A shrinker that is not NUMA-aware is called for node 0. For 0
    /// objects nothing is called.
    ///
    /// # Errors
    ///
    /// [`ScanError`], in the order in which the kernel checks.
    #[doc(alias = "shrinker_debugfs_scan_write")]
    #[doc(hidden)]
    pub fn debugfs_scan(&self, id: ShrinkerId, command: &str) -> Result<(), ScanError> {
        let request = ScanRequest::parse(command)?;
        let nodes = self.nodes();
        if usize::from(request.node) >= nodes {
            return Err(ScanError::NoNode { nodes });
        }
        let _scope = self.core.scopes.enter_first().ok_or(ScanError::NoShrinker)?;
        let guard = self.core.lookup(id.get()).ok_or(ScanError::NoShrinker)?;
        if request.objects == 0 {
            return Ok(());
        }
        let root = &self.core.root;
        let memcg = if guard.options.memcg_aware {
            let online = root.descendants().find(|memcg| memcg.id() == request.memcg);
            online.ok_or(ScanError::NoGroup(request.memcg))?
        } else if request.memcg == MemcgId::ROOT {
            root.clone()
        } else {
            return Err(ScanError::NotAware);
        };
        let node = guard.options.node(NodeId::new(request.node));
        let slab = crate::shrink::ShrinkSlab::by_hand(&self.core, &memcg, node);
        slab.scan_once(guard, request.objects);
        Ok(())
    }
}
