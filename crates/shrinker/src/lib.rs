//! Shrinkers: caches that give memory back, called only for groups and nodes where they hold
//! objects.
//!
//! Start at [`Shrinker`], which a cache implements, and [`Registry::builder`], which registers it.
//! Numbers such as S14 are those of the guarantees in `docs/INVARIANTS.md` of the repository.
//!
//! A cache that implements [`Shrinker`] can count its objects of a group on a node, and free the
//! oldest of them. The [`Registry`] has a map with a bit for each live pair: a shrinker and a group
//! for which it holds objects on a node. The map's cost grows with the live pairs, not with the
//! possible ones. Under pressure, a [`Reclaimer`] passes over the map in the background, or a
//! thread frees a little for itself ([`Registry::direct_reclaim`]). Objects that a call should have
//! scanned and did not are deferred: they are the pair's debt.
//!
//! The structure is that of Linux's `mm/shrinker.c`, with five differences:
//!
//! 1. The map is sparse: memory and passes are O(live pairs), not O(groups x shrinkers).
//! 2. A bit is cleared only if a second count follows, everywhere; no object is ever hidden from
//!    reclaim.
//! 3. Only the background scans deferred objects ([`budget::Fair`]), and small caches are scanned
//!    too.
//! 4. A reused id is clean: no bit and no debt of its previous owner remains.
//! 5. Unregistering waits for callbacks in flight, not for a grace period; inside a callback it
//!    does not wait.
//!
//! # Fork
//!
//! The child of a `fork` has none of the threads of a [`Reclaimer`], and locks that other threads
//! held are never released there. So the child must neither use nor drop anything of this crate
//! (the drop of a `Reclaimer` waits for its threads): it calls `exec`, or ends by `_exit`.
//!
//! # Modules
//!
//! From the lowest to the highest; a module uses none that is higher:
//!
//! | module | |
//! |---|---|
//! | `hash`, `thin_vec`, `bitmap`, `id` | hashing of ids, a vector of one word while empty, sparse bits, shrinker ids |
//! | `callback` | [`CallbackScope`]: whether the calling thread is inside a callback |
//! | `control`, `shrinker` | the request and the results of a callback: [`ShrinkControl`], [`Shrinker`] |
//! | `work`, `error` | bounds on one call of reclaim; errors |
//! | `deferred` | [`Debt`]: objects with a deferred scan (Linux's `nr_deferred`) |
//! | [`budget`] | how many objects a visit scans: the policies |
//! | `stats` | statistics of shrinkers and of live pairs |
//! | `utility` | how many misses a pair of a shrinker and a group would save per byte of more memory |
//! | `series`, `metric` (feature `metrics`) | stable labels and counters that never fall; a metric's name, unit and description |
//! | `map` | which shrinker holds objects of which group on which node: bits, deferred objects, and the iterator over groups |
//! | `registry::registry_core` | which shrinkers are registered, and how a callback is entered |
//! | `shrink` | one visit of a shrinker for one group on one node (Linux's `do_shrink_slab`); `trace`: its two tracepoints |
//! | `resync` | the full scan that sets bits, and adds pairs, for which there was no memory |
//! | `pass` | one pass over the live groups of a subtree on one node |
//! | `least_useful` | reclaim from the pair of the least utility |
//! | `direct` | direct reclaim: the thread that needs memory frees a little itself |
//! | `registry` | [`Registry`]: the handle and its calls |
//! | `reclaimer` | [`Reclaimer`]: a thread per node; [`Job`]: its steps without the thread |
//! | `debugfs`, `metrics` | the registry as text, and for the `metrics` facade |
//! | `baseline` (feature `baseline`) | a scan that calls every shrinker for every group: the baseline of tests and benches |

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]

extern crate alloc;
#[cfg(any(feature = "std", lowwater_loom, test))]
extern crate std;

#[cfg(feature = "baseline")]
pub mod baseline;
mod bitmap;
pub mod budget;
mod callback;
mod control;
mod debugfs;
mod deferred;
mod direct;
mod error;
mod hash;
mod id;
mod least_useful;
mod map;
#[cfg(feature = "metrics")]
mod metric;
#[cfg(feature = "metrics")]
mod metrics;
mod pass;
mod protect;
mod reclaimer;
mod registry;
mod resync;
#[cfg(feature = "metrics")]
mod series;
mod shrink;
mod shrinker;
mod stats;
mod thin_vec;
mod trace;
mod utility;
mod work;

pub use callback::CallbackScope;
pub use control::{Reclaim, ShrinkControl};
#[doc(hidden)]
pub use debugfs::{ScanError, ScanRequest};
pub use deferred::Debt;
pub use direct::{DirectOutcome, DirectStop};
#[cfg(feature = "std")]
pub use error::StartError;
pub use error::{ShrinkerAllocError, UnregisterError};
pub use id::ShrinkerId;
#[cfg(feature = "metrics")]
#[doc(hidden)]
pub use metric::Metric;
#[cfg(feature = "metrics")]
pub use metrics::Labels;
pub use reclaimer::{Job, ReclaimReason, Step, Watermarks};
#[cfg(all(feature = "std", not(lowwater_loom)))]
pub use reclaimer::{NodeStats, Reclaimer};
#[doc(hidden)]
pub use registry::{Caches, PairHint, Select};
pub use registry::{
    DebtListener, MissReporter, NoReclaim, Prepared, Registration, Registry, RegistryConfig, ShrinkerBuilder,
};
#[cfg(feature = "metrics")]
#[doc(hidden)]
pub use series::Totals;
pub use shrinker::{Count, Scan, Shrinker};
pub use stats::{PairStats, RegistryStats, ShrinkerStats};
pub use utility::Miss;
#[cfg(feature = "std")]
pub use work::SystemClock;
pub use work::{Bound, Clock, Progress, Work};
