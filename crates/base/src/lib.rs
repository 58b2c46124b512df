//! The foundation of all lowwater crates: locks and atomics, fallible allocation, and small types.
//!
//! This crate is an implementation part of lowwater. `lowwater` and `lowwater-lru-core` re-export
//! the items that a program needs. Start at [`sync`], which all crates with model checks build on.
//!
//! A change must ensure that the crate builds without `std`, and depends on no other crate of the
//! workspace.
//!
//! | module | contents |
//! |---|---|
//! | [`sync`] | the locks, atomics and threads of those crates, in four builds: user space, bare metal, kernel, model check |
//! | `embedder` | the lock, the read side and the processor number that a kernel provides (feature `embedder`, without `std`) |
//! | [`fallible`] | allocation that returns an error instead of aborting |
//! | [`unwind`] | calls of user code that may panic |
//! | [`zeroed_atomics`], [`mapped_memory`] | large tables and chunks, mapped from the system |
//! | [`slots`] | chunks of slots, and compressed pointers to slots |
//! | [`poison`] | poisoning of freed memory, for tests |
//! | [`byte_size`], [`node_id`] | an amount of memory, the number of a NUMA node |
//! | [`earliest_deadline`] | the earliest deadline, for which a sweeper waits |
//! | [`erased_arc`] | an `Arc` of a state, without the bounds of the state's type |
//! | `packed_size` | a number of bytes in few bits |
//! | [`compact_bytes`] | short bytes, or a shared value, in 12 bytes |
//! | [`cpu`], [`thread_slot`] | numbers of processors and threads, which spread threads over shards |
//! | [`id_pool`] | ids, the lowest free one first |
//! | [`hash`] | constants of hashing |
//! | [`striped_counters`] | counters in stripes, so that threads rarely write the same cache line |
//! | [`prefetch`](mod@prefetch) | prefetch hints to the processor |
//! | [`malloc_trim`](mod@malloc_trim) | the C library's call of this name |
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `std` (default) | parking_lot's locks, threads, memory mapped from the system |
//! | `serde` | serde's traits for [`ByteSize`] |
//! | `embedder` | without `std`: locks and the read side are provided by the program, as in a kernel |

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(lowwater_try_arc, feature(allocator_api))]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]

extern crate alloc;
#[cfg(any(feature = "std", lowwater_loom, test))]
extern crate std;

/// `core`, for the macros: in the calling program another crate may have that name.
#[doc(hidden)]
pub use core as __core;

pub mod byte_size;
pub mod compact_bytes;
#[doc(hidden)]
pub mod cpu;
pub mod earliest_deadline;
#[cfg(all(not(lowwater_loom), feature = "embedder"))]
pub mod embedder;
#[doc(hidden)]
pub mod erased_arc;
pub mod fallible;
mod field;
#[doc(hidden)]
pub mod hash;
#[doc(hidden)]
pub mod id_pool;
#[cfg(all(feature = "std", target_os = "linux", target_env = "gnu"))]
pub mod malloc_trim;
#[doc(hidden)]
#[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
pub mod mapped_memory;
pub mod node_id;
#[doc(hidden)]
pub mod packed_size;
#[doc(hidden)]
pub mod poison;
pub mod prefetch;
#[doc(hidden)]
pub mod slots;
#[doc(hidden)]
pub mod striped_counters;
pub mod sync;
#[doc(hidden)]
pub mod thread_slot;
#[doc(hidden)]
pub mod unwind;
#[cfg(not(lowwater_loom))]
pub mod zeroed_atomics;

pub use byte_size::{ByteSize, ParseByteSizeError};
pub use earliest_deadline::EarliestDeadline;
pub use node_id::NodeId;
#[cfg(not(lowwater_loom))]
pub use zeroed_atomics::ZeroedAtomics;
