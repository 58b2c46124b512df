//! The resident memory of this process, from `/proc/self/status`.
//!
//! Beside the charged bytes, resident memory contains stacks, static data, and free memory that the
//! allocator keeps. Pages of files do not count where the kernel tells them apart (from Linux 4.5):
//! the kernel drops them by itself when memory is short.
//!
//! A change must ensure that an unknown format is `None`, and not a wrong amount.

use alloc::string::String;
use std::fs;

use lowwater_lru_core::ByteSize;

use crate::text::kilobytes;

const FILE: &str = "/proc/self/status";
/// Anonymous memory, and memory that processes share; from Linux 4.5 on.
const FIELDS: [&str; 2] = ["RssAnon", "RssShmem"];
/// All resident memory, with pages of files: for older kernels.
const FIELD: &str = "VmRSS";

/// Returns the memory of this process that is in RAM, without pages of mapped files (with them
/// before Linux 4.5), as exactly as the kernel counts it; `None` on a system without
/// `/proc/self/status`, or with one of another format.
///
/// ```
/// match lowwater_pressure::resident_memory() {
///     Some(memory) => println!("{memory:#}"),
///     None => println!("this system does not say"),
/// }
/// ```
#[doc(alias = "VmRSS")]
#[doc(alias = "RssAnon")]
pub fn resident_memory() -> Option<ByteSize> {
    // The file has the program's name, which need not be UTF-8.
    parse(&String::from_utf8_lossy(&fs::read(FILE).ok()?))
}

fn parse(text: &str) -> Option<ByteSize> {
    let [anonymous, shared] = FIELDS.map(|field| kilobytes(field, text).ok());
    anonymous
        .zip(shared)
        .map(|(anonymous, shared)| anonymous.saturating_add(shared))
        .or_else(|| kilobytes(FIELD, text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_do_not_count_where_they_can_be_told() {
        let new =
            "Name:\tVmRSS: 1 kB\nVmRSS:\t  4532 kB\nRssAnon:\t  1000 kB\nRssFile:\t 3500 kB\nRssShmem:\t  32 kB\n";
        assert_eq!(parse(new), Some(ByteSize::kib(1_032)));
        assert_eq!(parse("VmRSS:\t  4532 kB\n"), Some(ByteSize::kib(4_532)));
        assert_eq!(parse("RssAnon:\t 7 kB\nVmRSS:\t 9 kB\n"), Some(ByteSize::kib(9)));
        for bad in ["", "VmRSS:", "VmRSS: -1 kB", "VmRSS: 1 MB"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        // A name is cut after 15 bytes, inside a character.
        let cut = b"Name:\tab\xd0\nVmRSS:\t  8 kB\n";
        assert_eq!(parse(&String::from_utf8_lossy(cut)), Some(ByteSize::kib(8)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_is_written_becomes_resident() {
        let before = resident_memory().unwrap();
        let written = std::vec![1_u8; 64 << 20];
        let after = resident_memory().unwrap();
        // 4 MiB less than was written: other tests of this process may free memory meanwhile.
        assert!(after >= before + ByteSize::mib(60), "{before} before, {after} after");
        assert_eq!(written[written.len() / 2], 1);
    }
}
