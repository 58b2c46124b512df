//! Misuse of public types: leaked, dropped late, mixed up, with numbers at their limits, called
//! from their own callbacks. docs/HAZARDS.md lists the misuses that were tried with each type.
//!
//! Each file of this folder has one kind of misuse, for the types of `base`, `rcu`, `lru-core` and
//! this crate. Only safe code.
//!
//! A change must ensure that a new public type, or a new callback, is misused here in each of these
//! ways, and gets its row in docs/HAZARDS.md.

#![forbid(unsafe_code)]
#![cfg(all(feature = "std", not(lowwater_loom)))]

mod callbacks;
#[path = "../../../base/tests/hazard/mod.rs"]
mod common;
mod ends;
mod inside;
mod late;
mod leaks;
mod mixed;
mod threads;
