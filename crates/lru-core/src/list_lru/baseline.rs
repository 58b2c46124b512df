//! The plain twin of [`ListLru`](super::ListLru): every list for every id on every node, made at once, under one lock.
//!
//! It is what Linux did until 5.17, and what its two reports were about: the lists of a group that never used them cost as much
//! as those of one that did, ids grow in bulk and never shrink, and a list outlives its group. It is slow and obvious. The
//! tests run it beside the lazy lists as an oracle, and the benches as "before".

use super::AddError;
use crate::list::{Handle, Hook, Linked};
use crate::sync::Mutex;
use crate::unwind::to_the_end;
use crate::{ByteSize, Memcg, NodeId, OfflineHook};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::{self, NonNull};

/// LRU lists for all groups that could be. To be added as a hook to the tree of its groups, which tells it of their ends: groups of
/// other trees have the same ids. Where there is no memory for a list, the process ends.
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

/// By id, then by node.
struct Lists<T: Linked>(Vec<VecDeque<Item<T>>>);

/// An item that a list owns, as the pointer its handle was turned into.
struct Item<T: Linked>(NonNull<T>);

// SAFETY: an item is a handle in another form, and handles may be sent.
unsafe impl<T: Linked> Send for Item<T> where T::Handle: Send {}

/// What becomes of an item that a walk shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is taken off and given to the caller.
    Remove,
    /// It stays, as the youngest.
    Rotate,
    /// It stays where it is.
    Skip,
}

impl<T: Linked> EagerListLru<T> {
    /// Lists for the groups of a tree on so many nodes.
    pub fn new(nodes: usize) -> Self {
        Self { nodes, state: Mutex::new(Lists(Vec::new())) }
    }

    /// Bytes of the lists themselves once `ids` groups have been, the root among them: exact, and never less afterwards.
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
    /// For a node that these lists were not made for.
    pub fn add(&self, item: T::Handle, memcg: &Memcg, node: NodeId) -> Result<(), AddError<T::Handle>> {
        assert!(node.index() < self.nodes, "node {node} does not exist: there are {} nodes", self.nodes);
        let object = item.into_raw();
        // SAFETY: a handle gives a pointer to an object.
        let links = unsafe { T::links(object) };
        // SAFETY: the caller owned the object by its handle, which we hold as a pointer.
        if !unsafe { links.as_ref() }.claim(Hook::PRIVATE, T::Handle::UNIQUE) {
            // SAFETY: it was turned into this pointer above.
            return Err(AddError::Linked(unsafe { T::Handle::from_raw(object) }));
        }
        let mut lists = self.state.lock();
        let memcg = memcg.nearest_online();
        lists.grow(memcg.id().index(), self.nodes);
        lists.of(&memcg, node, self.nodes).expect("the lists were made just now").push_back(Item(object));
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
        // A dying group's id has an empty list, until somebody has it anew.
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

    /// See [`ListLru::walk_one`](super::ListLru::walk_one); the removed come back at the end.
    ///
    /// `callback` runs under the lock of all lists: it must not use them, nor drop an item that does. If it panics, what it removed is
    /// dropped, and all else stays.
    pub fn walk_one(
        &self,
        memcg: &Memcg,
        node: NodeId,
        nr_to_walk: &mut u64,
        mut callback: impl FnMut(&T) -> Turn,
    ) -> Vec<T::Handle> {
        // Dropped after the lock, also when the callback panics.
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

    /// Bytes of this and of its lists, without what the items' queues take.
    pub fn footprint(&self) -> ByteSize {
        let lists = self.state.lock();
        ByteSize::new((size_of::<Self>() + lists.0.capacity() * size_of::<VecDeque<Item<T>>>()) as u64)
    }
}

/// A list that is walked. When this is dropped, all is on it again.
struct Walk<'l, T: Linked> {
    /// What was not shown yet.
    list: &'l mut VecDeque<Item<T>>,
    /// What is shown.
    at: Option<Item<T>>,
    kept: VecDeque<Item<T>>,
    rotated: VecDeque<Item<T>>,
}

impl<T: Linked> Walk<'_, T> {
    fn next(&mut self) -> Option<&T> {
        self.at = self.list.pop_front();
        // SAFETY: the list owned it, and now this does, for as long as it is borrowed.
        self.at.as_ref().map(|item| unsafe { item.0.as_ref() })
    }
}

impl<T: Linked> Drop for Walk<'_, T> {
    fn drop(&mut self) {
        // One for which there was no answer.
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
                let parents = lists.of(parent, node, self.nodes).expect("the lists were made just now");
                items.append(parents);
                *parents = items;
            }
        }
    }
}

/// How many ids Linux made room for when it had given out so many (5.10, `memcg_alloc_cache_id`): 4, 10, 22 ... 12286, 24574.
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
        // A node beyond the last would be the next group's first.
        self.0.get_mut(memcg.id().index() * nodes + node.index()).filter(|_| node.index() < nodes)
    }
}

impl<T: Linked> Item<T> {
    fn into_handle(self) -> T::Handle {
        // SAFETY: a handle gave the pointer to the object, which we own.
        let links = unsafe { T::links(self.0) };
        // SAFETY: the object is live: we own it.
        unsafe { links.as_ref() }.set_home(ptr::null_mut());
        // SAFETY: the handle was turned into this pointer, and is turned back once: we are consumed.
        unsafe { T::Handle::from_raw(self.0) }
    }
}

impl<T: Linked> Drop for Lists<T> {
    fn drop(&mut self) {
        let mut items = self.0.iter_mut().flat_map(|list| list.drain(..));
        // An item's drop may panic, which shall not keep the others.
        to_the_end(|| items.next().map(Item::into_handle).is_some());
    }
}

impl<T: Linked> fmt::Debug for EagerListLru<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EagerListLru").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
