//! Caches of other crates under one memory budget with lowwater's own.
//!
//! An adapted cache keeps its policy, its keys and its speed; only its size now depends on the
//! other caches of the process. [`adapt`] charges the cache's bytes to a group of a [`Runtime`],
//! and lets the runtime evict from the cache when the memory would save more misses in another one.
//! The cache needs [`Evict`]: its weight in bytes, and a way to make it lighter. Start at
//! [`adapt`].
//!
//! | cache | here | feature |
//! |---|---|---|
//! | `quick_cache::sync::Cache` | implements [`Evict`] | `quick_cache` |
//! | `foyer::Cache` (the one in memory) | implements [`Evict`] | `foyer` |
//! | `lru::LruCache` | [`Weighed`], which adds weights and a lock | `lru` |
//! | `hashlink::LruCache` | [`Weighed`] | `hashlink` |
//! | a pool, an allocator's cache, a database's page cache | [`evict_by`], two closures | |
//!
//! moka is missing: it has no way to evict on request. So is redb 4.6: its cache gets its size when
//! the database is opened.
//!
//! ```
//! use std::sync::Mutex;
//! use lowwater::{ByteSize, Cache, Runtime};
//! use lowwater_adapters::{adapt, evict_by};
//!
//! let runtime = Runtime::builder().budget(ByteSize::mib(16)).build()?;
//! let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity()).build()?;
//!
//! // A pool of buffers of 64 KiB.
//! static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
//! const BUFFER: usize = 64 << 10;
//! let pool = adapt(
//!     &runtime,
//!     "buffers",
//!     evict_by(
//!         || POOL.lock().unwrap().len() * BUFFER,
//!         |target| POOL.lock().unwrap().truncate(target.get() as usize / BUFFER),
//!     ),
//! )?;
//! pool.update(|_| POOL.lock().unwrap().extend((0..200).map(|_| vec![0; BUFFER])));
//! assert!(runtime.root().usage() >= ByteSize::kib(200 * 64));
//!
//! // The cache is used and needs the memory: the pool gives way.
//! for key in (0..100).cycle().take(2000) {
//!     cache.get_or_insert_with(key, || vec![0; 64 << 10]);
//! }
//! assert!(POOL.lock().unwrap().len() < 200);
//! assert!(runtime.root().usage() <= ByteSize::mib(16));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Fork
//!
//! The child of a `fork` must neither use nor drop an adapted cache: see [`lowwater`].
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | `evict` | [`Evict`], the interface of a foreign cache, and [`evict_by`] |
//! | `balance` | the bytes that are charged for a cache |
//! | `eviction` | the right to evict from a cache, which one thread has at a time |
//! | `growth` | an estimate of the bytes that updates add during an eviction |
//! | `adapted` | [`adapt`] and [`Adapted`] |
//! | `capacity_steps` | how a sharded cache is evicted from by lower capacities |
//! | `weighed` | [`Weighed`]: weights and a lock for caches that count entries |
//! | `quick_cache`, `foyer`, `lru`, `hashlink` | one crate each |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod adapted;
mod balance;
#[cfg(any(feature = "foyer", feature = "quick_cache"))]
mod capacity_steps;
mod evict;
mod eviction;
#[cfg(feature = "foyer")]
mod foyer;
mod growth;
#[cfg(feature = "hashlink")]
mod hashlink;
#[cfg(feature = "lru")]
mod lru;
#[cfg(feature = "quick_cache")]
mod quick_cache;
mod weighed;

pub use adapted::{adapt, adapt_in, AdaptError, Adapted};
pub use evict::{evict_by, Evict, EvictBy};
pub use weighed::{OldestFirst, Weighed};

#[cfg(doc)]
use lowwater::Runtime;
