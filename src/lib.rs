//! Cache memory that gives way: many caches and many tenants in one memory budget.
//!
//! A server keeps many caches for many tenants in one memory. Fixed sizes by hand leave it wasted or killed. The Linux kernel
//! solved this for its own caches: objects sit on lists per control group and per NUMA node, every cache can count and free
//! (it is a *shrinker*), and when memory runs low a background thread asks only those that hold something. This is that machine as
//! a library.
//!
//! ```
//! use lowwater::{ByteSize, Cache, Runtime};
//!
//! // One budget, whatever is in it.
//! let runtime = Runtime::builder().budget(ByteSize::mib(64)).build()?;
//! let pages = Cache::<String, Vec<u8>>::builder(&runtime)
//!     .name("pages")
//!     .weigher(|url, body| ByteSize::new((url.capacity() + body.capacity()) as u64))
//!     .build()?;
//!
//! // A tenant is a group; it costs nothing here until its first entry. The group is charged; the
//! // keys are shared by all groups (`Cache::tenant` makes them a tenant's own).
//! let tenant = runtime.group("shop")?;
//! tenant.set_low(ByteSize::mib(8)); // keeps this much, whoever floods
//!
//! pages.entry("/cart".to_string()).group(&tenant).insert(b"<html>".to_vec())?;
//! assert_eq!(pages.get("/cart").as_deref(), Some(&b"<html>"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The parts
//!
//! | | |
//! |---|---|
//! | [`Runtime`] | groups, topology, registry and reclaimer under one roof, and what a budget promises; nothing global |
//! | [`Cache`] | a keyed cache in a runtime |
//! | [`Memcg`] | a tenant: a group with `min`, `low`, `high`, `max`; it is charged, and no part of a key |
//! | [`TenantView`](cache::TenantView) | a name space: the entries of one tenant, whose keys are its own |
//! | [`Charge`], [`Charged`] | bytes, and values, that are charged until they are dropped |
//! | [`ListLru`], [`linked!`] | lists for objects of your own (`lowwater-lru-core`) |
//! | [`Registry`], [`Shrinker`] | for a cache of your own that shall give way, too (`lowwater-shrinker`) |
//! | [`pressure`] | memory pressure from outside: PSI, the control group, systemd (`lowwater-pressure`) |
//!
//! Features, none of them on by default:
//!
//! | | |
//! |---|---|
//! | `async` | loads that a task waits for ([`Cache::get_or_insert_with`] and its kin, with `_async`); brings no executor |
//! | `hwloc` | the machine's topology from the C library of that name |
//! | `metrics` | a [`Runtime`], a [`Registry`] and a [`Cache`] publish their figures to the `metrics` facade |
//! | `tracing` | events of reclaim for `tracing` |
//!
//! # Fork
//!
//! The child of a `fork` has none of a runtime's threads, and locks that other threads held are never given back there. So it must neither use
//! nor drop anything of a [`Runtime`] (the drop of the last handle waits for the threads): it calls `exec`, or ends by `_exit`. A server that
//! forks its workers makes the runtime in each of them.

#![forbid(unsafe_code)]

pub mod cache;
pub mod pressure;
pub mod runtime;

pub use cache::{Cache, InsertError, RemovalCause};
pub use runtime::{Charge, Charged, Runtime};

pub use lowwater_lru_core::{
    linked, topology, ByteSize, Isolate, Isolated, Links, ListLru, LruStatus, Memcg, MemcgTree, NodeId, Occupancy,
    Topology,
};
pub use lowwater_rcu::{heavy_fences, HeavyFences};
#[cfg(feature = "metrics")]
pub use lowwater_shrinker::Labels;
pub use lowwater_shrinker::{
    CallbackScope, Count, NodeStats, PairStats, Reclaim, Reclaimer, Registration, Registry, RegistryStats, Scan,
    ShrinkControl, Shrinker, ShrinkerStats, Watermarks,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
#[cfg(doctest)]
#[doc = include_str!("../docs/GUIDE.md")]
struct GuideDoctests;
#[cfg(doctest)]
#[doc = include_str!("../docs/MIGRATING.md")]
struct MigratingDoctests;
