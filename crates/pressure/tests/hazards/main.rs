//! Misuse of public types: leaked, dropped late, combined wrongly, with extreme numbers, called
//! from their own callbacks. docs/HAZARDS.md lists the cases tested for each type.
//!
//! Each file of this folder has one kind of misuse. Only safe code: a failure is a panic, a hang or
//! a limit out of bounds.
//!
//! A change must ensure that a new public type, or a new callback, is misused here in each of these
//! ways, and gets its row in docs/HAZARDS.md.

#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../base/tests/hazard/mod.rs"]
mod hazard;
mod monitors;
mod numbers;
mod texts;

use common::MonitoredReclaimer;
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::{ByteSize, MemcgTree};
use lowwater_shrinker::{Reclaimer, Registry, Watermarks};
use std::sync::Arc;

/// Reclaim starts above the limit, and ends at the limit.
const MARKS: Watermarks = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };

fn reclaimer(registry: &Registry) -> Arc<MonitoredReclaimer> {
    let reclaimer = Reclaimer::start(registry, Arc::new(Fixed::new(registry.nodes())), MARKS).unwrap();
    Arc::new(MonitoredReclaimer(reclaimer))
}

fn tree_and_registry() -> (MemcgTree, Registry) {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    (tree, registry)
}
