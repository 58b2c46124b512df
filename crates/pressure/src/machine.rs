//! The memory of the whole machine, from `/proc/meminfo`.
//!
//! A program whose control group has no limit has no other number from which to choose a budget.
//!
//! A change must ensure that an unknown format is `None`, and never a wrong amount.

use std::fs;

use lowwater_lru_core::ByteSize;

use crate::text::kilobytes;

const FILE: &str = "/proc/meminfo";
const FIELD: &str = "MemTotal";

/// Returns the memory that the kernel manages (`MemTotal`); `None` on a system without
/// `/proc/meminfo`, or with one of another format.
///
/// ```
/// match lowwater_pressure::machine_memory() {
///     Some(memory) => println!("{memory:#}"),
///     None => println!("this system does not say"),
/// }
/// ```
#[doc(alias = "MemTotal")]
pub fn machine_memory() -> Option<ByteSize> {
    kilobytes(FIELD, &fs::read_to_string(FILE).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_in_kib_and_anything_else_is_an_error() {
        let text = "MemTotalish: 1 kB\nMemTotal:        2045708 kB\nMemFree:  1 kB\n";
        assert_eq!(kilobytes(FIELD, text), Ok(ByteSize::kib(2_045_708)));
        for bad in ["", "MemTotal:", "MemTotal: 5", "MemTotal: -5 kB", "MemTotal: 5 MB", "MemFree: 5 kB"] {
            assert!(kilobytes(FIELD, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_memory() {
        assert!(machine_memory().unwrap() >= ByteSize::mib(16));
    }
}
