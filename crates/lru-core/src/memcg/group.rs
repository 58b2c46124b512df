//! A group: the handle, the group behind it, and the state shared by all groups of a tree.
//!
//! These types are in one file because they own each other: a handle owns a group, a group owns its
//! parent and its tree, and a tree owns a table and a stock that contain handles. Here are the
//! types and the accessors of their fields; the files of this module that use them have the
//! behaviour.
//!
//! # Ownership
//!
//! ```text
//!     MemcgTree --> Tree --> table: one strong handle on each online group
//!                    ^          |
//!                    +-- every group --> its parent
//! ```
//!
//! The tree's handles on its groups form an intended cycle: an online group exists whether or not
//! any other handle does. Going offline breaks the cycle for one group, the drop of
//! [`MemcgTree`](crate::MemcgTree) for all groups. A dying group exists until its last handle is
//! dropped, such as that of an object or of a dying child; it keeps only its usage and its id.
//!
//! # Lock order
//!
//! The locks of the table, of the hooks and of each stock slot are leaves: no two of them are held
//! together, and none is held while code of a hook or a list runs, or while a handle is dropped,
//! since the drop of a group's last handle locks the table. The lock of a group's chain of lists
//! ([`AttachedLists`]), and the one that is held while the lists are moved, are none of these:
//! [`list_lru`](crate::list_lru) takes others under them.
//!
//! A change must keep this order, and the invariants of `MemcgCore`.

use alloc::boxed::Box;
use core::hash::{Hash, Hasher};

use super::attached::AttachedLists;
use super::error::{MemcgError, DEPTH_MAX, NAME_MAX};
use super::group_handle::GroupHandle;
use super::hook::Hooks;
use super::id::MemcgId;
use super::limits::Limits;
use super::stock::Stock;
use super::table::GroupTable;
use crate::fallible::TryArc;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::RwLock;
use lowwater_base::ByteSize;

/// A handle on a group: one pointer, cheap to clone, equal to another handle if and only if both
/// are on the same group.
///
/// A handle keeps the group's memory and its id alive; it does not keep the group online. Handles
/// may outlive the [`MemcgTree`](crate::MemcgTree); then they still count charges, and do nothing
/// else.
///
/// ```
/// use lowwater_lru_core::{ByteSize, MemcgState, MemcgTree};
///
/// let tree = MemcgTree::default();
/// let web = tree.root().create("web")?;
/// let cache = web.create("cache")?;
/// cache.set_low(ByteSize::mib(16));
/// assert_eq!(cache.path(), "/web/cache");
///
/// cache.offline()?;
/// assert_eq!(cache.state(), MemcgState::Dying);
/// assert_eq!(cache.nearest_online(), web);
/// assert_eq!(tree.get(cache.id()), Some(web.clone()));
///
/// let id = cache.id();
/// drop(cache);
/// assert_eq!(tree.get(id), None);
/// # Ok::<(), lowwater_lru_core::MemcgError>(())
/// ```
#[derive(Clone)]
#[doc(alias = "mem_cgroup")]
pub struct Memcg(TryArc<MemcgCore>);

/// The group that a handle points to.
///
/// # Invariants
///
/// 1. A group's parent, name and id never change.
/// 2. While a group is online, so are all its ancestors. (`create` and `begin_offline` decide under
///    the table's lock, and a parent cannot go offline before its children.)
pub(super) struct MemcgCore {
    /// Bytes; see [`Memcg::usage`].
    usage: AtomicU64,
    limits: Limits,
    tree: TryArc<Tree>,
    /// `None` for the root.
    parent: Option<Memcg>,
    name: Box<str>,
    id: MemcgId,
    /// The hash from which the tables of `list_lru` start their probe: computed once, as every add
    /// needs it.
    spread: u16,
    /// Levels below the root.
    depth: u8,
    /// Set once, under the table's lock.
    dying: AtomicBool,
    attached: AttachedLists,
}

/// The state that all groups of a tree share.
pub(super) struct Tree {
    table: RwLock<GroupTable<Memcg>>,
    stock: Stock<Memcg>,
    hooks: Hooks<dyn OfflineHook>,
}

/// A callback for groups that go offline, for state that is kept per group outside of this crate,
/// such as the shrinkers' map; and for groups whose limit is lowered below their usage, for a
/// reclaimer.
pub trait OfflineHook: Send + Sync {
    /// Hands the state kept for `dying` to `parent`. Called by [`Memcg::offline`], when `dying` is
    /// in the dying state already and its lists have joined those of `parent`.
    ///
    /// `parent` is online, and stays online until the last hook has returned. No lock of the tree
    /// is held: the hook may call the tree, charge, and create groups. It runs on the thread that
    /// called `offline`.
    ///
    /// If a hook panics, the remaining hooks are still called; then the first panic is resumed in
    /// the caller of `offline`.
    fn offline(&self, dying: &Memcg, parent: &Memcg);

    /// Reports that [`Memcg::set_max`] or [`Memcg::set_high`] has lowered a limit of `memcg` below
    /// its usage, so that bytes of it should be reclaimed. By default nothing happens.
    ///
    /// No lock of the tree is held, but the caller of the setter may hold one of its own, so the
    /// hook must not wait: it wakes a reclaimer. A panic reaches the caller of the setter, after
    /// the remaining hooks have been called.
    fn limit_lowered(&self, memcg: &Memcg) {
        let _ = memcg;
    }
}

/// The state of a group. It changes at most once, from online to dying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemcgState {
    /// The group can be found, and can have lists and children.
    Online,
    /// [`Memcg::offline`] has been called. The group's state belongs to its parent, or will before
    /// that call returns.
    #[doc(alias = "CSS_DYING")]
    Dying,
}

impl Memcg {
    /// The maximum number of levels below the root: the bound of every loop over ancestors.
    pub const DEPTH_MAX: usize = DEPTH_MAX;
    /// The maximum length of a group's name in bytes.
    pub const NAME_MAX: usize = NAME_MAX;

    /// Creates a group that is not in the table yet. The drop of its last handle releases its id,
    /// also on an error.
    pub(super) fn try_new(
        tree: &TryArc<Tree>,
        parent: Option<&Memcg>,
        id: MemcgId,
        name: Box<str>,
    ) -> Result<Self, MemcgError> {
        let core = MemcgCore {
            usage: AtomicU64::new(0),
            limits: Limits::new(),
            tree: tree.clone(),
            parent: parent.cloned(),
            name,
            id,
            spread: id.spread(),
            depth: parent.map_or(0, |parent| parent.0.depth + 1),
            dying: AtomicBool::new(false),
            attached: AttachedLists::new(),
        };
        TryArc::try_new(core).map(Self).ok_or(MemcgError::NoMemory)
    }

    /// Returns the id of this group. It never changes, and no other group of the tree has it before
    /// the last handle of this group is dropped.
    pub fn id(&self) -> MemcgId {
        self.0.id
    }

    /// Returns the name below the parent; empty for the root.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the parent group; none for the root. The parent of a dying group may be dying, too.
    #[inline]
    pub fn parent(&self) -> Option<&Memcg> {
        self.0.parent.as_ref()
    }

    /// Returns the number of levels below the root; 0 for the root.
    pub fn depth(&self) -> usize {
        self.0.depth.into()
    }

    /// Returns whether the group is online or dying.
    pub fn state(&self) -> MemcgState {
        if self.is_online() {
            MemcgState::Online
        } else {
            MemcgState::Dying
        }
    }

    /// Returns whether the group is online. It may go offline at any time afterwards, so code that
    /// must not create a list for a dying group checks under the lock of the group's chain that the
    /// chain is not closed.
    #[inline]
    pub fn is_online(&self) -> bool {
        // Acquire: pairs with the Release in `set_dying`: a thread that sees a group dying sees
        // everything that happened before its offline.
        !self.0.dying.load(Ordering::Acquire)
    }

    /// Returns whether both groups belong to the same tree. O(1). The same id means a different
    /// group in another tree.
    #[inline]
    pub fn is_in_tree_of(&self, other: &Memcg) -> bool {
        TryArc::ptr_eq(&self.0.tree, &other.0.tree)
    }

    /// Returns the bytes charged to this group and the groups below it, plus the bytes in stock for
    /// them: at most 32 KiB per stock slot.
    #[doc(alias = "memory.current")]
    #[inline]
    pub fn usage(&self) -> ByteSize {
        // Relaxed: a snapshot of a changing number; limits are enforced by the compare-exchange in
        // `add_usage`.
        ByteSize::new(self.0.usage.load(Ordering::Relaxed))
    }

    /// Returns the lists that are attached to the group.
    pub(crate) fn attached(&self) -> &AttachedLists {
        &self.0.attached
    }

    /// Returns the address of the group, which is unique while a handle exists. Does not read the
    /// group.
    pub(crate) fn addr(&self) -> usize {
        TryArc::addr(&self.0)
    }

    /// Returns [`MemcgId::spread`] of the group's id.
    #[inline]
    pub(crate) fn spread(&self) -> u16 {
        self.0.spread
    }

    /// Returns the counter behind [`usage`](Self::usage).
    pub(super) fn usage_counter(&self) -> &AtomicU64 {
        &self.0.usage
    }

    #[inline]
    pub(super) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Returns the tree of this group, with its reference count.
    pub(super) fn tree(&self) -> &TryArc<Tree> {
        &self.0.tree
    }

    fn set_dying(&self) {
        // Release: pairs with the Acquire in `is_online`.
        self.0.dying.store(true, Ordering::Release);
    }
}

impl PartialEq for Memcg {
    fn eq(&self, other: &Self) -> bool {
        self.addr() == other.addr()
    }
}

impl Eq for Memcg {}

impl Hash for Memcg {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.addr().hash(state);
    }
}

impl GroupHandle for Memcg {
    #[inline]
    fn addr(&self) -> usize {
        Memcg::addr(self)
    }

    #[inline]
    fn id(&self) -> MemcgId {
        Memcg::id(self)
    }

    #[inline]
    fn parent(&self) -> Option<&Self> {
        Memcg::parent(self)
    }

    #[inline]
    fn name(&self) -> &str {
        Memcg::name(self)
    }

    #[inline]
    fn is_online(&self) -> bool {
        Memcg::is_online(self)
    }

    #[inline]
    fn set_dying(&self) {
        Memcg::set_dying(self);
    }
}

impl Drop for MemcgCore {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        self.tree.release(self.id, &self.name);
        // The parent's handle is dropped next, and may be its last one: a recursion of at most
        // `DEPTH_MAX` levels.
    }
}

impl Tree {
    /// Creates a tree without a root. All its ids are below `end`.
    pub(super) fn new(stock: Stock<Memcg>, end: u32) -> Self {
        Self { table: RwLock::new(GroupTable::new(end)), stock, hooks: Hooks::new() }
    }

    pub(super) fn table(&self) -> &RwLock<GroupTable<Memcg>> {
        &self.table
    }

    pub(super) fn stock(&self) -> &Stock<Memcg> {
        &self.stock
    }

    pub(super) fn hooks(&self) -> &Hooks<dyn OfflineHook> {
        &self.hooks
    }

    /// Releases the id of a group that has no handle any more, or that could not be created.
    pub(super) fn release(&self, id: MemcgId, name: &str) {
        self.table.write().release(id.get(), name);
    }
}

const _: () = assert!(size_of::<Memcg>() == size_of::<usize>(), "a handle is one pointer");
const _: () = assert!(size_of::<Option<Memcg>>() == size_of::<usize>(), "an optional handle is one pointer");
const _: () = assert!(Memcg::DEPTH_MAX < u8::MAX as usize, "a depth fits in its field");
