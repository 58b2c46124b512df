//! The read side (RCU) and deferred freeing: readers follow pointers without a lock, and a retired
//! object is freed only when no reader can still see it.
//!
//! A reader calls [`pin`]: from then until the drop of the [`Guard`] it is *inside the read side*
//! (RCU's read-side critical section), and no object that was reachable at or after the pin is
//! freed. A writer first unlinks an object, then [retires](Guard::retire) it. The *grace period* of
//! a retired object ends when all readers have left that were inside when it was retired. There is
//! one read side for the whole process, as in a kernel: an item names the list that it is on, so a
//! thread that removes the item must enter the read side before it knows the list.
//!
//! Start at [`pin`] and [`Guard::retire`], at [`RcuCell`] for a value that is replaced as a whole,
//! or at [`EpochParity`] for a set that is cleared as a whole. The only public module is for
//! `lowwater-store`:
//!
//! | module | contents |
//! |---|---|
//! | [`reader_count`] | the count of readers of builds without `std` |
//!
//! The builds:
//!
//! | build | how | cost of a pin |
//! |---|---|---|
//! | `std` on Linux | [`membarrier`]: each reader stores its epoch in a cache line of its own; `membarrier` is the fence when objects are freed | two stores; a fence if the kernel or a sandbox has no `membarrier` at the first pin (for a later refusal see [`heavy_fence`]) |
//! | `std` elsewhere, or `--cfg lowwater_epoch` | crossbeam-epoch, with a collector of its own | a fence |
//! | without `std`, and under loom | readers are counted; the last one that leaves frees | one shared counter |
//! | without `std`, with `embedder` | the embedder's: a kernel's RCU | the embedder's |
//!
//! crossbeam-epoch is the maintained library for this purpose, and is used on systems other than
//! Linux. Two reasons speak against it on Linux. First, an add and a del do little else than pin,
//! so a fence in each is a third of their time. Second, crossbeam-epoch aborts when there is no
//! memory to register a thread or to record a retired object, while creating a list may fail and
//! must leave nothing behind (L17). Objects retired under `membarrier` are [queued](queue) through
//! a link inside the object.
//!
//! A destructor of a retired object runs in a call of any thread that retires, drops a guard or
//! flushes. With `std` its panic is caught, since that call may have retired none of the objects;
//! without `std` that call panics after it has freed the other objects.
//!
//! No retired object relies on an early run of its destructor: resources that must be released at
//! once (a group's handle, so that its id can be reused) are taken out before.
//!
//! # Fork
//!
//! The child of a `fork` has one thread. A lock that another thread held at the fork is never
//! released in the child, and the data it guards may be half changed. [`pin`] documents what the
//! child may do.
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `std` (default) | `membarrier` on Linux, crossbeam-epoch elsewhere |
//! | `embedder` | without `std`: the embedder's read side |
//!
//! Numbers such as L17 are those of docs/INVARIANTS.md.

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(rustdoc::private_intra_doc_links)]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]

extern crate alloc;
#[cfg(any(feature = "std", lowwater_loom, test))]
extern crate std;

#[cfg(all(not(lowwater_loom), not(feature = "std"), feature = "embedder"))]
use lowwater_base::embedder;
use lowwater_base::{fallible, mutated, sync};

mod cell;
#[cfg(any(lowwater_loom, not(any(feature = "std", feature = "embedder"))))]
mod counted;
#[cfg(all(not(lowwater_loom), feature = "std", any(lowwater_epoch, not(target_os = "linux"))))]
mod crossbeam;
#[cfg(all(not(lowwater_loom), not(feature = "std"), feature = "embedder"))]
mod embedded;
#[cfg(all(not(lowwater_loom), feature = "std", feature = "embedder"))]
mod embedder_unused;
mod epoch_parity;
#[cfg(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch)))]
mod garbage;
mod guard;
mod guard_overflow;
#[cfg(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch)))]
mod heavy_fence;
mod heavy_fences;
#[cfg(any(
    all(test, lowwater_loom),
    all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch))
))]
mod local_epoch;
#[cfg(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch)))]
mod membarrier;
#[cfg_attr(
    all(not(lowwater_loom), feature = "std", any(lowwater_epoch, not(target_os = "linux"))),
    expect(dead_code, reason = "crossbeam-epoch queues retired objects itself")
)]
mod queue;
#[doc(hidden)]
pub mod reader_count;
mod retired;

pub use cell::RcuCell;
#[cfg(any(lowwater_loom, not(any(feature = "std", feature = "embedder"))))]
pub use counted::{flush, start_poll, GracePeriod};
#[cfg(all(not(lowwater_loom), feature = "std", any(lowwater_epoch, not(target_os = "linux"))))]
pub use crossbeam::{flush, start_poll, GracePeriod};
#[cfg(all(not(lowwater_loom), not(feature = "std"), feature = "embedder"))]
pub use embedded::{flush, readers_left, start_poll, waiting, GracePeriod};
#[cfg(all(not(lowwater_loom), feature = "std", feature = "embedder"))]
pub use embedder_unused::{readers_left, waiting};
pub use epoch_parity::EpochParity;
pub use guard::{pin, try_pin, Guard};
pub use heavy_fences::HeavyFences;
#[cfg(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch)))]
pub use membarrier::{flush, start_poll, GracePeriod};
#[doc(hidden)]
pub use queue::KINDS_MAX;
#[doc(hidden)]
pub use retired::{Retired, RetiredKind};

/// Returns how often `membarrier` was refused since the process started. Both counts are zero if it
/// was never refused, if it was refused already at the first pin (readers execute fences then), or
/// if this build does not use it. O(1), takes one lock.
///
/// A filter of system calls (`seccomp`) that is installed after the first pin should allow
/// `membarrier`. If the filter refuses that call, it should allow `sched_getaffinity`,
/// `sched_setaffinity` and the creation of a thread. If one of those is refused as well, retired
/// memory is not freed.
///
/// ```
/// let fences = lowwater_rcu::heavy_fences();
/// assert_eq!(fences.refused, 0, "a filter holds retired memory back");
/// ```
pub fn heavy_fences() -> HeavyFences {
    #[cfg(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch)))]
    {
        membarrier::heavy_fences()
    }
    #[cfg(not(all(not(lowwater_loom), feature = "std", target_os = "linux", not(lowwater_epoch))))]
    {
        HeavyFences::default()
    }
}
