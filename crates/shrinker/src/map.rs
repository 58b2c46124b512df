//! The map of live pairs: for each group and node, the shrinkers that may hold objects.
//!
//! A flat map, an array of bits for every (group, node) as long as the highest shrinker id, costs
//! memory and walking time for pairs that never occur. In this map only live pairs cost anything:
//! from a pair's first object until a pass finds the pair empty. A change must keep the invariants,
//! the lock order and the orderings below.
//!
//! ```text
//!     nodes[n] -- shards[hash(group)]: RwLock< group -> ShrinkerInfo { words with a bit in them, nr_deferred } >
//!        |
//!        +------- summary: Mutex< group -> SummaryNode { children with objects below }, leaves that have none >
//!
//!     index[hash(shrinker)]: Mutex< shrinker -> its (group, node) pairs >
//! ```
//!
//! - a pass over a subtree descends the summary's nodes, so it visits the groups with objects and
//!   their ancestors;
//! - an `add` to an empty list reads one shard and one word, and nothing more if the bit is still
//!   set;
//! - dropping a registration takes its pairs from the index, so nothing is left for the next owner
//!   of the id (S17);
//! - memory is O(live pairs) (S25); if victims are selected by utility, the table of pairs stays as
//!   large as the most pairs that it ever had.
//!
//! # Invariants
//!
//! 1. If a list is not empty, and neither an `add` to it, nor a clear of its bit, nor its group's
//!    offline is in progress, its bit is set (L10, S11).
//! 2. A `ShrinkerInfo` exists if and only if its group is a leaf of the summary, or its summary
//!    node is marked live; it is created and removed under the shard's write lock.
//! 3. A summary node has children, or is live and keeps an iterator's position, or could not be
//!    freed for want of memory. A leaf has no node. The node of the parent of each leaf and of each
//!    node has it as a child.
//! 4. A bit is set if and only if the index has the pair. Both change under the index shard's lock.
//! 5. A bit is set only for an id that is open, and only in the `ShrinkerInfo` of a group that has
//!    not gone through [`offline`](Map::offline).
//!
//! # Lock order
//!
//! Shard, then index shard, then summary; `pair_counts`, then `nr_deferred`, are taken under the
//! shard (in any order under its write lock), and the index shard under `nr_deferred`; the index of
//! the pairs by utility is a leaf under the shard or the index shard; the root is a leaf, taken
//! under no other lock. A bit may be cleared under the shard's read lock, so what is added under
//! `pair_counts` or `nr_deferred` is added only if the bit is set once that lock is held. No
//! callback runs under any of these locks, and no group's last handle is dropped under them: its
//! drop locks the tree.
//!
//! # Orderings
//!
//! A set bit means "this shrinker may have objects of this group on this node". A bit may be set
//! without objects; that costs one call. A bit must never stay clear while the list is not empty,
//! because the object would be hidden from reclaim for good.
//!
//! `set` skips the store if the bit is already set, to keep the cache line shared. So `set` stores
//! (the list's count) and then loads (the bit), and clearing also stores and then loads: each side
//! needs a full fence between its two steps:
//!
//! ```text
//!     add to a list               a pass that counted "empty"
//!       count += 1                  clear: bit = 0
//!       set: fence(SeqCst)                 fence(SeqCst)
//!            bit set? else set it   count == 0? else set it again
//! ```
//!
//! - If the pass's fence comes first, `set` sees the bit clear, and sets it.
//! - If the fence in `set` comes first, the pass sees the count, and sets the bit.
//!
//! The shards' locks are no substitute: both sides take only the read lock, and may be inside
//! together. Checked by `map/loom.rs`: `an_object_is_never_hidden` and its mutants without a fence
//! on either side, which must fail; the mutant without the second count is in `registry/loom.rs`.
//!
//! Numbers such as S17 are those of docs/INVARIANTS.md.

mod by_group;
mod ends;
mod index;
mod inspect;
mod memcg_iter;
mod node;
mod nr_deferred;
mod offline;
mod shards;
mod shrinker_info;
mod summary;
mod turn;

#[cfg(all(test, lowwater_loom))]
mod loom;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;

pub(crate) use ends::{Ends, EndsMark, Recheck};
pub(crate) use index::Key;
pub(crate) use memcg_iter::MemcgIter;
pub(crate) use summary::{path, IterKind, IterPosition};

use alloc::{boxed::Box, vec::Vec};
use core::ops::{DerefMut, RangeInclusive};

use lowwater_base::sync::atomic::{fence, AtomicBool, Ordering};
use lowwater_base::sync::Mutex;
use lowwater_base::{fallible, mutated};
use lowwater_lru_core::{Memcg, MemcgId, NodeId};

use crate::bitmap::Bit;
use crate::utility::Pairs;
use index::{Index, IndexOutcome};
use node::NodeMap;
use shrinker_info::ShrinkerInfo;
use summary::Summary;

/// The map of all groups, nodes and shrinkers of one registry.
pub(crate) struct Map {
    nodes: Box<[NodeMap]>,
    index: Index,
    ends: Ends,
    /// Whether an ended group has ever handed owed objects over: mostly not, and then a visit reads
    /// none.
    has_received: AtomicBool,
    /// `None` unless victims are selected by utility. Has a pair if the index has it on any node,
    /// unless there was no memory for it: then a node is dirty. Pairs are added and removed under
    /// the index shard's lock.
    pairs: Option<Box<Pairs>>,
    /// The root of the groups' tree. `None` before `belong_to`, and after the registry has been
    /// dropped.
    root: Mutex<Option<Memcg>>,
}

/// The outcome of setting a bit in one group's `ShrinkerInfo`.
enum SetOutcome {
    /// The bit is set, or the request is obsolete.
    Done,
    /// The group has died; its nearest online ancestor has its lists.
    Dying,
    /// There is no memory.
    NoMemory,
}

impl Map {
    #[cfg(test)]
    pub(crate) fn new(nodes: usize) -> Self {
        Self::try_new(nodes, false).unwrap()
    }

    /// Creates an empty map; `None` without memory.
    pub(crate) fn try_new(nodes: usize, by_utility: bool) -> Option<Self> {
        let (nodes, index) = (fallible::try_slice(nodes, |_| NodeMap::new())?, Index::try_new()?);
        let pairs = if by_utility { Some(fallible::try_box(Pairs::new())?) } else { None };
        let (ends, has_received, root) = (Ends::default(), AtomicBool::new(false), Mutex::new(None));
        Some(Self { nodes, index, ends, has_received, pairs, root })
    }

    /// Returns the pairs of shrinkers and groups by utility, if victims are selected by it.
    pub(crate) fn by_utility(&self) -> Option<&Pairs> {
        self.pairs.as_deref()
    }

    /// Returns true if the id still belongs to this owner, and the group to this tree.
    pub(crate) fn is_own(&self, key: Key, memcg: &Memcg) -> bool {
        let is_in_tree = self.root.lock().as_ref().is_some_and(|root| memcg.is_in_tree_of(root));
        is_in_tree && self.index.lock(key.id).is_open(key)
    }

    /// Returns the group with this id, if it has a live pair.
    pub(crate) fn memcg(&self, id: MemcgId) -> Option<Memcg> {
        self.part_of_memcg(id, Memcg::clone)
    }

    /// As [`memcg`](Self::memcg), but returns a part of the group. `part` must take no lock.
    pub(crate) fn part_of_memcg<T>(&self, id: MemcgId, part: impl Fn(&Memcg) -> T) -> Option<T> {
        self.nodes.iter().find_map(|node| node.shard(id).read().get(id).map(|info| part(&info.memcg)))
    }

    /// Restricts the map to the groups of this tree. In another tree the same ids mean other
    /// groups.
    pub(crate) fn belong_to(&self, root: &Memcg) {
        *self.root.lock() = Some(root.clone());
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    // === ids ===

    /// Opens an id: from here on its bits can be set. `None` without memory.
    pub(crate) fn open(&self, id: u32) -> Option<Key> {
        self.index.open(id)
    }

    /// Closes an id: its bits and deferred objects are cleared, and none can be added any more
    /// (S17). O(its own pairs).
    pub(crate) fn close(&self, key: Key) {
        for (node, memcg) in self.index.close(key) {
            self.remove_unset(key.id, memcg);
            // No bit of this id is set from here on (invariant 5), so cleared bits stay clear.
            let removed_info = self.node(node).remove_bit(memcg, key.id);
            drop(removed_info);
        }
    }

    // === bits ===

    /// Sets the bit for a list of `memcg` on `node` that may hold objects. If the group is offline,
    /// sets the bit of its nearest online ancestor, which has its lists.
    ///
    /// If the bit is set already: one read lock, one fence, no store to the map. Returns false if
    /// there was no memory: the node is dirty then.
    #[doc(alias = "set_shrinker_bit")]
    pub(crate) fn set(&self, memcg: &Memcg, node: NodeId, key: Key) -> bool {
        // INVARIANT 4: the index records the clamped node, as the map does.
        let node = NodeId::new(self.at(node) as u16);
        let mut tried = self.try_set(memcg, node, key);
        let mut above;
        let mut at = memcg;
        // Bounded by the depth of the tree: each iteration starts from an ancestor of the previous
        // group.
        while let SetOutcome::Dying = tried {
            above = at.nearest_online();
            at = &above;
            tried = self.try_set(at, node, key);
        }
        let has_memory = !matches!(tried, SetOutcome::NoMemory);
        if !has_memory {
            self.mark_dirty(node);
        }
        has_memory
    }

    /// Marks the node dirty: a bit on it may be missing.
    #[cold]
    pub(crate) fn mark_dirty(&self, node: NodeId) {
        // Release: pairs with the Acquire in `take_dirty`, so that a resync counts the objects that
        // the caller added.
        let ordering = if mutated!("lost_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.node(node).dirty.store(true, ordering);
    }

    /// Marks all nodes dirty.
    #[cold]
    pub(crate) fn mark_all_dirty(&self) {
        (0..self.nodes.len()).for_each(|node| self.mark_dirty(NodeId::new(node as u16)));
    }

    /// Returns whether the node became dirty since the last call, and marks it clean.
    pub(crate) fn take_dirty(&self, node: NodeId) -> bool {
        let dirty = &self.node(node).dirty;
        // Relaxed: it only decides about the exchange, which is expensive and nearly always
        // unnecessary. Acquire: pairs with the Release in `mark_dirty`.
        dirty.load(Ordering::Relaxed) && dirty.swap(false, Ordering::Acquire)
    }

    fn try_set(&self, memcg: &Memcg, node: NodeId, key: Key) -> SetOutcome {
        let shard = self.node(node).shard(memcg.id());
        if let Some(bit) = shard.read().get(memcg.id()).and_then(|info| info.words.find(key.id)) {
            if !mutated!("set_without_fence") {
                // SeqCst: between the caller's count and this thread's load of the bit; pairs with
                // the fence in `clear`.
                fence(Ordering::SeqCst);
            }
            if bit.is_set() {
                return SetOutcome::Done;
            }
            return self.mark(bit, memcg, node, key, &mut self.index.lock(key.id));
        }
        self.set_slow(memcg, node, key)
    }

    /// [`set`](Self::set) if the `ShrinkerInfo` or the word is missing.
    #[cold]
    fn set_slow(&self, memcg: &Memcg, node: NodeId, key: Key) -> SetOutcome {
        if self.root.lock().as_ref().is_some_and(|root| !memcg.is_in_tree_of(root)) {
            // A group of another tree: its `ShrinkerInfo` would be taken for that of this tree's
            // group with the same id, and no pass looks at its lists.
            return SetOutcome::Done;
        }
        let on_node = self.node(node);
        let mut infos = on_node.shard(memcg.id()).write();
        // Checked under the lock that `offline` takes after the group has died: either this thread
        // sees it dying, or `offline` comes later and moves the bit.
        if !memcg.is_online() {
            return SetOutcome::Dying;
        }
        let mut index = self.index.lock(key.id);
        if !index.is_open(key) {
            return SetOutcome::Done;
        }
        if infos.get(memcg.id()).is_none() {
            // INVARIANT 2: `ShrinkerInfo` and summary node are created together.
            if !on_node.summary.lock().link(memcg) {
                return SetOutcome::NoMemory;
            }
            if !infos.try_insert(ShrinkerInfo::new(memcg.clone())) {
                on_node.summary.lock().unlink(memcg);
                return SetOutcome::NoMemory;
            }
        }
        let tried = match infos.get_mut(memcg.id()).and_then(|info| info.words.make(key.id)) {
            Some(bit) => self.mark(bit, memcg, node, key, &mut index),
            None => SetOutcome::NoMemory,
        };
        if let SetOutcome::NoMemory = tried {
            drop(index);
            // The caller has a handle on the group, so the handle in the `ShrinkerInfo` is not the
            // last one.
            drop(on_node.tidy(&mut infos, memcg.id()));
        }
        tried
    }

    /// Sets a bit that was read as clear. INVARIANT 4 and 5: under the index shard's lock, together
    /// with the pair, if the id is open.
    fn mark(&self, bit: Bit<'_>, memcg: &Memcg, node: NodeId, key: Key, index: &mut index::Shard) -> SetOutcome {
        match index.insert(key, node, memcg.id()) {
            IndexOutcome::Present => {
                // Relaxed: a pass that sees the bit and finds nothing yet clears it, and its second
                // count is ordered by the fences (see the module's Orderings); other changes of the
                // bit are ordered by the index shard's lock.
                bit.word.fetch_or(bit.mask, Ordering::Relaxed);
                self.add_by_utility(memcg, node, key);
                SetOutcome::Done
            }
            IndexOutcome::NotOwner => SetOutcome::Done,
            IndexOutcome::NoMemory => SetOutcome::NoMemory,
        }
    }

    /// Clears a bit. The caller then counts again, and [`set`](Self::set)s the bit again unless
    /// that count is "empty". If it is, or the id is closed, or there is no memory for the bit, the
    /// caller calls [`retire_pair`](Self::retire_pair), and in all cases
    /// [`remove_unset`](Self::remove_unset). Returns whether this was the last bit in its word.
    pub(crate) fn clear(&self, memcg: &Memcg, node: NodeId, id: u32) -> bool {
        let mut last = false;
        let infos = self.node(node).shard(memcg.id()).read();
        if let Some(bit) = infos.get(memcg.id()).and_then(|info| info.words.find(id)) {
            let mut index = self.index.lock(id);
            index.remove(id, node, memcg.id());
            // Relaxed: ordered against other changes of the bit by the index shard's lock, against
            // the count by the fence.
            last = bit.word.fetch_and(!bit.mask, Ordering::Relaxed) & !bit.mask == 0;
        }
        drop(infos);
        if !mutated!("clear_without_fence") {
            // SeqCst: between the clear and the caller's second count; pairs with the fence in
            // `set`.
            fence(Ordering::SeqCst);
        }
        last
    }

    /// Frees what a cleared bit leaves: its deferred objects, its counts, and if `last` its word
    /// and `ShrinkerInfo`. Does nothing if the bit is set again.
    pub(crate) fn retire_pair(&self, memcg: &Memcg, node: NodeId, id: u32, last: bool) {
        let removed_info = self.node(node).retire_pair(memcg.id(), id, last);
        drop(removed_info);
    }

    /// Adds a pair of the index to the pairs by utility. Without memory the node is marked dirty.
    /// The caller holds the lock of the index shard.
    fn add_by_utility(&self, memcg: &Memcg, node: NodeId, key: Key) {
        if self.by_utility().is_some_and(|pairs| !pairs.add(key.id, memcg.id())) {
            self.mark_dirty(node);
        }
    }

    /// Adds a pair with a set bit to the pairs by utility, if there was no memory for it before.
    pub(crate) fn add_missing(&self, memcg: &Memcg, node: NodeId, key: Key) {
        if self.pairs.is_none() {
            return;
        }
        let index = self.index.lock(key.id);
        if index.is_open(key) && index.has(key.id, memcg.id()) {
            self.add_by_utility(memcg, node, key);
        }
    }

    /// Removes a pair from the pairs by utility, unless the index has it on any node.
    pub(crate) fn remove_unset(&self, id: u32, memcg: MemcgId) {
        let Some(pairs) = &self.pairs else { return };
        let index = self.index.lock(id);
        if !index.has(id, memcg) {
            pairs.remove(id, memcg);
        }
    }

    /// Returns true if the bit is set.
    #[cfg(test)]
    pub(crate) fn is_set(&self, memcg: &Memcg, node: NodeId, id: u32) -> bool {
        self.node(node).shard(memcg.id()).read().get(memcg.id()).is_some_and(|info| info.words.contains(id))
    }

    /// Appends the ids in `range` with a set bit to `ids`, in order. Returns whether the group has,
    /// or had, deferred objects here.
    pub(crate) fn collect(&self, memcg: &Memcg, node: NodeId, range: RangeInclusive<u32>, ids: &mut Vec<u32>) -> bool {
        let infos = self.node(node).shard(memcg.id()).read();
        let Some(info) = infos.get(memcg.id()) else { return false };
        info.words.collect(range, ids);
        // Relaxed: a debt that is missed here is paid by the next pass.
        info.visit_state().is_some_and(|visit_state| visit_state.has_deferred.load(Ordering::Relaxed))
    }

    /// Returns the counters of group ends, to detect an end that overlaps with a round.
    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    fn node(&self, node: NodeId) -> &NodeMap {
        &self.nodes[self.at(node)]
    }

    /// Returns the index of a node. A number beyond the last, a mistake in the caller's topology,
    /// stands for the last node.
    fn at(&self, node: NodeId) -> usize {
        node.index().min(self.nodes.len() - 1)
    }

    pub(crate) fn summary(&self, node: NodeId) -> impl DerefMut<Target = Summary> + '_ {
        self.node(node).summary.lock()
    }
}
