//! The flags of a dentry (`d_flags` in Linux).
//!
//! All flags and the name's length share one word, so that a lookup reads them at once. Except for
//! `REFERENCED` they change under `d_lock`: the length by `Dentry::set_name`, the others by
//! `Dentry::update_flags` or its batched form, which keep the counters exact. `TYPE`, the name's
//! length and the setting of `UNHASHED` change between `seq` odd and even as well (see the table of
//! `dentry.rs`).

/// The type: two bits, 0 for a negative dentry. `kind_of` decodes them.
pub(crate) const TYPE: u32 = 3;
/// The dentry is on an LRU list, or on the private list of a reclaimer.
#[doc(alias = "DCACHE_LRU_LIST")]
pub(crate) const LRU_LIST: u32 = 1 << 2;
/// The dentry is on the private list of a reclaimer.
#[doc(alias = "DCACHE_SHRINK_LIST")]
pub(crate) const SHRINK_LIST: u32 = 1 << 3;
/// The dentry was used since it was added to its list, or since the last walk.
#[doc(alias = "DCACHE_REFERENCED")]
pub(crate) const REFERENCED: u32 = 1 << 4;
/// The dentry is not in the hash table.
#[doc(alias = "d_unhashed")]
pub(crate) const UNHASHED: u32 = 1 << 5;
/// The dentry is dead or dying.
#[doc(alias = "DCACHE_DENTRY_KILLED")]
pub(crate) const KILLED: u32 = 1 << 6;
/// The negative belongs to the protected list while it is listed: it was looked up again while on
/// probation, or was a ghost hit when it was added.
pub(crate) const PROTECTED: u32 = 1 << 7;
/// The `NegativePolicy` was already called for this negative.
pub(crate) const POLICY_SEEN: u32 = 1 << 8;
/// The parent directory is watched.
#[doc(alias = "DCACHE_FSNOTIFY_PARENT_WATCHED")]
pub(crate) const PARENT_WATCHED: u32 = 1 << 9;
/// A thread is looking the name up in the backend.
#[doc(alias = "DCACHE_PAR_LOOKUP")]
pub(crate) const IN_LOOKUP: u32 = 1 << 10;
/// The directory was removed: no name can be created in it any more.
#[doc(alias = "S_DEAD")]
pub(crate) const DEADDIR: u32 = 1 << 11;
/// The usage count of a protected negative, two bits: each walk of a trim adds 1 if the negative
/// was used since the last walk, and subtracts 1 otherwise.
pub(crate) const USAGE_COUNT: u32 = 3 << 12;
/// A usage count of 1.
pub(crate) const USAGE_ONE: u32 = 1 << 12;
/// The bytes of the dentry are charged to its memcg.
pub(crate) const CHARGED: u32 = 1 << 14;
/// The memcg could not be charged for the dentry: the last put frees it.
#[doc(alias = "DCACHE_DONTCACHE")]
pub(crate) const DONTCACHE: u32 = 1 << 15;
/// Shift of the name's length, which is the high byte.
pub(crate) const LEN_SHIFT: u32 = 24;
