//! The parts that a kernel provides: the lock, the read side and the processor's number. See
//! [`lowwater_base::embedder`].
//!
//! Re-exported, so that users of the lists need no dependency on `lowwater-base`.

pub use lowwater_base::embedder::*;
pub use lowwater_rcu::{readers_left, waiting};

/// Registers the embedder's [`Lock`], [`ReadSide`] and [`Processor`]; exactly once in a program.
/// See [`lowwater_base::embedder!`].
#[macro_export]
macro_rules! embedder {
    ($($tokens:tt)*) => {
        $crate::__base::embedder! { $($tokens)* }
    };
}
