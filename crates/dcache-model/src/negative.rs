//! Policies that bound negative dentries. A policy runs once for each new negative, when its first
//! users have put it.
//!
//! | policy | bound | most negatives of a client that looks up each name twice |
//! |---|---|---|
//! | [`Unbounded`] | memory | memory |
//! | [`ThreeInARow`] | 3 per bucket and per positive, plus those looked up again | memory |
//! | [`PerDirectory`] | n per directory | n per directory |
//! | [`Probation`], the default | a share of the memcg's positives, or a floor | the share of its own memcg |

mod hook;
mod per_directory;
mod policy;
mod probation;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;
mod three_in_a_row;
mod trim;
mod unbounded;

pub(crate) use hook::PolicyHook;
pub use per_directory::PerDirectory;
pub use policy::{BoundInputs, NegativePolicy};
pub use probation::Probation;
pub use three_in_a_row::ThreeInARow;
pub use trim::NewNegative;
pub use unbounded::Unbounded;
