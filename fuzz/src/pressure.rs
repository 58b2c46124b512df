//! Texts from the kernel and the service manager: PSI files, control groups' files, systemd's
//! variables.
//!
//! 1. Any text is parsed or rejected.
//! 2. A parsed value formats to text that parses to the same value; no group's directory is outside
//!    of its mount.
//!
//! The function `fuzz` of a parser's module checks them, and the module's own tests call it, too. A
//! new parser of such text is added here with both properties.

use lowwater_pressure::{cgroup, psi, systemd};

/// Runs all parsers on `data`, and panics if a property of the module documentation fails.
pub fn check(data: &[u8]) {
    psi::fuzz(data);
    cgroup::fuzz(data);
    systemd::fuzz(data);
}
