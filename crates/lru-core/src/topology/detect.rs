//! The choice of a topology for this machine.
//!
//! A change must ensure that a machine with an unreadable topology gets one node, and no error: a
//! wrong node costs speed and nothing else.

#[cfg(all(feature = "std", target_os = "linux"))]
use super::Sysfs;
use super::{Fixed, Topology};
use crate::sync::Arc;

/// Returns the topology of this machine: `Sysfs` where the system has it, or else a [`Fixed`] one
/// of a single node.
pub fn detect() -> Arc<dyn Topology> {
    #[cfg(all(feature = "std", target_os = "linux"))]
    if let Ok(sysfs) = Sysfs::detect() {
        return Arc::new(sysfs);
    }
    Arc::new(Fixed::new(1))
}
