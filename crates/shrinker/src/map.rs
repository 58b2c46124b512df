//! The map of live pairs: for each group and node, the shrinkers that may hold objects.
//!
//! The obvious map, an array of bits for every (group, node) as long as the highest shrinker id, costs memory and walking
//! time for pairs that never meet. Here a pair costs something from its first object until a pass finds it empty, and
//! nothing else does:
//!
//! ```text
//!     nodes[n] -- shards[hash(group)]: RwLock< group -> ShrinkerInfo { words with a bit in them, nr_deferred } >
//!        |
//!        +------- summary: Mutex< group -> SummaryNode { children whose subtree holds something }, leaves that have none >
//!
//!     index[hash(shrinker)]: Mutex< shrinker -> its (group, node) pairs >
//! ```
//!
//! - a pass over a subtree goes down the summary's nodes, so it visits the groups that hold something and those above them;
//! - an `add` on a list that was empty reads one shard and one word, and stops there if the bit is still set;
//! - dropping a registration asks the index for its own pairs, so nothing is left for the next owner of the id (S17);
//! - bytes are O(live pairs) (S25); where victims are chosen by utility, the table of pairs keeps the
//!   memory of the most pairs that it ever had.
//!
//! # Invariants
//!
//! 1. If a list is not empty, and neither an `add` on it, nor a clear of its bit, nor its group's offline is in progress, its
//!    bit is set (L10, S11).
//! 2. A `ShrinkerInfo` is there if and only if its group is a leaf of the summary, or its summary node is marked live; it is made, and
//!    removed, under the shard's write lock.
//! 3. A summary node has children, or is live and keeps an iterator's position, or could not be given back for want of memory. A leaf
//!    has no node. The node of the parent of each leaf and of each node has it as a child.
//! 4. A bit is set if and only if the index has the pair. Both change under the index shard's lock.
//! 5. A bit is set only for an id that is open, and only in the `ShrinkerInfo` of a group that has not gone through
//!    [`offline`](Map::offline).
//!
//! # Lock order
//!
//! Shard, then index shard, then summary; `nr_deferred` is a leaf under the shard, the index of the
//! pairs by utility one under the index shard; the root is a leaf, under none. Nobody's code runs under any of them,
//! and no group handle is dropped there: the last one locks the tree.
//!
//! # Orderings
//!
//! A set bit means "this shrinker may have something for this group on this node". It may be set in vain; that costs one
//! call. It may never stay clear while the list is not empty; that would hide an object from reclaim for good.
//!
//! `set` skips the store when it sees the bit set, to leave the line shared. That makes it store-then-load, and clearing is
//! store-then-load too, so each side needs a full fence between its halves:
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
//! The shards' locks are no substitute: both sides only read-lock, and may be inside together. Held by `map/loom.rs`:
//! `an_object_is_never_hidden` and its twins without a fence on either side and without the second count, which must fail.

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

use lowwater_base::sync::atomic::{fence, Ordering};
use lowwater_base::sync::Mutex;
use lowwater_base::{fallible, mutated};
use lowwater_lru_core::{Memcg, MemcgId, NodeId};

use crate::bitmap::Bit;
use crate::utility::Pairs;
use index::{Index, Noted};
use node::NodeMap;
use shrinker_info::ShrinkerInfo;
use summary::Summary;

/// The map of all groups, nodes and shrinkers of one registry.
pub(crate) struct Map {
    nodes: Box<[NodeMap]>,
    index: Index,
    ends: Ends,
    /// None where victims are not chosen by utility. Has a pair if the index has it on any node, unless
    /// there was no memory for it: then a node is dirty. Pairs are added and removed under the index shard's
    /// lock.
    pairs: Option<Box<Pairs>>,
    /// The root of the tree whose groups these are. None: not said, or the registry is gone.
    root: Mutex<Option<Memcg>>,
}

/// The outcome of setting a bit in one group's `ShrinkerInfo`.
enum SetOutcome {
    /// Done, or nothing to do.
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

    /// None without memory.
    pub(crate) fn try_new(nodes: usize, by_utility: bool) -> Option<Self> {
        let (nodes, index) = (fallible::try_slice(nodes, |_| NodeMap::new())?, Index::try_new()?);
        let pairs = if by_utility { Some(fallible::try_box(Pairs::new())?) } else { None };
        Some(Self { nodes, index, ends: Ends::default(), pairs, root: Mutex::new(None) })
    }

    /// The pairs of shrinkers and groups by utility, if victims are chosen by it.
    pub(crate) fn by_utility(&self) -> Option<&Pairs> {
        self.pairs.as_deref()
    }

    /// Whether the id is still this owner's, and the group one of this tree.
    pub(crate) fn is_own(&self, key: Key, memcg: &Memcg) -> bool {
        let is_in_tree = self.root.lock().as_ref().is_some_and(|root| memcg.is_in_tree_of(root));
        is_in_tree && self.index.lock(key.id).is_open(key)
    }

    /// The group of this id, if it holds something.
    pub(crate) fn memcg(&self, id: MemcgId) -> Option<Memcg> {
        self.nodes.iter().find_map(|node| node.shard(id).read().get(id).map(|info| info.memcg.clone()))
    }

    /// From here on only groups of this tree are known. In another one the same ids mean other
    /// groups.
    pub(crate) fn belong_to(&self, root: &Memcg) {
        *self.root.lock() = Some(root.clone());
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    // === ids ===

    /// Opens an id: from here on its bits can be set. None without memory.
    pub(crate) fn open(&self, id: u32) -> Option<Key> {
        self.index.open(id)
    }

    /// Ends an id: its bits and deferred objects are cleared, and none can come any more (S17). O(its own pairs).
    pub(crate) fn close(&self, key: Key) {
        for (node, memcg) in self.index.close(key) {
            self.remove_unset(key.id, memcg);
            // No bit of this id is set from here on (invariant 5), so what is cleared stays clear.
            let grave = self.node(node).remove_bit(memcg, key.id);
            drop(grave);
        }
    }

    // === bits ===

    /// A list of `memcg` on `node` may hold something: sets the bit. A group that has gone offline stands for its nearest
    /// online ancestor, which has its lists.
    ///
    /// When the bit is set already: one read lock, one fence, no store.
    #[doc(alias = "set_shrinker_bit")]
    pub(crate) fn set(&self, memcg: &Memcg, node: NodeId, key: Key) {
        // INVARIANT 4: the index has the node that `node` stands for.
        let node = NodeId::new(self.at(node) as u16);
        let mut tried = self.try_set(memcg, node, key);
        let mut above;
        let mut at = memcg;
        // Bounded by the depth of the tree: each round starts from an ancestor of the last.
        while let SetOutcome::Dying = tried {
            above = at.nearest_online();
            at = &above;
            tried = self.try_set(at, node, key);
        }
        if let SetOutcome::NoMemory = tried {
            self.mark_dirty(node);
        }
    }

    /// Marks the node dirty: a bit on it could not be set.
    #[cold]
    pub(crate) fn mark_dirty(&self, node: NodeId) {
        // Release: meets the Acquire in `take_dirty`, so that a resync counts what the caller added.
        let ordering = if mutated!("lost_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.node(node).dirty.store(true, ordering);
    }

    /// Whether the node became dirty since the last call; it is clean afterwards.
    pub(crate) fn take_dirty(&self, node: NodeId) -> bool {
        let dirty = &self.node(node).dirty;
        // Relaxed: only whether to do the exchange, which is dear and nearly always in vain. Acquire: meets the Release in `set`.
        dirty.load(Ordering::Relaxed) && dirty.swap(false, Ordering::Acquire)
    }

    fn try_set(&self, memcg: &Memcg, node: NodeId, key: Key) -> SetOutcome {
        let shard = self.node(node).shard(memcg.id());
        if let Some(bit) = shard.read().get(memcg.id()).and_then(|info| info.words.find(key.id)) {
            if !mutated!("set_without_fence") {
                // SeqCst: between the caller's count and our load; meets the fence in `clear`.
                fence(Ordering::SeqCst);
            }
            if bit.is_set() {
                return SetOutcome::Done;
            }
            return self.mark(bit, memcg, node, key, &mut self.index.lock(key.id));
        }
        self.set_slow(memcg, node, key)
    }

    /// [`set`](Self::set) where the `ShrinkerInfo` or the word is missing.
    #[cold]
    fn set_slow(&self, memcg: &Memcg, node: NodeId, key: Key) -> SetOutcome {
        if self.root.lock().as_ref().is_some_and(|root| !memcg.is_in_tree_of(root)) {
            // Its `ShrinkerInfo` would be taken for that of our group of the same id, whose lists nobody
            // would look at.
            return SetOutcome::Done;
        }
        let on_node = self.node(node);
        let mut infos = on_node.shard(memcg.id()).write();
        // Asked under the lock that `offline` takes after the group has died: either we see it dying, or `offline` comes
        // after us and takes the bit along.
        if !memcg.is_online() {
            return SetOutcome::Dying;
        }
        let mut index = self.index.lock(key.id);
        if !index.is_open(key) {
            return SetOutcome::Done;
        }
        if infos.get(memcg.id()).is_none() {
            // INVARIANT 2: `ShrinkerInfo` and summary node are made together.
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
            // The caller has a handle on the group, so the one in the `ShrinkerInfo` is not the last.
            drop(on_node.tidy(&mut infos, memcg.id()));
        }
        tried
    }

    /// Sets a bit that was read as clear. INVARIANT 4 and 5: under the index shard's lock, with the pair, if the id is open.
    fn mark(&self, bit: Bit<'_>, memcg: &Memcg, node: NodeId, key: Key, index: &mut index::Shard) -> SetOutcome {
        match index.insert(key, node, memcg.id()) {
            Noted::Yes => {
                // Relaxed: a pass that sees the bit and finds nothing yet clears it, and its second count is ordered by the
                // fences (see the module's Orderings); other changes of the bit are ordered by the index shard's lock.
                bit.word.fetch_or(bit.mask, Ordering::Relaxed);
                self.add_by_utility(memcg, node, key);
                SetOutcome::Done
            }
            Noted::Foreign => SetOutcome::Done,
            Noted::NoMemory => SetOutcome::NoMemory,
        }
    }

    /// Clears a bit on a node that exists. The caller counts again after it, and
    /// [`set`](Self::set)s it again if that does not say "empty", or
    /// else calls [`retire_pair`](Self::retire_pair). Whatever the second count says, the caller calls
    /// [`remove_unset`](Self::remove_unset) at the end. Returns whether that was the last bit in its word.
    pub(crate) fn clear(&self, memcg: &Memcg, node: NodeId, id: u32) -> bool {
        let mut last = false;
        let infos = self.node(node).shard(memcg.id()).read();
        if let Some(bit) = infos.get(memcg.id()).and_then(|info| info.words.find(id)) {
            let mut index = self.index.lock(id);
            index.remove(id, node, memcg.id());
            // Relaxed: ordered against other changes of the bit by the index shard's lock, against the count by the fence.
            last = bit.word.fetch_and(!bit.mask, Ordering::Relaxed) & !bit.mask == 0;
        }
        drop(infos);
        if !mutated!("clear_without_fence") {
            // SeqCst: between the clear and the caller's second count; meets the fence in `set`.
            fence(Ordering::SeqCst);
        }
        last
    }

    /// Frees what a cleared bit leaves: its deferred objects, and its word and `ShrinkerInfo` if `last`. Nothing if the bit is set
    /// again.
    pub(crate) fn retire_pair(&self, memcg: &Memcg, node: NodeId, id: u32, last: bool) {
        let grave = self.node(node).retire_pair(memcg.id(), id, last);
        drop(grave);
    }

    /// Adds a pair that the index has to the pairs by utility. Without memory the node is marked dirty. The
    /// caller holds the lock of the index shard.
    fn add_by_utility(&self, memcg: &Memcg, node: NodeId, key: Key) {
        if self.by_utility().is_some_and(|pairs| !pairs.add(key.id, memcg.id())) {
            self.mark_dirty(node);
        }
    }

    /// Adds a pair whose bit is set to the pairs by utility, if there was no memory for it before.
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

    /// Whether the bit is set.
    #[cfg(test)]
    pub(crate) fn is_set(&self, memcg: &Memcg, node: NodeId, id: u32) -> bool {
        self.node(node).shard(memcg.id()).read().get(memcg.id()).is_some_and(|info| info.words.contains(id))
    }

    /// Adds the ids in `range` whose bit is set to `ids`, in order. Returns whether the group has deferred objects here.
    pub(crate) fn collect(&self, memcg: &Memcg, node: NodeId, range: RangeInclusive<u32>, ids: &mut Vec<u32>) -> bool {
        let infos = self.node(node).shard(memcg.id()).read();
        let Some(info) = infos.get(memcg.id()) else { return false };
        info.words.collect(range, ids);
        // Relaxed: a debt missed here is paid by the next pass.
        info.visit_state().is_some_and(|visit_state| visit_state.has_deferred.load(Ordering::Relaxed))
    }

    /// The ends of groups, to see whether one overlaps with a round.
    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    fn node(&self, node: NodeId) -> &NodeMap {
        &self.nodes[self.at(node)]
    }

    /// A node beyond the last is a mistake in the caller's topology, and stands for the last.
    fn at(&self, node: NodeId) -> usize {
        node.index().min(self.nodes.len() - 1)
    }

    pub(crate) fn summary(&self, node: NodeId) -> impl DerefMut<Target = Summary> + '_ {
        self.node(node).summary.lock()
    }
}
