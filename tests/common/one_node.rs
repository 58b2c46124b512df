//! A runtime with one node.

use lowwater::topology::Fixed;
use lowwater::{Bytes, Runtime};
use std::sync::Arc;

/// Builds a runtime with a budget and one node, whatever machine runs the test.
pub fn runtime(budget: Bytes) -> Runtime {
    Runtime::builder().budget(budget).topology(Arc::new(Fixed::new(1))).build().unwrap()
}
