//! The flags of a dentry (`d_flags` in Linux).

/// Two bits: 0 is negative.
pub(crate) const TYPE: u32 = 3;
/// On a list, or on somebody's private list.
pub(crate) const LRU_LIST: u32 = 1 << 2;
/// On somebody's private list.
pub(crate) const SHRINK_LIST: u32 = 1 << 3;
/// Used since it was put on its list, or since a walk saw it last.
pub(crate) const REFERENCED: u32 = 1 << 4;
/// Cannot be found by name.
pub(crate) const UNHASHED: u32 = 1 << 5;
/// Dead, or about to be.
pub(crate) const KILLED: u32 = 1 << 6;
/// A negative that came off probation: it was asked for again.
pub(crate) const KEPT: u32 = 1 << 7;
/// A negative that the policy has seen.
pub(crate) const SETTLED: u32 = 1 << 8;
/// The directory is watched.
pub(crate) const PARENT_WATCHED: u32 = 1 << 9;
/// Its backend is being asked.
pub(crate) const IN_LOOKUP: u32 = 1 << 10;
/// A directory that was removed: nothing is made in it any more.
pub(crate) const REMOVED: u32 = 1 << 11;
/// Two bits: at how many walks in a row one of the kept was found used, less those at which it was not.
pub(crate) const MERIT: u32 = 3 << 12;
pub(crate) const MERIT_ONE: u32 = 1 << 12;
/// Its bytes are charged to its group.
pub(crate) const CHARGED: u32 = 1 << 14;
/// Its group had no room for it: it goes with its last user.
#[doc(alias = "DCACHE_DONTCACHE")]
pub(crate) const DONT_KEEP: u32 = 1 << 15;
/// The high byte is the length of the name.
pub(crate) const LEN_SHIFT: u32 = 24;
