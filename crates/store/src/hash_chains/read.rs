//! The read side of chains. `lowwater_rcu::Guard::retire` cannot serve here: it queues a retired
//! object by a link inside the object, and an object on a chain is an `Arc` of any type.
//!
//! With `std` this is crossbeam-epoch's default collector; without `std`, and under loom, readers
//! are counted.
//!
//! A change must ensure that both read sides have the same interface, and that both call `free`
//! once, after the readers that may have seen the object have left. They differ without memory:
//! `count` leaks the object if others wait already, `epoch` aborts the process. And with `epoch` a
//! call of `free` must not panic; `count`, where a panic cannot be caught, makes the other calls
//! and passes the panic on.

#[cfg(any(lowwater_loom, not(feature = "std")))]
mod count;
#[cfg(all(not(lowwater_loom), feature = "std"))]
mod epoch;

#[cfg(any(lowwater_loom, not(feature = "std")))]
pub(super) use count::{pin, Guard};
#[cfg(all(not(lowwater_loom), feature = "std"))]
pub(super) use epoch::{pin, Guard};
