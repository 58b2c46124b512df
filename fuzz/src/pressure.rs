//! Texts from the kernel and the service manager: PSI files, control groups' files, systemd's
//! variables.
//!
//! 1. Any text is parsed or rejected without a panic: all parsers of these three modules.
//! 2. A parsed value formats to text that parses to the same value: `psi` (its `Stalls`). The bytes
//!    that `systemd` decodes encode to their input, without the white space around it.
//! 3. No group's directory is outside of its mount: `cgroup`, whose values have no formatter.
//!
//! The function `fuzz` of a parser's module checks its properties, and the module's own tests call
//! it, too. The module of a new parser is added here, with property 1, and with property 2 if its
//! values can be formatted.

use lowwater_pressure::{cgroup, psi, systemd};

/// Runs all parsers on `data`, and panics if a property of the module documentation fails.
pub fn check(data: &[u8]) {
    psi::fuzz(data);
    cgroup::fuzz(data);
    systemd::fuzz(data);
}
