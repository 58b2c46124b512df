//! The registry of shrinkers of one runtime. It has no thread and no clock of its own; a [`Reclaimer`](crate::Reclaimer) or the caller
//! brings them.
//!
//! From the lowest to the highest; the map, the pass and direct reclaim stand between the core and the calls of the handle:
//!
//! | module | |
//! |---|---|
//! | `scope` | threads that must not reclaim now |
//! | `caches`, `options`, `config` | choices: what a shrinker is, and how it and the registry work |
//! | `in_flight` | the threads inside one shrinker's callbacks |
//! | `shrinker_state` | what a shrinker shares with its lists |
//! | `registered` | a registered shrinker, and the right to call it |
//! | `debt_listener` | the trait that hears of deferred objects |
//! | `registry_core` | which shrinkers are registered, under which id |
//! | `miss_reporter` | how a shrinker tells that it misses what it let go |
//! | `filter`, `select` | a part of the shrinkers, groups and nodes |
//! | `registration`, `builder` | how a shrinker comes and goes |
//! | `handle` | [`Registry`] |
//! | `reclaim`, `inspect` | its calls |

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
pub use pair_hint::PairHint;
pub(crate) use registered::CallbackPanicked;
pub use registration::Registration;
pub(crate) use registry_core::{CallGuard, Registered, RegistryCore};
pub use scope::NoReclaim;
pub use select::Select;
