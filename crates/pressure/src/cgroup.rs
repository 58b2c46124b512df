//! The control group of this process: its memory limits, its usage, and the counts of charges that
//! reached a limit.
//!
//! ```text
//!     /proc/self/cgroup      groups of the process   Membership  --.
//!     /proc/self/mountinfo   mounted hierarchies     Mount       --+--> CgroupPath
//!
//!     CgroupPath: the directories of the group and of all groups above it that a mount shows
//!     memory.max, memory.high of each group on the path --> the smallest of them applies
//! ```
//!
//! Limits nest: a group with a `max` may be inside a group with a lower one. So all limits on the
//! path are read, and the smallest applies. A missing file is no limit: the root has no limit
//! files, and neither has a group whose parent does not enable the memory controller for its
//! children.
//!
//! | | v2 | v1 |
//! |---|---|---|
//! | limit | `memory.max`, `memory.high` | `memory.limit_in_bytes` |
//! | usage | `memory.current` | `memory.usage_in_bytes` |
//! | of that, droppable by the kernel | `memory.stat`: `file` less `shmem`, at most `active_file` and `inactive_file`, plus `slab_reclaimable` | `memory.stat`: `total_cache` less `total_shmem`, at most `total_active_file` and `total_inactive_file` |
//! | events | `memory.events`; of a group above, `memory.events.local` | - |
//! | stalls | `memory.pressure` | - |
//!
//! A machine may have both (the memory controller in v1, and v2 for the rest): then limits come
//! from v1, and `memory.pressure` from v2. The parsers are pure; `Cgroup` reads the files, and
//! finds no group on a system without `/proc`.
//
// A change must ensure that no text of a file makes a parser panic, and that no found directory is
// outside of its mount (`fuzz`).

mod membership;
mod mount;
mod stat;

mod read;

pub use membership::Membership;
pub use mount::{CgroupPath, Mount, Version};
pub use stat::{Events, Stat};

pub use read::{Cgroup, CgroupError, Limit};

pub(super) use super::text::limit as parse_limit;

/// The least limit that v1 writes for "no limit": `i64::MAX` rounded down to a page, for pages of
/// up to 64 KiB.
const V1_UNLIMITED: u64 = i64::MAX as u64 & !0xffff;
/// The limit that v1 writes for "no limit" on a 32-bit kernel: `i32::MAX` pages of 4 KiB.
const V1_UNLIMITED_32: u64 = i32::MAX as u64 * 4096;

/// Parses a limit file: `memory.max`, `memory.high` or v1's `memory.limit_in_bytes`.
///
/// ```
/// use lowwater_lru_core::ByteSize;
/// use lowwater_pressure::cgroup::parse_limit_of;
///
/// assert_eq!(parse_limit_of("memory.max", "100663296\n"), Ok(ByteSize::mib(96)));
/// assert_eq!(parse_limit_of("memory.max", "max\n"), Ok(ByteSize::MAX));
/// // The value that v1 writes for "no limit".
/// assert_eq!(parse_limit_of("memory.limit_in_bytes", "9223372036854771712\n"), Ok(ByteSize::MAX));
/// ```
///
/// # Errors
///
/// [`TextError`](super::TextError) with `field` as its field, for a text that is neither a number
/// of bytes nor `max`.
pub fn parse_limit_of(field: &str, text: &str) -> Result<lowwater_lru_core::ByteSize, super::TextError> {
    let limit = parse_limit(field, text)?;
    let is_unlimited = limit.get() >= V1_UNLIMITED || limit.get() == V1_UNLIMITED_32;
    Ok(if is_unlimited { lowwater_lru_core::ByteSize::MAX } else { limit })
}

/// Fuzz target: any text is parsed or rejected by every parser of this module, and no directory
/// that is found is outside of its mount.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let _ = parse_limit_of("memory.max", text);
    let _ = Events::parse(text);
    let _ = Stat::parse(text);
    let mounts = Mount::parse_all(text);
    if let (Ok(membership), Ok(mounts)) = (Membership::parse(text), &mounts) {
        for version in [Version::V1, Version::V2] {
            if let Some(path) = CgroupPath::find(&membership, mounts, version) {
                let is_below = |directory: &str, mount: &Mount| {
                    let rest = directory.strip_prefix(mount.point.trim_end_matches('/'));
                    rest.is_some_and(|rest| !rest.split('/').any(|name| name == ".."))
                };
                assert!(path.directory().starts_with(path.top()), "a directory is outside of its own mount");
                assert!(
                    path.upwards().all(|directory| mounts.iter().any(|mount| is_below(directory, mount))),
                    "a directory is outside of all mounts, or has `..`"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
