//! The usage of a runtime.
//!
//! Bytes in the stocks of processors count as usage although no entry has them.
//!
//! A change must ensure that stocks are drained before the usage is compared.

use lowwater::Runtime;

/// Returns the exact usage of the root in bytes: all stocks are drained first.
pub fn used(runtime: &Runtime) -> u64 {
    runtime.tree().drain_stock();
    runtime.root().usage().get()
}
