//! Texts from the kernel and the service manager: PSI files, control groups' files, systemd's
//! variables.
//!
//! 1. Any text is parsed or rejected.
//! 2. A parsed value formats to equal text; no group's directory is outside of its mount.
//!
//! The bodies are next to the parsers.
//!
//! A new parser of such text is added here with both properties.

use lowwater_pressure::{cgroup, psi, systemd};

/// Runs all parsers on `data`, and panics if a property of the module documentation fails.
pub fn check(data: &[u8]) {
    psi::fuzz(data);
    cgroup::fuzz(data);
    systemd::fuzz(data);
}
