//! The usage of a runtime.

use lowwater::Runtime;

/// Returns the exact usage of the root in bytes: the stock is drained first.
pub fn used(runtime: &Runtime) -> u64 {
    runtime.tree().drain_stock();
    runtime.root().usage().get()
}
