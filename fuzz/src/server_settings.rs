//! Input of an operator: the command line, and the file with the tenants' limits.
//!
//! 1. Any input is parsed, or rejected with a message.
//! 2. A message about the file names an existing line.
//!
//! A new file that an operator writes is added here with both properties.

use crate::settings::{args, limits};

/// Parses `data`, and panics if a property of the module documentation fails. The first byte
/// chooses the parser; flags are separated by newlines.
pub fn check(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(data) else { return };
    if which % 2 == 0 {
        // Without slashes a flag cannot name a file outside of the working directory.
        let text = text.replace('/', "_");
        let flags = ["lowwater-server"].into_iter().chain(text.split('\n'));
        if let Ok(Err(why)) = args::parse(flags) {
            assert!(!why.is_empty(), "1");
        }
        return;
    }
    let Err(limits::LimitsFileError::Line { line, field, why, .. }) = limits::parse(text, "tenants", b':') else {
        return;
    };
    assert!((1..=text.lines().count()).contains(&line), "2: line {line} of {text:?}");
    assert!(!field.is_empty() && !why.is_empty(), "1");
}
