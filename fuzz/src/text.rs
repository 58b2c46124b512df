//! Texts that come from outside: amounts of memory, lists of processors, tables of distances.
//!
//! 1. Whatever the text, an answer comes back.
//! 2. An amount that was read and is written again, is read as the same amount.

use lowwater_lru_core::topology::{parse_distances, parse_list};
use lowwater_lru_core::ByteSize;

/// See the module.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(bytes) = text.parse::<ByteSize>() {
        assert_eq!(bytes.to_string().parse(), Ok(bytes), "{text:?}");
    }
    let _any_answer = (parse_list(text), parse_distances(text, 4));
}
