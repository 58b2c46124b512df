//! The parts that a kernel brings: the lock, the read side, and the processor's number. See [`lowwater_base::embedder`].

pub use lowwater_base::embedder::*;
pub use lowwater_rcu::{readers_left, waiting};
