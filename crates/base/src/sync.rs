//! The one shim of the workspace: every lock, atomic and thread comes through here.
//!
//! | build | locks | atomics | who |
//! |---|---|---|---|
//! | `std` (default) | parking_lot | core | user space |
//! | without `std` | spin | core | bare metal |
//! | without `std`, with `embedder` | the embedder's | core | kernels |
//! | `--cfg lowwater_loom` | loom's | loom's | model checks |
//!
//! Only this module and its parts name loom, parking_lot, spin or `std::sync`; the crates above use [`sync`](self) as well, so that
//! one model check can cross them. loom is a cfg of our own name, not a feature: a feature could be switched on by accident
//! for a whole dependency tree, and the plain name `loom` already means something to other crates in that tree.
//!
//! [`Mutex`], [`RwLock`] and [`Condvar`] have parking_lot's shape everywhere: no poisoning, a guard that derefs.
//! `RawLock`, inside this crate, is the same lock without data, for structures that lay out their own fields and hand guards to
//! callbacks.

#[cfg(all(not(lowwater_loom), not(feature = "std")))]
mod core;
#[cfg(lowwater_loom)]
mod loom;
#[cfg(all(not(lowwater_loom), feature = "std"))]
mod std;

mod cell;
#[cfg(lowwater_loom)]
mod loom_model;
mod mutant;
#[cfg(not(lowwater_loom))]
#[doc(hidden)]
pub mod raw;

#[cfg(all(not(lowwater_loom), not(feature = "std")))]
pub use self::core::*;
#[cfg(lowwater_loom)]
pub use self::loom::*;
#[cfg(all(not(lowwater_loom), feature = "std"))]
pub use self::std::*;

pub use cell::UnsafeCell;
#[cfg(lowwater_loom)]
pub use loom_model::model;
pub use mutant::mutated;
#[cfg(lowwater_loom)]
pub use mutant::with_mutant;
