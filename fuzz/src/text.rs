//! Texts from users and from /sys: amounts of memory, lists of processors, tables of distances.
//!
//! 1. Any text is parsed or rejected.
//! 2. A parsed amount formats to text that parses to the same amount, and to a rounded text that
//!    parses.
//!
//! A new parser of such text is added here, with property 2 if its result can be formatted.

use lowwater_lru_core::topology::{parse_distances, parse_list};
use lowwater_lru_core::ByteSize;

/// Runs all parsers on `data`, and panics if a property of the module documentation fails.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(bytes) = text.parse::<ByteSize>() {
        assert_eq!(bytes.to_string().parse(), Ok(bytes), "{text:?}");
        assert!(format!("{bytes:#}").parse::<ByteSize>().is_ok(), "{text:?}");
    }
    let _any_answer = (parse_list(text), parse_distances(text, 4));
}
