//! Errors. Each message suggests a remedy.
//!
//! Nothing has changed when one of these is returned.
//!
//! A new error needs a message with a remedy, and must leave everything unchanged.

use thiserror::Error;

/// [`ShrinkerBuilder::alloc`](crate::ShrinkerBuilder::alloc) created no shrinker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShrinkerAllocError {
    /// As many shrinkers exist as there are ids.
    #[error("all {} shrinker ids are in use: drop registrations that are no longer needed", u32::MAX)]
    OutOfIds,
    /// There is no memory for the registry or the shrinker's entry.
    #[error("no memory for the shrinker: reclaim some, and try again")]
    NoMemory,
}

/// A registration was not ended, as the calling thread must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnregisterError {
    /// A callback of the shrinker is in flight, and the calling thread, which would have to wait
    /// for it, is inside a callback itself: of the same shrinker, or of another one for which that
    /// callback may wait.
    #[error("a thread inside a callback does not wait for the callbacks of a shrinker: return from the callback first, drop the registration, or call `unregister_nowait`")]
    InsideCallback,
}

/// The reclaimer did not start.
#[cfg(feature = "std")]
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The system gave no thread for this node. Threads that had started before are stopped again.
    #[error("no reclaimer thread for node {node}: {error}; raise the limit on threads (ulimit -u, pids.max)")]
    Thread {
        /// The node without a thread.
        node: lowwater_lru_core::NodeId,
        /// The system's error.
        error: std::io::Error,
    },
    /// The topology's number of nodes differs from the registry's.
    #[error("the topology has {topology} nodes and the registry {registry}: make both from the same topology")]
    Nodes {
        /// Nodes of the topology.
        topology: usize,
        /// Nodes of the registry.
        registry: usize,
    },
}
