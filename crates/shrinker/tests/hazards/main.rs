//! Misuse of public types: leaked, dropped late, mixed up, with numbers at their limits, called
//! from their own callbacks. docs/HAZARDS.md lists the misuses that were tried with each type.
//!
//! Each file of this folder has one kind of misuse. Only safe code: a failure is a panic, a hang,
//! or another shrinker that is not reclaimed from.
//!
//! A change must ensure that a new public type, or a new callback, is misused here in each of these
//! ways, and gets its row in docs/HAZARDS.md.

#![forbid(unsafe_code)]
#![cfg(all(feature = "std", not(lowwater_loom)))]

mod callbacks;
#[path = "../common/mod.rs"]
mod common;
mod ends;
#[path = "../../../base/tests/hazard/mod.rs"]
mod hazard;
mod inside;
mod late;
mod leaks;
mod scopes;
mod texts;
mod topologies;

use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::{ByteSize, MemcgTree};
use lowwater_shrinker::{Reclaimer, Registry, Watermarks};
use std::sync::Arc;

/// No gaps below a limit: the reclaimer starts above a limit, or by `wake`, and stops at the limit.
const MARKS: Watermarks = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };

fn reclaimer(registry: &Registry) -> Arc<Reclaimer> {
    Arc::new(Reclaimer::start(registry, Arc::new(Fixed::new(registry.nodes())), MARKS).unwrap())
}

fn tree_and_registry() -> (MemcgTree, Registry) {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    (tree, registry)
}
