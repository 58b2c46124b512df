//! Policies that bound negative dentries. A policy runs once for each new negative, at its first
//! last put.
//!
//! | policy | bound | what a client that looks up each name twice gets |
//! |---|---|---|
//! | [`Unbounded`] | memory | memory |
//! | [`ThreeInARow`] | 3 a bucket, and those looked up again | memory |
//! | [`PerDirectory`] | n a directory | n a directory |
//! | [`Probation`], the default | a share of what the group holds in positives, or a floor | the share of its own group |

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
