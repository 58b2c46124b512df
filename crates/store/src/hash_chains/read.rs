//! The read side of chains: as `lowwater-rcu`, but for things that are counted (`Arc`) and of any type, so that what is retired
//! cannot be queued through itself.
//!
//! Under `std` it is crossbeam-epoch's default collector; without, and under loom, readers are counted.

#[cfg(any(lowwater_loom, not(feature = "std")))]
mod count;
#[cfg(all(not(lowwater_loom), feature = "std"))]
mod epoch;

#[cfg(any(lowwater_loom, not(feature = "std")))]
pub(super) use count::{pin, Guard};
#[cfg(all(not(lowwater_loom), feature = "std"))]
pub(super) use epoch::{pin, Guard};
