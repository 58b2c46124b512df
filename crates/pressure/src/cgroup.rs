//! The control group that this process is in: how much memory it may use, how much it does, and how often it hit a limit.
//!
//! ```text
//!     /proc/self/cgroup      which group            Membership  --.
//!     /proc/self/mountinfo   where groups are       Mount         |--> CgroupPath: a directory, and the one it must not leave
//!                                                                --'
//!     CgroupPath, up to the top   memory.max, memory.high              --> the smallest of them counts
//! ```
//!
//! Limits nest: a group with `max` may stand in one that has less. So all of the path is read, and the smallest wins. A missing
//! file is no limit: the root has no limit files, and a group whose parent does not pass the controller on has none either.
//!
//! | | v2 | v1 |
//! |---|---|---|
//! | limit | `memory.max`, `memory.high` | `memory.limit_in_bytes` |
//! | used | `memory.current` | `memory.usage_in_bytes` |
//! | of that, what the kernel can drop | `memory.stat`: `file` less `shmem`, `slab_reclaimable` | `memory.stat`: `total_cache` less `total_shmem` |
//! | hits | `memory.events` | - |
//! | stalls | `memory.pressure` | - |
//!
//! A machine may have both (the memory controller in v1, and v2 for the rest): limits then come from v1, `memory.pressure`
//! from v2. The parsers are pure; `Cgroup`, which reads, is there under `std`, and finds no group where there is no `/proc`.

mod membership;
mod mount;
mod stat;

mod read;

pub use membership::Membership;
pub use mount::{CgroupPath, Mount, Version};
pub use stat::{Events, Stat};

pub use read::{Cgroup, CgroupError, Limit};

pub(super) use super::text::limit as parse_limit;

/// A limit that v1 writes where there is none: the largest number of whole pages, of whatever size.
const V1_UNLIMITED: u64 = i64::MAX as u64 & !0xffff;

/// Reads a limit file: `memory.max`, `memory.high` or v1's `memory.limit_in_bytes`.
///
/// ```
/// use lowwater_lru_core::ByteSize;
/// use lowwater_pressure::cgroup::parse_limit_of;
///
/// assert_eq!(parse_limit_of("memory.max", "100663296\n"), Ok(ByteSize::mib(96)));
/// assert_eq!(parse_limit_of("memory.max", "max\n"), Ok(ByteSize::MAX));
/// // What v1 writes for "none".
/// assert_eq!(parse_limit_of("memory.limit_in_bytes", "9223372036854771712\n"), Ok(ByteSize::MAX));
/// ```
///
/// # Errors
///
/// [`TextError`](super::TextError) with `field` as its field, for what is neither a number of bytes nor `max`.
pub fn parse_limit_of(field: &str, text: &str) -> Result<lowwater_lru_core::ByteSize, super::TextError> {
    let limit = parse_limit(field, text)?;
    Ok(if limit.get() >= V1_UNLIMITED { lowwater_lru_core::ByteSize::MAX } else { limit })
}

/// For the fuzzer: any text is read or refused by every parser here.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let _ = parse_limit_of("memory.max", text);
    let _ = Events::parse(text);
    let _ = Stat::parse(text);
    let mounts = Mount::parse_all(text);
    if let (Ok(membership), Ok(mounts)) = (Membership::parse(text), &mounts) {
        for version in [Version::V1, Version::V2] {
            if let Some(place) = CgroupPath::find(&membership, mounts, version) {
                assert!(place.directory().starts_with(place.top()), "a place is outside of its own mount");
                assert!(
                    !place.directory()[place.top().len()..].split('/').any(|name| name == ".."),
                    "a place climbs out"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
