//! In-memory caches that share one memory budget, for many tenants in one process.
//!
//! With a fixed size for each cache, one cache evicts while another has unused room; and if the
//! sizes add up to too much, the process is killed. Here one limit in bytes holds for all caches of
//! the process. Memory goes to the cache and tenant in which it brings the most hits, and when the
//! machine or the container runs short of memory, the caches shrink, if the runtime was built with
//! [`auto_pressure`](runtime::RuntimeBuilder::auto_pressure).
//!
//! The Linux kernel does this for its own caches: objects are on lists per control group and NUMA
//! node; each cache is a *shrinker*, which can count and free its objects; and when memory is
//! short, a background thread calls only the shrinkers that hold something. This crate is that
//! mechanism as a library, with threads of its own. It is tested on Linux.
//!
//! Start with [`Runtime::builder`] and [`Cache::builder`], as in the program below. The page
//! [`docs/GUIDE.md`](https://docs.rs/crate/lowwater/latest/source/docs/GUIDE.md) is a tour of the
//! crate; [`docs/INVARIANTS.md`](https://docs.rs/crate/lowwater/latest/source/docs/INVARIANTS.md)
//! lists the guarantees of the lists and shrinkers, by number.
//!
//! ```
//! use lowwater::{ByteSize, Cache, Runtime};
//!
//! // One budget for all caches.
//! let runtime = Runtime::builder().budget(ByteSize::mib(64)).build()?;
//! let pages = Cache::<String, Vec<u8>>::builder(&runtime)
//!     .name("pages")
//!     .weigher(|url, body| url.capacity() + body.capacity())
//!     .build()?;
//!
//! // A tenant is a group, to which its entries are charged. A group takes no memory in a cache
//! // before its first entry. The keys are shared by all groups; `Cache::tenant` gives a tenant
//! // keys of its own.
//! let tenant = runtime.group("shop")?;
//! tenant.set_low(ByteSize::mib(8)); // protected while other tenants insert
//!
//! pages.entry("/cart".to_string()).group(&tenant).insert(b"<html>".to_vec())?;
//! assert_eq!(pages.get("/cart").as_deref(), Some(&b"<html>"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The parts
//!
//! | part | purpose |
//! |---|---|
//! | [`Runtime`] | one budget with its groups, topology, registry and threads; its page states the guarantees of a budget |
//! | [`Cache`] | a keyed cache in a runtime |
//! | [`Memcg`] | a tenant: a group with the limits `min`, `low`, `high` and `max`, to which bytes are charged |
//! | [`TenantView`](cache::TenantView) | a name space: the entries of one tenant, under keys of its own |
//! | [`Charge`], [`Charged`] | bytes and values that are charged until they are dropped |
//! | [`ListLru`], [`linked!`] | LRU lists for objects of your own (`lowwater-lru-core`) |
//! | [`Registry`], [`Shrinker`] | reclaim from a cache of your own (`lowwater-shrinker`) |
//! | [`lru_core`], [`shrinker`] | the two packages, for the names that are rarely needed: errors, cursors, statistics |
//! | [`pressure`] | memory pressure of the system: PSI, the control group, systemd (`lowwater-pressure`) |
//! | [`cache`], [`runtime`] | the other types of a cache (builder, entry, expiry, errors) and of a runtime (builder, clock, statistics) |
//!
//! Features, all off by default:
//!
//! | feature | effect |
//! |---|---|
//! | `async` | loads for which a task waits: [`Cache::get_or_insert_with`] and the like, as `_async`; no executor needed |
//! | `hwloc` | the NUMA topology from the C library hwloc |
//! | `metrics` | a [`Runtime`], a [`Registry`] and a [`Cache`] publish their figures to the `metrics` facade |
//! | `serde` | [`ByteSize`] in configurations: a number of bytes, `"64 MiB"` or `"max"` |
//! | `tracing` | events of reclaim for `tracing` |
//!
//! # Errors
//!
//! The message of an error contains its causes, down to the system's, so printing it with `{}` is
//! enough. [`source`](std::error::Error::source) therefore returns none: a report of a whole chain
//! states each fact once. A cause is also a field of its variant.
//!
//! # Fork
//!
//! The child of a `fork` has none of a runtime's threads, and a lock that another thread held at
//! the `fork` is never released in the child. So the child must neither use nor drop any part of a
//! [`Runtime`] (the drop of the last handle waits for the threads): it must call `exec` or `_exit`.
//! A server that forks its workers must build a runtime in each worker.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The packages below this one have the unsafe code (docs/DESIGN.md, section 2).
#![forbid(unsafe_code)]

pub mod cache;
pub mod pressure;
pub mod runtime;

pub use cache::{Cache, InsertError, RemovalCause};
pub use runtime::{Charge, Charged, Runtime};

pub use equivalent::Equivalent;
pub use lowwater_lru_core as lru_core;
pub use lowwater_lru_core::{
    linked, topology, ByteSize, Isolate, Isolated, Links, ListLru, LruStatus, Memcg, MemcgTree, NodeId, Occupancy,
    Topology,
};
pub use lowwater_rcu::{heavy_fences, HeavyFences};
pub use lowwater_shrinker as shrinker;
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
