//! Texts from the kernel and the service manager: PSI files, control groups' files, systemd's variables.
//!
//! 1. Whatever the text, it is read or refused.
//! 2. What was read is what is written again; no group's directory leads out of its mount.
//!
//! The bodies stand beside the parsers.

use lowwater_pressure::{cgroup, psi, systemd};

/// See the module.
pub fn check(data: &[u8]) {
    psi::fuzz(data);
    cgroup::fuzz(data);
    systemd::fuzz(data);
}
