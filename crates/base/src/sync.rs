//! The synchronization layer of the crates below `lowwater`, and of `lowwater-dcache-model`: their
//! locks, atomics and threads come from this module.
//!
//! | build | locks | atomics | used by |
//! |---|---|---|---|
//! | `std` (default) | parking_lot | core | user space |
//! | without `std` | spin | core | bare metal |
//! | without `std`, with `embedder` | the embedder's | core | kernels |
//! | `--cfg lowwater_loom` | loom's | loom's | model checks |
//!
//! Only this module and its parts choose between loom, parking_lot and spin. All these crates use
//! [`sync`](self), so that one model check can cover several of them. loom is enabled by a
//! cfg with a name of our own, not by a feature: a feature could be enabled by accident for a whole
//! dependency tree, and the plain cfg `loom` already has a meaning for other crates in that tree.
//!
//! [`Mutex`], [`RwLock`] and [`Condvar`] have parking_lot's interface in all builds: no poisoning,
//! a guard that derefs. `RawLock`, for this workspace only, is the same lock without data, for
//! structures that lay out their own fields and pass guards to callbacks.
//!
//! Code of these crates must not use locks, atomics or threads from elsewhere: model checks would
//! not see them. (`lowwater`, the server and the adapters have no model checks.)

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
