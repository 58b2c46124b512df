//! A runtime with one node.
//!
//! Counts are exact only if all entries are on one node.
//!
//! A change must ensure that all entries are on one node on any machine.

use lowwater::topology::Fixed;
use lowwater::{ByteSize, Runtime};
use std::sync::Arc;

/// Builds a runtime with a budget and one node, independent of the test machine's
/// topology.
pub fn runtime(budget: ByteSize) -> Runtime {
    Runtime::builder().budget(budget).topology(Arc::new(Fixed::new(1))).build().unwrap()
}
