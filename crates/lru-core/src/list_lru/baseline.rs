//! A simple reference implementation of [`ListLru`](super::ListLru): a list for every id on every
//! node, allocated together, under one lock.
//!
//! Linux allocated its lists like this until 5.17, with a lock for each node, and with two known
//! problems. The lists of a group that never used them cost as much as those of a group that did.
//! And the number of ids with lists grows in bulk and never falls, and the lists of an id stay when
//! its group has ended.
//!
//! The tests of `ListLru` run this slow and obvious type beside it as an oracle; the benches and
//! `examples/containers` use it as the "before"; `crates/store/tests` test its misuse.
//
// A change must ensure that this type shares no list code with `ListLru` except the `Hook`, by
// which an item is on one list at a time, and that it stays simple enough to be right by
// inspection: it is the oracle.

use super::AddError;
use crate::list::{Handle, Hook, Linked};
use crate::sync::Mutex;
use crate::unwind::to_the_end;
use crate::{ByteSize, Memcg, NodeId, OfflineHook};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::{self, NonNull};

/// LRU lists for every possible group. It must be added as an offline hook to the tree of its
/// groups, which reports the groups' ends to it; it serves one tree only, since groups of other
/// trees have the same ids. If there is no memory for a list, the process aborts.
///
/// ```
/// use lowwater_lru_core::{linked, list_lru::baseline::EagerListLru, Links, MemcgTree, NodeId};
/// use std::sync::Arc;
///
/// struct Inode(Links);
/// linked!(impl[] for Inode { 0, handle: Arc<Inode> });
///
/// let tree = MemcgTree::default();
/// let lru = Arc::new(EagerListLru::<Inode>::new(2));
/// tree.add_hook(lru.clone());
/// let inode = Arc::new(Inode(Links::new()));
/// lru.add(inode.clone(), tree.root(), NodeId::ZERO)?;
/// assert_eq!(lru.footprint().get() - size_of_val(&*lru) as u64, EagerListLru::<Inode>::bytes_for(2, 1).get());
/// assert!(lru.del(&inode).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EagerListLru<T: Linked> {
    nodes: usize,
    state: Mutex<Lists<T>>,
}

/// The list of an id on a node is at `id * nodes + node`.
struct Lists<T: Linked>(Vec<VecDeque<Item<T>>>);

/// An item that a list owns, as the pointer that `Handle::into_raw` returned.
struct Item<T: Linked>(NonNull<T>);

// SAFETY: an item is a handle in another form, and the handle is `Send`.
unsafe impl<T: Linked> Send for Item<T> where T::Handle: Send {}

/// The callback's verdict on a visited item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The item is removed and returned to the caller.
    Remove,
    /// The item stays, as the youngest.
    Rotate,
    /// The item stays where it is.
    Skip,
}

impl<T: Linked> EagerListLru<T> {
    /// Creates lists for the groups of one tree on `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Self { nodes, state: Mutex::new(Lists(Vec::new())) }
    }

    /// Returns the bytes of the lists themselves once an item was added for a group with the id
    /// `ids - 1` (the root has id 0), if no group with a higher id got an item. Never less
    /// afterwards.
    pub fn bytes_for(nodes: usize, ids: usize) -> ByteSize {
        ByteSize::new((nodes * cache_ids(ids) * size_of::<VecDeque<Item<T>>>()) as u64)
    }

    /// See [`ListLru::add`](super::ListLru::add).
    ///
    /// # Errors
    ///
    /// [`AddError::Linked`].
    ///
    /// # Panics
    ///
    /// If `node` is not below the number of nodes passed to [`new`](Self::new).
    pub fn add(&self, item: T::Handle, memcg: &Memcg, node: NodeId) -> Result<(), AddError<T::Handle>> {
        assert!(node.index() < self.nodes, "node {node} does not exist: there are {} nodes", self.nodes);
        let object = item.into_raw();
        // SAFETY: `into_raw` returned a pointer to a live object, which we own.
        let links = unsafe { T::links(object) };
        // `PRIVATE`: `ListLru::del` then finds the item on no list of its own.
        // SAFETY: the object is live: we own it by the raw handle.
        if !unsafe { links.as_ref() }.claim(Hook::PRIVATE, T::Handle::UNIQUE) {
            // SAFETY: `into_raw` returned this pointer above, and no list took ownership.
            return Err(AddError::Linked(unsafe { T::Handle::from_raw(object) }));
        }
        let mut lists = self.state.lock();
        // Read under the lock: `offline` takes the lock after the group became dying, so it moves
        // an item that was added before.
        let memcg = memcg.nearest_online();
        lists.grow(memcg.id().index(), self.nodes);
        lists.of(&memcg, node, self.nodes).expect("the lists were created above").push_back(Item(object));
        Ok(())
    }

    /// See [`ListLru::del`](super::ListLru::del). O(all items).
    pub fn del(&self, item: &T) -> Option<T::Handle> {
        let mut lists = self.state.lock();
        let is_it = |found: &Item<T>| ptr::eq(found.0.as_ptr(), item);
        let mut found = lists.0.iter_mut().filter_map(|list| list.iter().position(is_it).and_then(|i| list.remove(i)));
        found.next().map(Item::into_handle)
    }

    /// See [`ListLru::count_one`](super::ListLru::count_one).
    pub fn count_one(&self, memcg: &Memcg, node: NodeId) -> u64 {
        let mut lists = self.state.lock();
        // A dying group counts 0, also before the hook has moved its items to the parent. (In
        // `ListLru` they count until they are moved.)
        let own = memcg.is_online().then(|| lists.of(memcg, node, self.nodes)).flatten();
        own.map_or(0, |list| list.len() as u64)
    }

    /// See [`ListLru::count_node`](super::ListLru::count_node).
    pub fn count_node(&self, node: NodeId) -> u64 {
        if node.index() >= self.nodes {
            return 0;
        }
        let lists = self.state.lock();
        lists.0.iter().skip(node.index()).step_by(self.nodes).map(|list| list.len() as u64).sum()
    }

    /// See [`ListLru::walk_one`](super::ListLru::walk_one); the removed items are returned at the
    /// end.
    ///
    /// `callback` runs under the lock of all lists. It must not use these lists, and must not drop
    /// an item whose `Drop` uses them. If it panics, the items removed so far are dropped, and all
    /// others stay.
    pub fn walk_one(
        &self,
        memcg: &Memcg,
        node: NodeId,
        nr_to_walk: &mut u64,
        mut callback: impl FnMut(&T) -> Turn,
    ) -> Vec<T::Handle> {
        // Declared before the lock guard, so dropped after it, also when the callback panics.
        let mut removed = Vec::new();
        let mut lists = self.state.lock();
        let Some(list) = lists.of(memcg, node, self.nodes).filter(|_| memcg.is_online()) else { return removed };
        let mut walk = Walk { list, at: None, kept: VecDeque::new(), rotated: VecDeque::new() };
        while *nr_to_walk > 0 {
            let Some(item) = walk.next() else { break };
            *nr_to_walk -= 1;
            match callback(item) {
                Turn::Remove => removed.extend(walk.at.take().map(Item::into_handle)),
                Turn::Rotate => walk.rotated.extend(walk.at.take()),
                Turn::Skip => walk.kept.extend(walk.at.take()),
            }
        }
        removed
    }

    /// Returns the bytes of this structure and of its lists, without the item queues' own
    /// allocations.
    pub fn footprint(&self) -> ByteSize {
        let lists = self.state.lock();
        ByteSize::new((size_of::<Self>() + lists.0.capacity() * size_of::<VecDeque<Item<T>>>()) as u64)
    }
}

/// A list during a walk. Dropping it puts back all items that were not removed.
struct Walk<'l, T: Linked> {
    /// Items that have not been visited yet.
    list: &'l mut VecDeque<Item<T>>,
    /// The item that is being visited.
    at: Option<Item<T>>,
    /// Skipped items, which return to the front.
    kept: VecDeque<Item<T>>,
    /// Rotated items, which return to the end.
    rotated: VecDeque<Item<T>>,
}

impl<T: Linked> Walk<'_, T> {
    fn next(&mut self) -> Option<&T> {
        self.at = self.list.pop_front();
        // SAFETY: the list owned the item, and `self.at` owns it while the reference is borrowed
        // from `self`.
        self.at.as_ref().map(|item| unsafe { item.0.as_ref() })
    }
}

impl<T: Linked> Drop for Walk<'_, T> {
    fn drop(&mut self) {
        // An item for which the callback returned no verdict because it panicked.
        self.kept.extend(self.at.take());
        self.kept.append(self.list);
        self.kept.append(&mut self.rotated);
        *self.list = core::mem::take(&mut self.kept);
    }
}

impl<T: Linked> OfflineHook for EagerListLru<T>
where
    T::Handle: Send,
{
    fn offline(&self, dying: &Memcg, parent: &Memcg) {
        let mut lists = self.state.lock();
        for node in (0..self.nodes).map(|n| NodeId::new(n as u16)) {
            let mut items = lists.of(dying, node, self.nodes).map(core::mem::take).unwrap_or_default();
            if !items.is_empty() {
                lists.grow(parent.id().index(), self.nodes);
                let parents = lists.of(parent, node, self.nodes).expect("the lists were created above");
                // The items of the dying group become the oldest of the parent's, as in `ListLru`.
                items.append(parents);
                *parents = items;
            }
        }
    }
}

/// Returns the number of ids for which Linux allocated once it had assigned `ids` of them (5.10,
/// `memcg_alloc_cache_id`): 4, 10, 22 ... 12286, 24574.
pub const fn cache_ids(ids: usize) -> usize {
    let mut size = 4;
    while size < ids {
        size = 2 * (size + 1);
    }
    size
}

impl<T: Linked> Lists<T> {
    fn grow(&mut self, id: usize, nodes: usize) {
        let wanted = cache_ids(id + 1) * nodes;
        if self.0.len() < wanted {
            self.0.reserve_exact(wanted - self.0.len());
            self.0.resize_with(wanted, VecDeque::new);
        }
    }

    fn of(&mut self, memcg: &Memcg, node: NodeId, nodes: usize) -> Option<&mut VecDeque<Item<T>>> {
        // The index of a node beyond the last would be that of the next group's first node.
        self.0.get_mut(memcg.id().index() * nodes + node.index()).filter(|_| node.index() < nodes)
    }
}

impl<T: Linked> Item<T> {
    fn into_handle(self) -> T::Handle {
        // SAFETY: the pointer came from a handle that we own, so the object is live.
        let links = unsafe { T::links(self.0) };
        // SAFETY: we own the object, so it is live.
        unsafe { links.as_ref() }.set_home(ptr::null_mut());
        // SAFETY: `into_raw` returned this pointer, and `self` is consumed, so it is turned back
        // once.
        unsafe { T::Handle::from_raw(self.0) }
    }
}

impl<T: Linked> Drop for Lists<T> {
    fn drop(&mut self) {
        let mut items = self.0.iter_mut().flat_map(|list| list.drain(..));
        // If the drop of an item panics, the others are dropped as well.
        to_the_end(|| items.next().map(Item::into_handle).is_some());
    }
}

impl<T: Linked> fmt::Debug for EagerListLru<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EagerListLru").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
