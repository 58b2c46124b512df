//! Memory control groups, NUMA nodes, and LRU lists that exist only for the (group, node) pairs
//! that use them.
//!
//! Start at [`ListLru`] and [`MemcgTree`], as in the program below. Numbers such as L4 are those of
//! the guarantees in `docs/INVARIANTS.md` of the repository.
//!
//! The crate does not depend on shrinkers: a list that becomes non-empty calls its listener
//! ([`Occupancy`]).
//!
//! The modules, in the order in which an object passes through them:
//!
//! | module | contents |
//! |---|---|
//! | [`memcg`] | groups and their limits; a charge is counted in the group and in all its ancestors |
//! | [`topology`] | the machine's nodes, and the node of the calling thread |
//! | [`list`] | intrusive links inside the object, and the handle by which a list owns it |
//! | [`list_lru`] | one list for each (group, node): created on first use, sharded under contention, walked from the oldest item on |
//! | `embedder` | the lock, the read side and the processor number that a kernel provides (feature `embedder`) |
//!
//! Locks, atomics, [`ByteSize`] and [`NodeId`] come from `lowwater-base`. A list that ends is freed
//! after a grace period of `lowwater-rcu`.
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
//! // Evict the two oldest pages; uncharge them after the walk has released the list's lock.
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
//! | `std` (default) | parking_lot's locks, a read side whose pin costs two stores (crossbeam-epoch where the system has no `membarrier`), the topology from Linux' sysfs |
//! | `hwloc` | the topology from the C library of that name, and synthetic topologies |
//! | `embedder` | without `std`: locks and read side are provided by the program, as in a kernel (`embedder`) |
//! | `baseline` | `list_lru::baseline`, a simple reference implementation for tests and benches |
//!
//! Without `std` the crate needs `core`, `alloc` and atomic pointers: locks spin, and retired
//! memory is freed by the last reader that leaves. Where 64-bit atomics are missing,
//! portable-atomic replaces them. `--cfg lowwater_loom` builds the crate on loom, for model checks
//! only.
//!
//! # Fork
//!
//! The child of a `fork` has one thread. A lock that another thread held at the fork is never
//! released in the child, and the data it guards may be half changed. So the child of a
//! multi-threaded process must neither use nor drop anything of this crate: it calls `exec`, or
//! ends by `_exit`.
//!
//! # Safety
//!
//! Each unsafe block is one operation, with the reason why it is sound.

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]

extern crate alloc;
#[cfg(any(feature = "std", lowwater_loom, test))]
extern crate std;

/// `core`, for the macros: in the calling program another crate may have that name.
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
pub use list_lru::{AddError, AllocError, Isolate, Isolated, ListLru, LruStatus, Occupancy, Pick, Prepared, Unlocked};
pub use lowwater_base::{ByteSize, NodeId, ParseByteSizeError};
pub use lowwater_rcu::{heavy_fences, HeavyFences};
pub use memcg::*;
pub use topology::Topology;

use lowwater_base::{fallible, mutated, sync, unwind};
use lowwater_rcu as rcu;
