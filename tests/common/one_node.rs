//! A runtime with one node.
//!
//! Each node has its own lists and its own reclaimer thread: with several, counts would depend on
//! the processors on which a test's threads run.
//!
//! A change must ensure that all entries are on one node on any machine.

use lowwater::topology::Fixed;
use lowwater::{ByteSize, Runtime};
use std::sync::Arc;
use std::time::Duration;

/// Builds a runtime with a budget and one node, independent of the test machine's topology. Inserts
/// wait for room longer than by default, since readers of other tests may hold evicted entries
/// back.
pub fn runtime(budget: ByteSize) -> Runtime {
    let builder = Runtime::builder().budget(budget).topology(Arc::new(Fixed::new(1)));
    builder.direct_time_max(Duration::from_secs(60)).build().unwrap()
}
