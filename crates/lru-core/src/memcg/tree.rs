//! The tree: who exists, and how a group comes and goes.
//!
//! # Who holds whom
//!
//! ```text
//!     MemcgTree --> Tree --> table: one strong handle on each online group
//!                    ^          |
//!                    +-- every group --> its parent
//! ```
//!
//! The handle of the tree on its groups is a cycle on purpose: an online group exists whether or not anybody holds it. Going
//! offline breaks it for one group, the drop of [`MemcgTree`] for all. A dying group lives for as long as somebody (an
//! object, a list, a dying child) holds it, and is nothing but memory and a number.
//!
//! # Lock order
//!
//! The locks of this module are leaves: the table's, the hooks' and each stock slot's are never held together, nor while code
//! of somebody else (a hook, a list) runs, nor while a handle is dropped, since the last handle of a group locks the table.

use alloc::boxed::Box;
use core::fmt;

use crate::fallible::{abort, try_str, TryArc};
use crate::memcg::hook::Hooks;
use crate::memcg::stock::Stock;
use crate::memcg::table::Table;
use crate::memcg::{HookId, Memcg, MemcgCore, MemcgError, MemcgId, OfflineHook};
use crate::sync::{Arc, RwLock};
use crate::unit::Bytes;
use crate::unwind::AtEnd;

/// The owner of a tree of groups. Handles and ids come from here; when it is dropped, no group can be made any more, and each
/// group ends with its last handle.
///
/// ```
/// use lowwater_lru_core::{Bytes, Charged, MemcgTree};
///
/// let tree = MemcgTree::default();
/// let tenant = tree.root().create("tenant")?;
/// tenant.set_max(Bytes::kib(64));
///
/// assert!(matches!(tenant.try_charge(Bytes::kib(60)), Ok(Charged::Within)));
/// let refused = tenant.try_charge(Bytes::kib(8)).unwrap_err();
/// assert_eq!(refused.memcg, tenant);
/// assert_eq!(tree.root().usage(), Bytes::kib(60));
///
/// tenant.uncharge(Bytes::kib(60));
/// tenant.offline()?;
/// # Ok::<(), lowwater_lru_core::MemcgError>(())
/// ```
pub struct MemcgTree {
    root: Memcg,
}

/// What all groups of a tree share.
pub(crate) struct Tree {
    table: RwLock<Table>,
    stock: Stock,
    hooks: Hooks,
}

impl MemcgTree {
    /// A tree with nothing but a root, and room for `stock_slots` threads to keep charged bytes in stock (see
    /// [`Memcg::try_charge`]): as many as processors serves best; with 0, [`usage`](Memcg::usage) is exact at all times.
    ///
    /// A slot costs 128 bytes, and may hold back up to 32 KiB of one group.
    pub fn new(stock_slots: usize) -> Self {
        Self::try_new(stock_slots).unwrap_or_else(|_| abort::<Tree>())
    }

    /// As [`new`](Self::new), for who can do without.
    ///
    /// # Errors
    ///
    /// [`NoMemory`](MemcgError::NoMemory).
    pub fn try_new(stock_slots: usize) -> Result<Self, MemcgError> {
        Self::try_with_ids(stock_slots, u32::MAX)
    }

    /// A tree whose ids are all below `end`.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(crate) fn with_ids(stock_slots: usize, end: u32) -> Self {
        Self::try_with_ids(stock_slots, end).unwrap_or_else(|_| abort::<Tree>())
    }

    fn try_with_ids(stock_slots: usize, end: u32) -> Result<Self, MemcgError> {
        let stock = Stock::try_new(stock_slots).ok_or(MemcgError::NoMemory)?;
        let tree = Tree { table: RwLock::new(Table::new(end)), stock, hooks: Hooks::new() };
        let tree = TryArc::try_new(tree).ok_or(MemcgError::NoMemory)?;
        // An empty tree takes a root, if there is memory.
        let root = Tree::insert(&tree, None, "")?;
        Ok(Self { root })
    }

    /// The root group: it has no name, no parent, and cannot go offline.
    pub fn root(&self) -> &Memcg {
        &self.root
    }

    /// The group of this id. The id of a dying group answers with its nearest online ancestor, until the group's last handle
    /// is gone; then it is nobody's.
    ///
    /// O(1) for an online group, O(depth) for a dying one.
    #[doc(alias = "mem_cgroup_from_private_id")]
    pub fn get(&self, id: MemcgId) -> Option<Memcg> {
        self.tree().table.read().get(id.get()).cloned()
    }

    /// Number of online groups, the root among them.
    #[expect(clippy::len_without_is_empty, reason = "a tree is never empty: it has a root")]
    pub fn len(&self) -> usize {
        self.tree().table.read().online()
    }

    /// Gives all bytes in stock back to the groups they were taken from, so that each [`usage`](Memcg::usage) is what is in
    /// use, if nobody charges meanwhile. O(slots).
    pub fn drain_stock(&self) {
        self.tree().stock.drain(|_| true);
    }

    /// Adds a hook that is called whenever a group goes offline, after those that were added before it.
    pub fn add_hook(&self, hook: Arc<dyn OfflineHook>) -> HookId {
        self.try_add_hook(hook).unwrap_or_else(|_| abort::<Tree>())
    }

    /// As [`add_hook`](Self::add_hook), for who can do without.
    ///
    /// # Errors
    ///
    /// [`NoMemory`](MemcgError::NoMemory); the hook is dropped.
    pub fn try_add_hook(&self, hook: Arc<dyn OfflineHook>) -> Result<HookId, MemcgError> {
        self.tree().hooks.try_add(hook).ok_or(MemcgError::NoMemory)
    }

    /// As [`try_add_hook`](Self::try_add_hook), of a hook that was made where there may be no
    /// memory, which an `Arc` cannot say ([`fallible::try_box`](crate::fallible::try_box)).
    ///
    /// # Errors
    ///
    /// [`NoMemory`](MemcgError::NoMemory); the hook is dropped.
    pub fn try_add_boxed_hook(&self, hook: Box<dyn OfflineHook>) -> Result<HookId, MemcgError> {
        self.tree().hooks.try_add_boxed(hook).ok_or(MemcgError::NoMemory)
    }

    /// Removes a hook; one of another tree is none of this. A group that is going offline on
    /// another thread right now may still call it. Without memory for a shorter list the hook is
    /// called no more, and dropped when the list changes next.
    pub fn remove_hook(&self, id: HookId) {
        self.tree().hooks.remove(id);
    }

    /// Bytes this tree has allocated: groups, names, table, ids, stock and hook list; without what the lists allocate.
    pub fn footprint(&self) -> Bytes {
        let tree = self.tree();
        let (groups, table) = tree.table.read().allocated();
        let bytes = TryArc::<Tree>::BYTES
            + groups * TryArc::<MemcgCore>::BYTES
            + table
            + tree.stock.allocated()
            + tree.hooks.allocated();
        Bytes::new(bytes as u64)
    }

    fn tree(&self) -> &TryArc<Tree> {
        &self.root.core().tree
    }
}

impl Default for MemcgTree {
    /// A tree with a stock slot for each processor; for one processor where nobody can be asked how many there are.
    fn default() -> Self {
        Self::new(crate::topology::cpu::count())
    }
}

impl Drop for MemcgTree {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        let tree = self.tree().clone();
        tree.stock.close();
        // Also when a hook panics in its own `Drop`: otherwise tree and groups keep each other for ever.
        let _close = AtEnd(|| {
            let groups = tree.table.write().close();
            drop(groups);
        });
        tree.hooks.clear();
    }
}

impl fmt::Debug for MemcgTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcgTree").field("len", &self.len()).finish_non_exhaustive()
    }
}

// === impl Tree ===

impl Tree {
    pub(super) fn table(&self) -> &RwLock<Table> {
        &self.table
    }

    pub(super) fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    pub(super) fn stock(&self) -> &Stock {
        &self.stock
    }

    /// Makes a child of `parent`.
    pub(super) fn create(parent: &Memcg, name: &str) -> Result<Memcg, MemcgError> {
        if name.is_empty() || name.len() > Memcg::NAME_MAX || name.contains('/') {
            return Err(MemcgError::BadName);
        }
        if parent.depth() >= Memcg::DEPTH_MAX {
            return Err(MemcgError::TooDeep);
        }
        Tree::insert(&parent.core().tree, Some(parent), name)
    }

    fn insert(this: &TryArc<Self>, parent: Option<&Memcg>, name: &str) -> Result<Memcg, MemcgError> {
        let id = this.table.write().reserve(parent, name)?;
        // The group is made without the lock.
        let Some(own_name) = try_str(name) else {
            this.release(MemcgId::new(id), name);
            return Err(MemcgError::NoMemory);
        };
        // From here on its drop gives the id back.
        let memcg = Memcg::try_new(MemcgCore::new(this.clone(), parent, MemcgId::new(id), own_name))?;
        let linked = this.table.write().link(&memcg);
        linked.map(|()| memcg)
    }

    /// Takes a group offline.
    pub(super) fn offline(memcg: &Memcg) -> Result<(), MemcgError> {
        let parent = memcg.parent().ok_or(MemcgError::Root)?;
        let tree = &memcg.core().tree;
        let kept = tree.table.write().begin_offline(memcg)?;
        // From here on `parent` counts us as a child, so it stays online; also if a hook panics, until that is undone.
        let _end = EndOffline { tree, parent: parent.id() };
        memcg.forget_protection();
        tree.stock.drain(|other| other == memcg);
        // Also if a listener of the lists panics: the hooks hand on state that is the parent's from
        // now on.
        let hooks = AtEnd(|| tree.hooks.call(memcg, parent));
        crate::list_lru::reparent_group(memcg);
        drop(hooks);
        drop(kept);
        Ok(())
    }

    /// The last handle of a group is gone.
    pub(super) fn release(&self, id: MemcgId, name: &str) {
        self.table.write().release(id.get(), name);
    }
}

/// Tells the parent that a child's way offline is finished.
struct EndOffline<'a> {
    tree: &'a Tree,
    parent: MemcgId,
}

impl Drop for EndOffline<'_> {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        self.tree.table.write().end_offline(self.parent.get());
    }
}

#[cfg(test)]
impl MemcgTree {
    /// Checks the tree against itself, when nothing is in progress.
    pub(super) fn assert_valid(&self) {
        self.tree().table.read().assert_valid();
        for memcg in self.root.descendants() {
            memcg.assert_claims_valid();
            let below: u64 = memcg.children().iter().map(|child| child.usage().get()).sum();
            assert!(below <= memcg.usage().get(), "{memcg:?} uses less than its children");
        }
    }

    /// Bytes in stock of this group and those below it.
    #[cfg(not(lowwater_loom))]
    pub(super) fn in_stock(&self, memcg: &Memcg) -> u64 {
        self.tree().stock.held(memcg)
    }
}
