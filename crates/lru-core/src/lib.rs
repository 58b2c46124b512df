//! Memory control groups, NUMA nodes, and LRU lists that exist only for those groups and nodes which use them.
//!
//! This crate knows nothing of shrinkers: a list calls its listener ([`Occupancy`]) when it stops being empty.
//!
//! The modules, in the order in which an object meets them:
//!
//! | module | what the object gets there |
//! |---|---|
//! | [`memcg`] | a group, whose limits count its bytes, in itself and in all groups above |
//! | [`topology`] | a node, asked of the machine |
//! | [`list`] | links inside itself, and an owner while it is on a list |
//! | [`list_lru`] | the list of its group on its node, made when it is first needed, split when threads contend for it; a place in a walk, oldest first on each part |
//!
//! Locks, atomics, [`ByteSize`] and [`NodeId`] are those of `lowwater-base`; lists are freed after the readers of
//! `lowwater-rcu` have left.
//!
//! ```
//! use lowwater_lru_core::{linked, ByteSize, Isolated, Links, ListLru, MemcgTree, NodeId};
//! use std::sync::Arc;
//!
//! struct Page {
//!     links: Links,
//!     number: u64,
//! }
//! linked!(impl[] for Page { links, handle: Arc<Page> });
//!
//! let tree = MemcgTree::default();
//! let shop = tree.root().create("shop")?;
//! shop.set_max(ByteSize::mib(8));
//! let pages = ListLru::<Page>::new();
//!
//! for number in 0..3 {
//!     let _ = shop.try_charge(ByteSize::kib(4))?;
//!     pages.add(Arc::new(Page { links: Links::new(), number }), &shop, NodeId::ZERO)?;
//! }
//!
//! // The two oldest go; their bytes are given back when nothing is locked any more.
//! let mut old = Isolated::new();
//! pages.walk_one(&shop, NodeId::ZERO, &mut 2, |it| it.isolate(&mut old));
//! for page in old {
//!     shop.uncharge(ByteSize::kib(4));
//!     assert!(page.number < 2);
//! }
//! assert_eq!(pages.count_one(&shop, NodeId::ZERO), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `std` (default) | parking_lot's locks, a read side that costs two stores (crossbeam-epoch where the system does not help), the topology of Linux' sysfs |
//! | `hwloc` | the topology as the C library of that name sees it, and synthetic ones |
//! | `embedder` | without `std`: locks and read side from outside, as in a kernel (`embedder`) |
//!
//! Without `std` the crate needs `core`, `alloc` and atomic pointers: locks spin, and memory that leaves a list is freed by the last
//! reader. Where 64-bit atomics are missing, portable-atomic stands in. `--cfg lowwater_loom` builds it on loom; it is not meant for programs.
//!
//! # Fork
//!
//! The child of a `fork` has one thread. A lock that another thread held is never given back there, and what it guards may be in the
//! middle of a change. So the child of a process with several threads must neither use nor drop anything of this crate: it calls `exec`,
//! or ends by `_exit`.
//!
//! # Safety
//!
//! Each unsafe block is one operation, with the reason why it is sound.

#![no_std]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]

extern crate alloc;
#[cfg(any(feature = "std", lowwater_loom, test))]
extern crate std;

/// For macros: a program may have another crate under the name `core`.
#[doc(hidden)]
pub use core as __core;

#[doc(hidden)]
pub use lowwater_base as __base;

#[cfg(all(not(lowwater_loom), feature = "embedder"))]
pub mod embedder;
pub mod list;
pub mod list_lru;
pub mod memcg;
pub mod topology;

#[doc(hidden)]
pub use list::CompressedLinks;
pub use list::{Handle, Linked, Links};
pub use list_lru::{AddError, AllocError, Isolate, Isolated, ListLru, LruStatus, Occupancy, Prepared, Unlocked};
pub use lowwater_base::{ByteSize, NodeId, ParseByteSizeError};
pub use lowwater_rcu::{heavy_fences, HeavyFences};
pub use memcg::*;
pub use topology::Topology;

use lowwater_base::{fallible, mutated, sync, unwind};
use lowwater_rcu as rcu;
