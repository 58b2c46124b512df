//! The registry of shrinkers of one runtime. It has no thread: a [`Reclaimer`](crate::Reclaimer) or
//! the caller reclaims through it.
//!
//! Its modules, from the lowest to the highest. `registry_core` uses the map; the pass and direct
//! reclaim use `registry_core`, and `reclaim` uses them:
//!
//! | module | |
//! |---|---|
//! | `scope` | scopes in which a thread does not reclaim |
//! | `caches`, `options`, `config` | options of a shrinker and of the registry |
//! | `in_flight` | the threads inside one shrinker's callbacks |
//! | `shrinker_state` | the state that a shrinker shares with its lists |
//! | `registered` | a registered shrinker, and the right to call it |
//! | `debt_listener` | the trait for notifications of deferred objects |
//! | `registry_core` | the registered shrinkers, by id |
//! | `pair_hint` | the last known slot of a pair in the table of pairs |
//! | `miss_reporter` | the handle for reporting misses on evicted objects |
//! | `filter`, `select` | selections of shrinkers, groups and nodes |
//! | `registration`, `builder` | registering and unregistering a shrinker |
//! | `handle` | [`Registry`]: its constructors and parts |
//! | `reclaim`, `inspect` | the calls of [`Registry`] |

mod builder;
mod caches;
mod config;
mod debt_listener;
mod filter;
mod handle;
mod in_flight;
mod inspect;
mod miss_reporter;
mod options;
mod pair_hint;
mod reclaim;
mod registered;
mod registration;
mod registry_core;
mod scope;
mod select;
mod shrinker_state;

#[cfg(all(test, lowwater_loom))]
mod loom;
#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests;

pub use builder::{Prepared, ShrinkerBuilder};
pub use caches::Caches;
pub use config::RegistryConfig;
pub use debt_listener::DebtListener;
pub(crate) use filter::ShrinkerFilter;
pub use handle::Registry;
pub(crate) use miss_reporter::budget;
pub use miss_reporter::MissReporter;
pub(crate) use options::ShrinkerOptions;
pub use pair_hint::PairHint;
pub(crate) use registered::CallbackPanicked;
pub use registration::Registration;
pub(crate) use registry_core::{CallGuard, Registered, RegistryCore};
pub use scope::NoReclaim;
pub use select::Select;
