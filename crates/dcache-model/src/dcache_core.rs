//! The state that all handles and mounts of a cache share: the hash table of dentries, the
//! counters, the superblocks.
//!
//! Mounts share one table, as in Linux. `d_lookup` walks a hash chain without a lock, and takes
//! only the lock of a dentry whose hash matches. A rename moves a dentry between chains, where a
//! lookup could miss it. So a lookup that finds nothing repeats if a rename ran meanwhile, and at
//! last excludes renames.
//!
//! Numbers such as D4 are those of docs/INVARIANTS.md.
//!
//! A change must keep this repetition: without it a lookup could miss a name that exists.

use crate::dentry::Dentry;
use crate::ghost::GhostTable;
use crate::qstr::{Name, QStr};
use crate::reclaim_cursor::ReclaimCursors;
use crate::seqcount::SeqLock;
use crate::stats::Counters;
use crate::superblock::SuperBlock;
use lowwater_base::sync::{Arc, RwLock};
use lowwater_lru_core::topology::Topology;
use lowwater_lru_core::NodeId;
use lowwater_store::hash_chains::{HashChains, Reader};
use std::fmt;

/// The treatment of an unlinked dentry that no other thread uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "fs.dentry-negative")]
pub enum OnUnlink {
    /// The dentry stays as a negative if the policy has room for a negative that was not looked up:
    /// the next lookup is answered from the cache.
    #[default]
    KeepNegative,
    /// The dentry is freed: a client that creates and removes names that never come back leaves no
    /// negatives.
    Forget,
}

/// The state that all handles and mounts of a cache share.
pub(crate) struct DcacheCore {
    #[doc(alias = "dentry_hashtable")]
    pub(crate) chains: HashChains<Dentry>,
    /// A part of each name's hash, so that a client cannot choose names of one chain.
    pub(crate) secret: u64,
    /// Written by each rename; read by lookups and walks, which repeat after a rename.
    pub(crate) rename_lock: SeqLock,
    pub(crate) counters: Counters,
    /// The policy of negative dentries.
    pub(crate) negatives: Box<dyn NegativeHook>,
    pub(crate) ghosts: GhostTable,
    pub(crate) topology: Arc<dyn Topology>,
    pub(crate) on_unlink: OnUnlink,
    /// Whether dentries are charged to their memcg.
    pub(crate) charges: bool,
    /// The lists from which the next charges at a limit may reclaim besides their own.
    pub(crate) reclaim_cursors: ReclaimCursors,
    /// The superblocks by id; `None` where no mount has the id.
    pub(crate) super_blocks: RwLock<Vec<Option<Arc<SuperBlock>>>>,
}

/// Decides which negative dentries stay cached. The `lifecycle` module calls it; the `negative`
/// module, which lies above reclaim, implements it.
pub(crate) trait NegativeHook: Send + Sync {
    /// Runs after a new negative dentry was added to its list, without a lock on a name or list.
    fn negative_added(&self, core: &DcacheCore, sb: &SuperBlock, dentry: &Arc<Dentry>);

    /// Returns whether an unlinked dentry may stay as a negative one.
    fn can_keep_removed(&self, core: &DcacheCore, sb: &SuperBlock, dentry: &Arc<Dentry>) -> bool;

    /// Returns the most negatives that a memcg with `positives` unused positives, and `negatives`
    /// negatives now, keeps on a node of a mount.
    fn bound(&self, core: &DcacheCore, positives: u64, negatives: u64) -> Option<u64>;
}

impl DcacheCore {
    /// Returns the superblock with this id, while it is mounted.
    pub(crate) fn superblock(&self, id: u16) -> Option<Arc<SuperBlock>> {
        self.super_blocks.read().get(usize::from(id))?.clone()
    }

    pub(crate) fn remove_superblock(&self, id: u16) {
        self.super_blocks.write()[usize::from(id)] = None;
    }

    /// Returns the node whose lists get the dentries and inodes that this thread allocates. A node
    /// beyond the last one of the mount's registry is replaced by that one, as no reclaim of the
    /// registry would find them on a later node.
    #[inline]
    pub(crate) fn current_node(&self, sb: &SuperBlock) -> NodeId {
        self.topology.current().min(sb.last_node)
    }

    /// Returns the hashed name `name` below the directory `dir`.
    #[inline]
    pub(crate) fn qstr<'a>(&self, dir: &Dentry, name: Name<'a>) -> QStr<'a> {
        QStr::new(self.secret, dir.addr(), name)
    }

    /// Looks up a dentry by its hashed name, and adds a user to it. Both a hit and a miss are
    /// exact, also beside concurrent renames (D1, D4).
    pub(crate) fn d_lookup(&self, qstr: &QStr<'_>) -> Option<Arc<Dentry>> {
        /// After this many attempts during which a rename ran, renames are excluded.
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
            // A dentry keeps the upper half of its hash.
            if found.hash() != qstr.hash >> 32 << 32 {
                return None;
            }
            let locked = found.lock();
            // A dying dentry counts as absent: a lookup that needs the name allocates a new dentry.
            (found.is_same_name_locked(&locked, qstr) && found.count.get()).then(|| found.to_arc())
        })
    }
}

impl fmt::Debug for DcacheCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DcacheCore").field("chains", &self.chains).finish_non_exhaustive()
    }
}
