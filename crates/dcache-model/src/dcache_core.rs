//! The state that all handles and mounts of a cache share: the hash table of dentries, the
//! counters, the superblocks.

use crate::dentry::Dentry;
use crate::ghost::GhostTable;
use crate::qstr::{Name, QStr};
use crate::seqcount::SeqLock;
use crate::stats::Counters;
use crate::superblock::SuperBlock;
use lowwater_base::sync::{Arc, Mutex, RwLock};
use lowwater_lru_core::topology::Topology;
use lowwater_store::hash_chains::{HashChains, Reader};
use std::fmt;

/// What becomes of a name that is removed while nobody else uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "fs.dentry-negative")]
pub enum OnUnlink {
    /// It stays, as a negative, if the policy has room for one that nobody asked for: the next who
    /// asks is answered from the cache.
    #[default]
    KeepNegative,
    /// It goes: who creates and removes names that never come back leaves nothing.
    Forget,
}

/// What all handles and mounts share.
pub(crate) struct DcacheCore {
    #[doc(alias = "dentry_hashtable")]
    pub(crate) chains: HashChains<Dentry>,
    pub(crate) secret: u64,
    pub(crate) rename_lock: SeqLock,
    pub(crate) counters: Counters,
    pub(crate) negatives: Box<dyn NegativeHook>,
    pub(crate) ghosts: GhostTable,
    pub(crate) topology: Arc<dyn Topology>,
    pub(crate) on_unlink: OnUnlink,
    /// Are dentries charged to their groups?
    pub(crate) charges: bool,
    /// Held by who moves names between directories.
    #[doc(alias = "s_vfs_rename_mutex")]
    pub(crate) rename_mutex: Mutex<()>,
    pub(crate) super_blocks: RwLock<Vec<Option<Arc<SuperBlock>>>>,
}

/// Decides which negative dentries stay cached. The life of a dentry calls it; the module
/// `negative` implements it, above reclaim.
pub(crate) trait NegativeHook: Send + Sync {
    /// Runs after a new negative dentry was added to its list, without a lock on a name or list.
    fn negative_added(&self, core: &DcacheCore, sb: &SuperBlock, dentry: &Arc<Dentry>);

    /// Returns whether a dentry whose name was removed may stay as a negative one.
    fn can_keep_removed(&self, core: &DcacheCore, sb: &SuperBlock, dentry: &Arc<Dentry>) -> bool;
}

impl DcacheCore {
    /// The superblock of this number, while it is mounted.
    pub(crate) fn superblock(&self, id: u16) -> Option<Arc<SuperBlock>> {
        self.super_blocks.read().get(usize::from(id))?.clone()
    }

    pub(crate) fn remove_superblock(&self, id: u16) {
        self.super_blocks.write()[usize::from(id)] = None;
    }

    /// The qstr of a name below a directory.
    #[inline]
    pub(crate) fn qstr<'a>(&self, dir: &Dentry, name: Name<'a>) -> QStr<'a> {
        QStr::new(self.secret, dir.addr(), name)
    }

    /// The dentry of this name, with one more user. Sure of its answer, also beside renames (D1,
    /// D4).
    pub(crate) fn d_lookup(&self, qstr: &QStr<'_>) -> Option<Arc<Dentry>> {
        /// After so many renames meanwhile, they are kept out.
        const OPTIMISTIC: u32 = 4;
        for _ in 0..OPTIMISTIC {
            let begun = self.rename_lock.begin();
            let found = self.d_lookup_once(qstr);
            if found.is_some() || !self.rename_lock.retry(begun) {
                return found;
            }
        }
        let _no_renames = self.rename_lock.exclude_writers();
        self.d_lookup_once(qstr)
    }

    #[doc(alias = "__d_lookup")]
    fn d_lookup_once(&self, qstr: &QStr<'_>) -> Option<Arc<Dentry>> {
        let reader = Reader::enter();
        self.chains.chain(qstr.hash, &reader).find_map(|found| {
            if found.hash() != qstr.hash >> 32 << 32 {
                return None;
            }
            let locked = found.lock();
            // A dying one is not there any more: whoever needs the name makes a new one.
            (found.is_same_name_locked(&locked, qstr) && found.count.get()).then(|| found.to_arc())
        })
    }
}

impl fmt::Debug for DcacheCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DcacheCore").field("chains", &self.chains).finish_non_exhaustive()
    }
}
