//! The memory of the whole machine, from `/proc/meminfo`.
//!
//! A program that runs without a container has no other limit from which to choose a budget.
//!
//! A change must ensure that an unknown format is `None`, and never a wrong amount.

use std::fs;

use lowwater_lru_core::ByteSize;

use crate::text::{number, TextError};

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
    parse(&fs::read_to_string(FILE).ok()?).ok()
}

/// Parses the line `MemTotal:   2045708 kB`.
fn parse(text: &str) -> Result<ByteSize, TextError> {
    let missing = || TextError::new(FIELD, "", "a line with a number of kB");
    let line = text.lines().find_map(|line| line.strip_prefix(FIELD)?.strip_prefix(':')).ok_or_else(missing)?;
    let kilobytes = line.trim_ascii().strip_suffix(" kB").ok_or_else(missing)?;
    Ok(ByteSize::kib(number(FIELD, kilobytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_in_kib_and_anything_else_is_an_error() {
        let text = "MemTotalish: 1 kB\nMemTotal:        2045708 kB\nMemFree:  1 kB\n";
        assert_eq!(parse(text), Ok(ByteSize::kib(2_045_708)));
        for bad in ["", "MemTotal:", "MemTotal: 5", "MemTotal: -5 kB", "MemTotal: 5 MB", "MemFree: 5 kB"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_memory() {
        assert!(machine_memory().unwrap() >= ByteSize::mib(16));
    }
}
