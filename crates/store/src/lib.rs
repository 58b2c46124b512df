//! Stores of objects that can be on the lists of `lowwater-lru-core` and are read without a lock: a
//! slab, an index of its objects, hash chains.
//!
//! Start at [`ExtendibleIndex`], the keyed store of `lowwater`'s cache, or at
//! [`HashChains`](hash_chains::HashChains).
//!
//! | module | contents |
//! |---|---|
//! | [`slab`] | slots of one size for objects whose memory returns to the system when a chunk is empty |
//! | [`index`] | an extendible hash index of a slab's objects, which grows by segments and is looked up without a lock |
//! | [`hash_chains`] | hash chains of `Arc`s that are looked up without a lock, for a dentry cache |
//!
//! An object in a slab has one owner, the handle [`Slot`]. An object whose handle is dropped and
//! that is in no index is retired: it is dropped when all readers that may have found it have left
//! their read-side sections ([`lowwater_rcu`]).
//!
//! # Fork
//!
//! The child of a `fork` has one thread. A lock that another thread held at the time of the `fork`
//! is never released in the child, and the data that the lock guards may be in the middle of a
//! change. So the child of a process with several threads must neither use nor drop anything of
//! this crate: the child calls `exec` or ends by `_exit`.
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `std` (default) | on Linux, chunks mapped from the system; panics of destructors caught, and counted by slabs |
//! | `embedder` | without `std`, where readers of hash chains are counted: locks and the index's read side from outside, as in a kernel |

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]

extern crate alloc;
#[cfg(any(feature = "std", lowwater_loom, test))]
extern crate std;

#[doc(hidden)]
pub use lowwater_base as __base;
#[doc(hidden)]
pub use lowwater_lru_core as __lru_core;

pub mod hash_chains;
pub mod index;
pub mod slab;

pub use index::ExtendibleIndex;
pub use lowwater_lru_core::list::CompressedLinks;
pub use slab::{Slab, Slot};

use lowwater_base::{fallible, mutated, sync, unwind};
use lowwater_rcu as rcu;
