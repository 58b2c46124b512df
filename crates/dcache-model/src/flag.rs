//! The flags of a dentry (`d_flags` in Linux).

/// Two bits: 0 is negative.
pub(crate) const TYPE: u32 = 3;
/// On a list, or on the private list of a reclaimer.
#[doc(alias = "DCACHE_LRU_LIST")]
pub(crate) const LRU_LIST: u32 = 1 << 2;
/// On the private list of a reclaimer.
#[doc(alias = "DCACHE_SHRINK_LIST")]
pub(crate) const SHRINK_LIST: u32 = 1 << 3;
/// Used since the dentry was added to its list, or since the last walk.
#[doc(alias = "DCACHE_REFERENCED")]
pub(crate) const REFERENCED: u32 = 1 << 4;
/// Not in the hash table.
#[doc(alias = "d_unhashed")]
pub(crate) const UNHASHED: u32 = 1 << 5;
/// Dead, or about to be.
#[doc(alias = "DCACHE_DENTRY_KILLED")]
pub(crate) const KILLED: u32 = 1 << 6;
/// A negative on the protected list: it was looked up again while on probation.
pub(crate) const PROTECTED: u32 = 1 << 7;
/// A negative of which the policy was told.
pub(crate) const POLICY_SEEN: u32 = 1 << 8;
/// The parent is watched.
#[doc(alias = "DCACHE_FSNOTIFY_PARENT_WATCHED")]
pub(crate) const PARENT_WATCHED: u32 = 1 << 9;
/// A thread asks the backend for the name.
#[doc(alias = "DCACHE_PAR_LOOKUP")]
pub(crate) const IN_LOOKUP: u32 = 1 << 10;
/// A directory that was removed: no name is created in it any more.
#[doc(alias = "S_DEAD")]
pub(crate) const DEADDIR: u32 = 1 << 11;
/// Two bits, the usage count of a protected negative: each walk adds 1 if the negative was used
/// since the last walk, and subtracts 1 if not.
pub(crate) const USAGE_COUNT: u32 = 3 << 12;
/// A usage count of 1.
pub(crate) const USAGE_ONE: u32 = 1 << 12;
/// Its bytes are charged to its group.
pub(crate) const CHARGED: u32 = 1 << 14;
/// The memcg could not be charged for the dentry: the last put frees it.
#[doc(alias = "DCACHE_DONTCACHE")]
pub(crate) const DONTCACHE: u32 = 1 << 15;
/// The high byte is the length of the name.
pub(crate) const LEN_SHIFT: u32 = 24;
