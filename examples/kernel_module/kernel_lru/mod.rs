// SPDX-License-Identifier: GPL-2.0

//! Shrinkers with LRU lists: safe Rust over the kernel's own `list_lru` and `shrinker`.
//!
//! A cache keeps its objects on a [`ListLru`], which has one list per memory control group and
//! node, and implements [`Shrinker`], which the kernel calls to count and to free objects of one
//! group on one node. The names and their meaning are those of the crates `lowwater-lru-core` and
//! `lowwater-shrinker`, so that the source of a cache is the same in user space, on lowwater's
//! lists, and in the kernel, on the kernel's.
//!
//! | file | contents |
//! |---|---|
//! | `list_lru.rs` | [`ListLru`]: allocates objects, adds, removes and counts them |
//! | `lru_arc.rs` | [`LruArc`]: a shared handle on an object |
//! | `walk.rs` | [`Isolate`]: the walk's callback and its verdicts |
//! | `isolated.rs` | [`Isolated`]: objects off their list, to be freed without a lock |
//! | `slab_cache.rs` | the `kmem_cache` of a list's objects |
//! | `shrinker.rs` | [`Shrinker`], [`ShrinkerBuilder`] and [`Registration`] |
//! | `shrink_control.rs` | [`ShrinkControl`], [`Count`] and [`Scan`] |
//! | `memcg.rs` | [`MemCgroup`] and [`NodeId`] |
//!
//! # Differences from the crates
//!
//! Those that the kernel's lists and shrinkers cause; README.md has what they mean for a cache.
//!
//! | here | in the crates |
//! |---|---|
//! | [`ListLru::alloc`], [`LruArc`] | a type with `Links`, and a `Handle`: here objects are in a slab cache, which knows their group |
//! | [`ListLru::add_obj`]`(handle)` | `add(handle, memcg, node)`, `add_batch`, `prepare` |
//! | [`ListLru::del`]`(&LruArc<T>)` | `del(&T)`, `del_batch`, `del_with_memcg` |
//! | [`AddError::Foreign`] | `AddError::NoMemory`, `AddError::Full`: here `alloc` has made the list, without a bound |
//! | [`ListLru::try_with_occupancy`]`(Occupancy<'_>)` | an `Arc<dyn Occupancy>`; `new` and `with_occupancy`, which abort without memory |
//! | `Option<&`[`MemCgroup`]`>` | `&Memcg`: a kernel without groups has none |
//! | [`NodeId::all`]: 32 bits, numbers with gaps | `NodeId::new`, `get`: 16 bits, without gaps |
//! | [`ListLru::count`], [`ListLru::clear`] | a sum over the nodes; a drop |
//! | [`ShrinkerBuilder::new`]`(name)` | `Registry::builder(name)`: here the registry is the kernel |
//! | [`Prepared::register`]`(Arc<S>)`, [`Registration<S>`](Registration) | `Arc<dyn Shrinker>` |
//! | objects are added after `register`, otherwise C may lose the report | reports before `register` are kept |
//! | [`ListLru::pin_init`], [`ListLru::try_pin_init`]: a value is initialized in place, and pinned | a value is moved into its handle |
//! | a callback may sleep after [`Isolate::unlock`] or [`Isolate::remove`] | it is still in the read side, where a kernel must not sleep |
//! | [`Prepared::id`]: `None` if the shrinker is not memcg-aware | a `ShrinkerId` in each case |
//! | | `promote`, `replace`, `isolate_oldest`, `Isolated::push`: no counterpart in C |
//! | | `ShrinkControl::will_defer`, `back_off`, `Shrinker::weigh_objects`, `numa_aware`, `reports_misses` |
//! | | `ListLru::{try_new, memcg_of, footprint, pairs, assert_valid}`, `FromIterator` for `Isolated` |
//! | | `Prepared::{try_occupancy, try_register, miss_reporter}`, `Registration::{unregister, unregister_nowait, stats}` |
//! | | `Reclaim::{BACKGROUND, FOREGROUND, KSWAPD}`, `NodeId::ZERO` |
//! | | `Arc::get_mut` on a handle: an object is pinned here |
//! | | `Debug` for lists, handles and shrinkers |
//!
//! # Kernels
//!
//! Linux 6.12 with `CONFIG_RUST=y` and `CONFIG_SMP=y`. It needs no `CONFIG_PREEMPT`; modules on
//! lowwater's crates need it, since the read side of RCU is a function that modules can call only
//! there.
//!
//! Later kernels need another version: from 6.13 on each list has a lock of its own, which is
//! inside `list_lru_one`, and the callback of a walk has no lock as an argument.
//!
//! # Examples
//!
//! `ci/rust-kernel.sh` extracts this code and compiles it.
//!
//! ```
//! use kernel_lru::{ShrinkerBuilder, Count, Isolated, ListLru, Scan, ShrinkControl, Shrinker};
//!
//! struct Cache {
//!     pages: ListLru<u64>,
//! }
//!
//! impl Shrinker for Cache {
//!     fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
//!         Count::Objects(self.pages.count_one(sc.memcg(), sc.node()))
//!     }
//!
//!     fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
//!         let (mut left, mut old) = (sc.nr_to_scan(), Isolated::new());
//!         self.pages.walk_one(sc.memcg(), sc.node(), &mut left, |it| it.isolate(&mut old));
//!         sc.set_nr_scanned(sc.nr_to_scan() - left);
//!         Scan::Freed(old.len() as u64)
//!     }
//! }
//!
//! let prepared = ShrinkerBuilder::new(c_str!("pages")).alloc()?;
//! let pages = ListLru::try_with_occupancy(prepared.occupancy())?;
//! let cache = prepared.register(Arc::new(Cache { pages }, GFP_KERNEL)?);
//!
//! // Only now: reclaim may lose the report of an object that was added before `register`.
//! let page = cache.pages.alloc(7, GFP_KERNEL)?;
//! cache.pages.add_obj(page.clone()).map_err(|_| EEXIST)?;
//! // `None` if the shrinker was first.
//! drop(cache.pages.del(&page));
//! # Ok::<(), Error>(())
//! ```

#![allow(dead_code)] // A module uses the parts that it needs.

// There a spin lock excludes nothing, so a callback that uses its own lists, which deadlocks on
// other kernels, would free the object that the walk visits next.
#[cfg(not(CONFIG_SMP))]
compile_error!("kernel_lru needs CONFIG_SMP");

mod isolated;
mod list_lru;
mod lru_arc;
mod memcg;
mod shrink_control;
mod shrinker;
mod slab_cache;
mod walk;

#[allow(unused_imports)]
pub(crate) use self::{
    isolated::Isolated,
    list_lru::{AddError, ListLru},
    lru_arc::LruArc,
    memcg::{MemCgroup, NodeId},
    shrink_control::{Count, Reclaim, Scan, ShrinkControl},
    shrinker::{Occupancy, Prepared, Registration, Shrinker, ShrinkerBuilder},
    walk::{Isolate, LruStatus, Unlocked},
};
