//! What an operator writes: the command line, and the file of the tenants' limits.
//!
//! 1. Whatever is written, it is read or refused with a sentence.
//! 2. A sentence about the file names a line that is there.

use crate::settings::{args, limits};

/// See the module. The first byte says which of the two; flags are separated by line ends.
pub fn check(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(data) else { return };
    if which % 2 == 0 {
        // No file of this machine's is opened, whatever is in front of a name.
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
