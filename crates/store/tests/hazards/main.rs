//! Public types misused: leaked, dropped late, mixed up, at the ends of their numbers, called from their own callbacks. What each type was
//! tried with is in docs/HAZARDS.md.

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
