//! The resident memory of this process, from `/proc/self/status`.
//!
//! Beside the charged bytes it contains code, stacks, and what the allocator keeps between used
//! blocks.
//!
//! A change must ensure that an unknown format is `None`, and never a wrong amount.

use std::fs;

use lowwater_lru_core::ByteSize;

use crate::text::kilobytes;

const FILE: &str = "/proc/self/status";
const FIELD: &str = "VmRSS";

/// Returns the memory of this process that is in RAM; `None` on a system without
/// `/proc/self/status`, or with one of another format.
///
/// ```
/// match lowwater_pressure::resident_memory() {
///     Some(memory) => println!("{memory:#}"),
///     None => println!("this system does not say"),
/// }
/// ```
#[doc(alias = "VmRSS")]
pub fn resident_memory() -> Option<ByteSize> {
    kilobytes(FIELD, &fs::read_to_string(FILE).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_is_written_becomes_resident() {
        let before = resident_memory().unwrap();
        let written = std::vec![1_u8; 64 << 20];
        let after = resident_memory().unwrap();
        assert!(after >= before + ByteSize::mib(60), "{before} before, {after} after");
        assert_eq!(written[written.len() / 2], 1);
    }
}
