//! Memory control groups: who used the memory, and how much of it they may use.
//!
//! A [`MemcgTree`] owns the groups, a [`Memcg`] is a handle on one of them. Names, limits and the meaning of each limit are
//! those of cgroup v2's `memory.*` files; amounts are [`Bytes`](crate::Bytes), not pages.
//!
//! # The life of a group
//!
//! ```text
//!     create --> Online --offline()--> Dying --last handle dropped--> gone, its id is free
//! ```
//!
//! | state | found by name, walk, children | its id means | may be charged | may get lists |
//! |---|---|---|---|---|
//! | Online | yes | itself | yes | yes |
//! | Dying | no | its nearest online ancestor | yes (its ancestors carry it) | no, its parent gets them |
//! | gone | no | nobody, or a new group | | |
//!
//! A dying group lives for as long as an object, a list or a child names it. Its bytes stay counted where they were charged,
//! and its counters stay part of all sums above.
//!
//! # Parts
//!
//! `id` numbers, `table` links and names, `tree` coming and going, `walk` the subtree, `charge` and `stock` counting, `limit`
//! limits and protection, `hook` those who must know of a death, `held` a handle that readers look at without a lock.

mod charge;
mod held;
mod hook;
mod id;
mod limit;
mod stock;
mod table;
mod tree;
mod walk;

#[cfg(test)]
mod tests;

pub use self::charge::{Charged, OverLimit};
pub(crate) use self::held::HeldMemcg;
pub use self::hook::{HookId, OfflineHook};
pub use self::id::MemcgId;
pub use self::limit::Protection;
pub use self::tree::MemcgTree;
pub use self::walk::Descendants;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};

use self::limit::Limits;
use self::tree::Tree;
use crate::fallible::TryArc;
use crate::list_lru::Pairs;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A handle on a group: one pointer, cheap to clone, equal to another handle if and only if both are on the same group.
///
/// A handle keeps the group's memory and its id, not the group online. Handles outlive the [`MemcgTree`]; then they only
/// count.
///
/// ```
/// use lowwater_lru_core::{Bytes, MemcgState, MemcgTree};
///
/// let tree = MemcgTree::default();
/// let web = tree.root().create("web")?;
/// let cache = web.create("cache")?;
/// cache.set_low(Bytes::mib(16));
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

/// What is behind a handle.
///
/// # Invariants
///
/// 1. A group's parent, name and id never change.
/// 2. While a group is online, so are all its ancestors. (`create` and `begin_offline` decide under the table's lock, and a
///    parent waits with going offline for its children.)
pub(crate) struct MemcgCore {
    usage: AtomicU64,
    limits: Limits,
    tree: TryArc<Tree>,
    parent: Option<Memcg>,
    name: Box<str>,
    id: MemcgId,
    /// Where tables look for it first: computed once, as every add asks.
    spread: u16,
    depth: u8,
    dying: AtomicBool,
    pairs: Pairs,
}

/// Where a group stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemcgState {
    /// It can be found, and can have lists and children.
    Online,
    /// [`Memcg::offline`] has been called. What it had belongs to its parent, or will within that call.
    #[doc(alias = "CSS_DYING")]
    Dying,
}

/// A group could not be made or taken offline; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemcgError {
    /// A child of a dying group was asked for.
    #[error("the parent is going or has gone offline: make the group below its nearest online ancestor")]
    Dying,
    /// An online sibling has this name.
    #[error("the parent already has a child of this name: get it with `child`, or choose another name")]
    NameTaken,
    /// Not a name.
    #[error("not a name for a group: 1 to {} bytes without `/` are", Memcg::NAME_MAX)]
    BadName,
    /// Every id is in use.
    #[error("all group ids are in use: take groups offline, and let go of what is still charged to dying ones")]
    OutOfIds,
    /// The group would be more than [`DEPTH_MAX`](Memcg::DEPTH_MAX) levels below the root.
    #[error("too deep: a group may be {} levels below the root", Memcg::DEPTH_MAX)]
    TooDeep,
    /// The root was to go offline.
    #[error("the root group cannot go offline: drop the tree instead")]
    Root,
    /// Children are online, or on their way offline on another thread.
    #[error("the group still has children: take them offline first, and wait for those calls to return")]
    HasChildren,
    /// The group is dying already.
    #[error("the group has been taken offline already")]
    AlreadyDying,
    /// There is no memory for the group, or for its place in the tree.
    #[error("no memory for the group: have something reclaimed, and try again")]
    NoMemory,
    /// The group is not of the tree that was asked. Said by those who own a tree and take groups, as lowwater's `Runtime` does.
    #[error("the group is one of another tree: ask the owner of that")]
    Foreign,
    /// The [`MemcgTree`] has been dropped.
    #[error("the tree of this group is gone: nothing can be made or taken offline in it any more")]
    TreeGone,
}

impl Memcg {
    /// Levels below the root that a group may be: bounds every way up the tree.
    pub const DEPTH_MAX: usize = 128;
    /// Bytes that a group's name may have.
    pub const NAME_MAX: usize = 255;

    /// Makes a child. It lives until it is [taken offline](Self::offline), whether or not the handle is kept.
    ///
    /// O(1). Allocates the group outside of the tree's lock; the tree's tables may grow under it.
    ///
    /// # Errors
    ///
    /// [`BadName`](MemcgError::BadName) unless `name` is 1 to [`NAME_MAX`](Self::NAME_MAX) bytes without `/`,
    /// [`NameTaken`](MemcgError::NameTaken), [`Dying`](MemcgError::Dying) if this group is,
    /// [`TooDeep`](MemcgError::TooDeep), [`OutOfIds`](MemcgError::OutOfIds), [`NoMemory`](MemcgError::NoMemory),
    /// [`TreeGone`](MemcgError::TreeGone).
    #[doc(alias = "mem_cgroup_css_alloc")]
    pub fn create(&self, name: &str) -> Result<Memcg, MemcgError> {
        Tree::create(self, name)
    }

    /// The online child of this name. O(1).
    pub fn child(&self, name: &str) -> Option<Memcg> {
        self.tree().table().read().child(self, name).cloned()
    }

    /// The number of this group.
    pub fn id(&self) -> MemcgId {
        self.0.id
    }

    /// The name below the parent; empty for the root.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The names from the root down: `/` for the root, `/a/b` for others.
    pub fn path(&self) -> String {
        let mut names: Vec<&str> = self.ancestry().map(Memcg::name).collect();
        if names.len() == 1 {
            names.push("");
        }
        names.reverse();
        names.join("/")
    }

    /// The group above; none for the root. It may be dying if this group is.
    pub fn parent(&self) -> Option<&Memcg> {
        self.0.parent.as_ref()
    }

    /// Levels below the root; 0 for the root.
    pub fn depth(&self) -> usize {
        self.0.depth.into()
    }

    /// Online or dying.
    pub fn state(&self) -> MemcgState {
        if self.is_online() {
            MemcgState::Online
        } else {
            MemcgState::Dying
        }
    }

    /// Is the group online? It may go offline at any time after; a list that must not be made for a dying group asks again
    /// under its own lock.
    #[inline]
    pub fn is_online(&self) -> bool {
        // Acquire: meets the Release in `set_dying`: who sees a group dying sees all that was before its offline.
        !self.0.dying.load(Ordering::Acquire)
    }

    /// This group if it is online, or else the nearest ancestor that is. O(depth) for a dying group.
    #[doc(alias = "parent_mem_cgroup")]
    pub fn nearest_online(&self) -> Memcg {
        // The root is always online.
        self.ancestry().find(|memcg| memcg.is_online()).unwrap_or(self).clone()
    }

    /// Is this group `other`, or below it? O(difference of depths).
    #[doc(alias = "mem_cgroup_is_descendant")]
    pub fn is_descendant_of(&self, other: &Memcg) -> bool {
        let levels = self.depth().checked_sub(other.depth());
        levels.is_some_and(|levels| self.ancestry().nth(levels) == Some(other))
    }

    /// Are both groups of one tree? O(1). Ids and lists are a tree's own: in another they mean somebody else.
    #[inline]
    pub fn is_in_tree_of(&self, other: &Memcg) -> bool {
        TryArc::ptr_eq(&self.0.tree, &other.0.tree)
    }

    /// The online children, oldest first.
    pub fn children(&self) -> Vec<Memcg> {
        let table = self.tree().table();
        let id = self.id().get();
        let mut children = Vec::new();
        // Ends as soon as no more children were made meanwhile than there was room for. The memory is not allocated under the
        // lock.
        loop {
            let len = table.read().children_len(id);
            children.reserve(len);
            let table = table.read();
            if table.children_len(id) <= children.capacity() {
                children.extend(table.children(id).cloned());
                return children;
            }
        }
    }

    /// This group and all online groups below it, parents first. See [`Descendants`] for what concurrent changes do.
    pub fn descendants(&self) -> Descendants {
        Descendants::new(self)
    }

    /// Takes the group offline: it cannot be found any more, its name is free at once, and its lists and all that the
    /// [hooks](OfflineHook) keep for it join those of its parent. Its memory and its id stay until its last handle is gone.
    ///
    /// In this order: the state changes; its stock is drained; its lists are reparented; hooks are called; the tree lets go
    /// of it. O(lists of this group) and the hooks' own cost.
    ///
    /// Who keeps groups by name, as lowwater's `Runtime` does, has a way of its own to end them (`Runtime::end_group`), by which it lets go
    /// of its handle, too; a group that is taken offline here is kept in memory by that one until its name is asked for again.
    ///
    /// # Errors
    ///
    /// [`Root`](MemcgError::Root), [`HasChildren`](MemcgError::HasChildren) also while a child's own `offline` has not
    /// returned, [`AlreadyDying`](MemcgError::AlreadyDying) also while another thread's call has not returned,
    /// [`TreeGone`](MemcgError::TreeGone).
    #[doc(alias = "mem_cgroup_css_offline")]
    pub fn offline(&self) -> Result<(), MemcgError> {
        Tree::offline(self)
    }

    /// Removes a hook of this group's tree, as [`MemcgTree::remove_hook`], for who keeps groups and
    /// not the tree.
    pub fn remove_hook(&self, id: HookId) {
        self.tree().hooks().remove(id);
    }

    /// The group's lists.
    pub(crate) fn pairs(&self) -> &Pairs {
        &self.0.pairs
    }

    /// What makes this group differ from all others while a handle exists. The group is not looked at.
    pub(crate) fn addr(&self) -> usize {
        TryArc::addr(&self.0)
    }

    /// Without memory the core is dropped.
    fn try_new(core: MemcgCore) -> Result<Self, MemcgError> {
        TryArc::try_new(core).map(Self).ok_or(MemcgError::NoMemory)
    }

    /// [`MemcgId::spread`] of its id.
    #[inline]
    pub(crate) fn spread(&self) -> u16 {
        self.0.spread
    }

    fn core(&self) -> &MemcgCore {
        &self.0
    }

    fn tree(&self) -> &Tree {
        &self.0.tree
    }

    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// This group, its parent, and so on to the root: `DEPTH_MAX + 1` groups at most.
    fn ancestry(&self) -> impl Iterator<Item = &Memcg> {
        core::iter::successors(Some(self), |memcg| memcg.parent())
    }

    fn set_dying(&self) {
        // Release: meets the Acquire in `is_online`.
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

impl fmt::Debug for Memcg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memcg").field(&self.path()).finish()
    }
}

// === impl MemcgCore ===

impl MemcgCore {
    fn new(tree: TryArc<Tree>, parent: Option<&Memcg>, id: MemcgId, name: Box<str>) -> Self {
        Self {
            usage: AtomicU64::new(0),
            limits: Limits::new(),
            tree,
            parent: parent.cloned(),
            name,
            id,
            spread: id.spread(),
            depth: parent.map_or(0, |parent| parent.0.depth + 1),
            dying: AtomicBool::new(false),
            pairs: Pairs::new(),
        }
    }
}

impl Drop for MemcgCore {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        self.tree.release(self.id, &self.name);
        // The parent's handle is dropped next, and may be its last: a recursion of at most `DEPTH_MAX` levels.
    }
}

const _: () = assert!(size_of::<Memcg>() == size_of::<usize>(), "a handle is one pointer");
const _: () = assert!(size_of::<Option<Memcg>>() == size_of::<usize>(), "and so is none");
const _: () = assert!(Memcg::DEPTH_MAX < u8::MAX as usize, "a depth fits in its field");
