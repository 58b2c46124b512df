//! A superblock: the lists and the root of a mounted backend.
//!
//! Other threads may keep one while its mount is dropped. So the backend, whose destructor is user
//! code, belongs to the mount.
//!
//! Each mount has its own lists and inodes, so an unmount frees exactly its own dentries; the hash
//! table is the cache's.
//!
//! A change must ensure that the flags by which [`SuperBlock::list`] chooses do not change while a
//! dentry is on a list: its removal would look on another list.

use crate::dentry::Dentry;
use crate::flag;
use crate::inode::Inodes;
use lowwater_base::sync::{Arc, Mutex};
use lowwater_lru_core::{ListLru, Memcg, NodeId};
use std::sync::OnceLock;

/// A superblock: the lists and the root of a mounted backend.
#[doc(alias = "struct super_block")]
pub(crate) struct SuperBlock {
    /// The number of the superblock in its cache.
    pub(crate) id: u16,
    /// Held by every rename of the mount, by a link between two directories, and by an invalidation
    /// beside which renames ran. Linux's excludes only renames between two directories.
    #[doc(alias = "s_vfs_rename_mutex")]
    pub(crate) rename_mutex: Mutex<()>,
    /// Unused dentries: the positive ones, and the negative ones unless `has_negative_lists`.
    #[doc(alias = "s_dentry_lru")]
    pub(crate) dentries: ListLru<Dentry>,
    /// Negatives that were looked up once (the probationary segment of a segmented LRU).
    pub(crate) probation: ListLru<Dentry>,
    /// Negatives that were looked up again (the protected segment).
    pub(crate) protected: ListLru<Dentry>,
    #[doc(alias = "s_inode_lru")]
    pub(crate) inodes: Inodes,
    root: OnceLock<Arc<Dentry>>,
    /// The memcg that new dentries belong to when a call names none.
    pub(crate) group: Memcg,
    /// Whether negatives have lists of their own.
    pub(crate) has_negative_lists: bool,
    /// The last node of the mount's registry, whose reclaim visits no list of a later one.
    pub(crate) last_node: NodeId,
}

impl SuperBlock {
    pub(crate) fn new(
        id: u16,
        group: Memcg,
        has_negative_lists: bool,
        last_node: NodeId,
        dentries: [ListLru<Dentry>; 3],
        inodes: Inodes,
    ) -> Self {
        let [dentries, probation, protected] = dentries;
        Self {
            id,
            rename_mutex: Mutex::new(()),
            dentries,
            probation,
            protected,
            inodes,
            root: OnceLock::new(),
            group,
            has_negative_lists,
            last_node,
        }
    }

    pub(crate) fn root(&self) -> &Arc<Dentry> {
        self.root.get().expect("a superblock is published with its root")
    }

    pub(crate) fn set_root(&self, root: Arc<Dentry>) {
        assert!(self.root.set(root).is_ok(), "a superblock gets its root once");
    }

    /// Returns the list for a dentry with these flags.
    pub(crate) fn list(&self, flags: u32) -> &ListLru<Dentry> {
        match flags & (flag::TYPE | flag::PROTECTED) {
            0 if self.has_negative_lists => &self.probation,
            flag::PROTECTED if self.has_negative_lists => &self.protected,
            _ => &self.dentries,
        }
    }

    /// Counts the dentries and inodes that could be freed: `[dentries, probation, protected,
    /// inodes]`, as the lists are named.
    pub(crate) fn counts(&self, memcg: &Memcg, node: NodeId) -> [u64; 4] {
        [
            self.dentries.count_one(memcg, node),
            self.probation.count_one(memcg, node),
            self.protected.count_one(memcg, node),
            self.inodes.lru.count_one(memcg, node),
        ]
    }
}
