//! The owner of a tree of groups, which is the way to the tree's ids, hooks and stock.
//!
//! Embedders and `lowwater::Runtime` create one tree for all tenants. Groups and the tree's table
//! refer to each other. A change must ensure that the owner's drop breaks this cycle, even if a
//! hook panics.

use alloc::boxed::Box;
use core::fmt;

use super::error::MemcgError;
use super::group::{Memcg, MemcgCore, OfflineHook, Tree};
use super::hook::HookId;
use super::id::MemcgId;
use super::stock::Stock;
use crate::fallible::{abort, TryArc};
use crate::sync::Arc;
use crate::unwind::AtEnd;
use lowwater_base::ByteSize;

/// The owner of a tree of groups. All handles and ids originate here. When it is dropped, no group
/// can be created any more, and each group ends with its last handle.
///
/// ```
/// use lowwater_lru_core::{ByteSize, Charged, MemcgTree};
///
/// let tree = MemcgTree::default();
/// let tenant = tree.root().create("tenant")?;
/// tenant.set_max(ByteSize::kib(64));
///
/// assert!(matches!(tenant.try_charge(ByteSize::kib(60)), Ok(Charged::Within)));
/// let refused = tenant.try_charge(ByteSize::kib(8)).unwrap_err();
/// assert_eq!(refused.memcg, tenant);
/// assert_eq!(tree.root().usage(), ByteSize::kib(60));
///
/// tenant.uncharge(ByteSize::kib(60));
/// tenant.offline()?;
/// # Ok::<(), lowwater_lru_core::MemcgError>(())
/// ```
pub struct MemcgTree {
    root: Memcg,
}

impl MemcgTree {
    /// Creates a tree that consists of a root, with `stock_slots` slots in which threads keep
    /// charged bytes in stock (see [`Memcg::try_charge`]). The number of processors is the best
    /// value; with 0, [`usage`](Memcg::usage) is exact at all times. Aborts if there is no memory.
    ///
    /// A slot costs 128 bytes, and may hold up to 32 KiB that count as used by one group.
    pub fn new(stock_slots: usize) -> Self {
        Self::try_new(stock_slots).unwrap_or_else(|_| abort::<Tree>())
    }

    /// As [`new`](Self::new), but returns an error instead of aborting.
    ///
    /// # Errors
    ///
    /// [`NoMemory`](MemcgError::NoMemory).
    pub fn try_new(stock_slots: usize) -> Result<Self, MemcgError> {
        Self::try_with_ids(stock_slots, u32::MAX)
    }

    /// Creates a tree whose ids are all below `end`.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(crate) fn with_ids(stock_slots: usize, end: u32) -> Self {
        Self::try_with_ids(stock_slots, end).unwrap_or_else(|_| abort::<Tree>())
    }

    fn try_with_ids(stock_slots: usize, end: u32) -> Result<Self, MemcgError> {
        let stock = Stock::try_new(stock_slots).ok_or(MemcgError::NoMemory)?;
        let tree = TryArc::try_new(Tree::new(stock, end)).ok_or(MemcgError::NoMemory)?;
        // In an empty tree, creating the root can only fail for lack of memory.
        let root = Tree::insert(&tree, None, "")?;
        Ok(Self { root })
    }

    /// Returns the root group: it has no name, no parent, and cannot go offline.
    pub fn root(&self) -> &Memcg {
        &self.root
    }

    /// Returns the group of this id. For the id of a dying group it returns the group's nearest
    /// online ancestor, until the group's last handle is gone; then the id is free.
    ///
    /// O(1) for an online group, O(depth) for a dying one.
    #[doc(alias = "mem_cgroup_from_private_id")]
    pub fn get(&self, id: MemcgId) -> Option<Memcg> {
        self.tree().table().read().get(id.get()).cloned()
    }

    /// Returns the number of online groups, including the root.
    #[expect(clippy::len_without_is_empty, reason = "a tree is never empty: it has a root")]
    pub fn len(&self) -> usize {
        self.tree().table().read().online()
    }

    /// Returns the number of slots in which threads keep charged bytes in stock: the number that
    /// [`new`](Self::new) was given. O(1).
    pub fn stock_slots(&self) -> usize {
        self.tree().stock().slots()
    }

    /// Uncharges all bytes in stock, so that each [`usage`](Memcg::usage) is the number of bytes in
    /// use, unless another thread charges meanwhile. O(slots).
    pub fn drain_stock(&self) {
        self.tree().drain_stock(|_| true);
    }

    /// Adds a hook that is called whenever a group goes offline, or a limit is lowered below the
    /// usage, after the hooks that were added before it. Aborts if there is no memory.
    pub fn add_hook(&self, hook: Arc<dyn OfflineHook>) -> HookId {
        self.try_add_hook(hook).unwrap_or_else(|_| abort::<Tree>())
    }

    /// As [`add_hook`](Self::add_hook), but returns an error instead of aborting.
    ///
    /// # Errors
    ///
    /// [`NoMemory`](MemcgError::NoMemory); the hook is dropped.
    pub fn try_add_hook(&self, hook: Arc<dyn OfflineHook>) -> Result<HookId, MemcgError> {
        self.root.try_add_hook(hook)
    }

    /// As [`try_add_hook`](Self::try_add_hook), for a hook in a `Box`, which unlike an `Arc` can be
    /// allocated fallibly ([`fallible::try_box`](crate::fallible::try_box)).
    ///
    /// # Errors
    ///
    /// [`NoMemory`](MemcgError::NoMemory); the hook is dropped.
    pub fn try_add_boxed_hook(&self, hook: Box<dyn OfflineHook>) -> Result<HookId, MemcgError> {
        self.tree().hooks().try_add_boxed(hook).ok_or(MemcgError::NoMemory)
    }

    /// Removes a hook; an id of another tree removes nothing. A group that is going offline on
    /// another thread at the moment may still call the hook. If there is no memory for a shorter
    /// list, the hook is no longer called, and is dropped when the list next changes.
    pub fn remove_hook(&self, id: HookId) {
        self.tree().hooks().remove(id);
    }

    /// Returns the bytes that this tree has allocated: groups, names, table, ids, stock and hook
    /// list; without the allocations of the attached lists.
    pub fn footprint(&self) -> ByteSize {
        let tree = self.tree();
        let (groups, table) = tree.table().read().allocated();
        let bytes = TryArc::<Tree>::BYTES
            + groups * TryArc::<MemcgCore>::BYTES
            + table
            + tree.stock().allocated()
            + tree.hooks().allocated();
        ByteSize::new(bytes as u64)
    }

    fn tree(&self) -> &TryArc<Tree> {
        self.root.tree()
    }
}

impl Default for MemcgTree {
    /// Creates a tree with a stock slot for each processor that this thread may use, or one slot if
    /// their number is unknown.
    fn default() -> Self {
        Self::new(lowwater_base::cpu::count())
    }
}

impl Drop for MemcgTree {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        let tree = self.tree().clone();
        tree.close_stock();
        // Runs also if a hook panics in its own `Drop`: otherwise tree and groups would keep each
        // other alive for ever.
        let _close = AtEnd(|| {
            // Without the lock, which the drop of a group's last handle takes.
            let groups = tree.table().write().close();
            drop(groups);
        });
        tree.hooks().clear();
    }
}

impl fmt::Debug for MemcgTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcgTree").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Memcg {
    /// Adds a hook to this group's tree, as [`MemcgTree::try_add_hook`], for callers that have
    /// groups and not the tree.
    ///
    /// # Errors
    ///
    /// [`NoMemory`](MemcgError::NoMemory); the hook is dropped.
    pub fn try_add_hook(&self, hook: Arc<dyn OfflineHook>) -> Result<HookId, MemcgError> {
        self.tree().hooks().try_add(hook).ok_or(MemcgError::NoMemory)
    }

    /// Removes a hook of this group's tree, as [`MemcgTree::remove_hook`], for callers that have
    /// groups and not the tree.
    pub fn remove_hook(&self, id: HookId) {
        self.tree().hooks().remove(id);
    }
}

#[cfg(test)]
impl MemcgTree {
    /// Checks the consistency of the tree, when no change is in progress.
    pub(super) fn assert_valid(&self) {
        self.tree().table().read().assert_valid();
        for memcg in self.root.descendants() {
            memcg.assert_claims_valid();
            let below: u64 = memcg.children().iter().map(|child| child.usage().get()).sum();
            assert!(below <= memcg.usage().get(), "{memcg:?} uses less than its children");
        }
    }

    /// Returns the bytes in stock for this group and those below it.
    #[cfg(not(lowwater_loom))]
    pub(super) fn in_stock(&self, memcg: &Memcg) -> u64 {
        self.tree().stock().bytes(|group| group.is_descendant_of(memcg))
    }
}
