//! Who holds something: for each group and node, the shrinkers that may.
//!
//! The obvious map, an array of bits for every (group, node) as long as the highest shrinker id, costs memory and walking
//! time for pairs that never meet. Here a pair costs something from its first object until a pass finds it empty, and
//! nothing else does:
//!
//! ```text
//!     nodes[n] -- shards[hash(group)]: RwLock< group -> Unit { words with a bit in them, debts } >
//!        |
//!        +------- summary: Mutex< group -> Way { children whose subtree holds something }, leaves that have none >
//!
//!     index[hash(shrinker)]: Mutex< shrinker -> its (group, node) pairs >
//! ```
//!
//! - a pass over a subtree goes down the ways, so it visits the groups that hold something and those above them;
//! - an `add` on a list that was empty reads one shard and one word, and stops there if the bit is still set;
//! - dropping a registration asks the index for its own pairs, so nothing is left for the next owner of the id (S17);
//! - bytes are O(live pairs) (S25).
//!
//! # Invariants
//!
//! 1. If a list is not empty, and neither an `add` on it, nor a clear of its bit, nor its group's offline is in progress, its
//!    bit is set (L10, S11).
//! 2. A unit is there if and only if its group is a leaf of the summary, or its way is marked live; it is made, and removed, under the
//!    shard's write lock.
//! 3. A way has children, or is live and keeps where a round stopped, or could not be given back for want of memory. A leaf has no way.
//!    The way of the parent of each leaf and of each way has it as a child.
//! 4. A bit is set if and only if the index has the pair. Both change under the index shard's lock.
//! 5. A bit is set only for an id that is open, and only in a unit of a group that has not gone through
//!    [`offline`](Map::offline).
//!
//! # Lock order
//!
//! Shard, then index shard, then summary; debts of a unit are a leaf under the shard; the root is a
//! leaf, under none. Nobody's code runs under any of them,
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
mod summary;
mod tour;
mod unit;

#[cfg(all(test, lowwater_loom))]
mod loom;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;

pub(crate) use ends::{Ends, Mark, Recheck};
pub(crate) use index::Key;
pub(crate) use summary::{path, Position, Resume};
pub(crate) use tour::Tour;

use alloc::{boxed::Box, vec::Vec};
use core::ops::{DerefMut, RangeInclusive};

use lowwater_lru_core::sync::{
    atomic::{fence, AtomicBool, Ordering},
    Mutex, RwLock,
};
use lowwater_lru_core::{fallible, mutated, Bytes, Memcg, MemcgId, NodeId};

use crate::bitmap::Bit;
use crate::deferred::Debt;
use crate::stats::{PairStats, Visited};
use index::{Index, Noted};
use summary::Summary;
use unit::{Unit, Units};

/// Shards of a node: enough that sixteen threads whose lists fill at once seldom meet. A power of two.
const SHARDS: usize = if cfg!(lowwater_loom) { 2 } else { 16 };

/// The map of all groups, nodes and shrinkers of one registry.
pub(crate) struct Map {
    nodes: Box<[NodeMap]>,
    index: Index,
    ends: Ends,
    /// The root of the tree whose groups these are. None: not said, or the registry is gone.
    root: Mutex<Option<Memcg>>,
}

/// One node's part of the map.
struct NodeMap {
    shards: [RwLock<Units>; SHARDS],
    summary: Mutex<Summary>,
    /// Was there a bit that could not be set for want of memory?
    lost: AtomicBool,
}

/// What a try at a group found.
enum Tried {
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
        Self::try_new(nodes).unwrap()
    }

    /// None without memory.
    pub(crate) fn try_new(nodes: usize) -> Option<Self> {
        let node = |_| NodeMap {
            shards: core::array::from_fn(|_| RwLock::new(Units::default())),
            summary: Mutex::new(Summary::default()),
            lost: AtomicBool::new(false),
        };
        let (nodes, index) = (fallible::try_slice(nodes, node)?, Index::try_new()?);
        Some(Self { nodes, index, ends: Ends::default(), root: Mutex::new(None) })
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

    /// Ends an id: its bits and debts are cleared, and none can come any more (S17). O(its own pairs).
    pub(crate) fn close(&self, key: Key) {
        for (node, memcg) in self.index.close(key) {
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
        while let Tried::Dying = tried {
            above = at.nearest_online();
            at = &above;
            tried = self.try_set(at, node, key);
        }
        if let Tried::NoMemory = tried {
            self.lose(node);
        }
    }

    /// Remembers that something on this node could not be.
    #[cold]
    pub(crate) fn lose(&self, node: NodeId) {
        // Release: meets the Acquire in `take_lost`, so that who counts because of it counts what the caller added.
        let ordering = if mutated!("lost_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.node(node).lost.store(true, ordering);
    }

    /// Was something lost on this node since the last time this was asked?
    pub(crate) fn take_lost(&self, node: NodeId) -> bool {
        let lost = &self.node(node).lost;
        // Relaxed: only whether to do the exchange, which is dear and nearly always in vain. Acquire: meets the Release in `set`.
        lost.load(Ordering::Relaxed) && lost.swap(false, Ordering::Acquire)
    }

    fn try_set(&self, memcg: &Memcg, node: NodeId, key: Key) -> Tried {
        let shard = self.node(node).shard(memcg.id());
        if let Some(bit) = shard.read().get(memcg.id()).and_then(|unit| unit.words.find(key.id)) {
            if !mutated!("set_without_fence") {
                // SeqCst: between the caller's count and our load; meets the fence in `clear`.
                fence(Ordering::SeqCst);
            }
            if bit.is_set() {
                return Tried::Done;
            }
            return self.mark(bit, memcg, node, key, &mut self.index.lock(key.id));
        }
        self.set_slow(memcg, node, key)
    }

    /// The unit or the word is not there.
    #[cold]
    fn set_slow(&self, memcg: &Memcg, node: NodeId, key: Key) -> Tried {
        if self.root.lock().as_ref().is_some_and(|root| !memcg.is_in_tree_of(root)) {
            // Its unit would be taken for that of our group of the same id, whose lists nobody
            // would look at.
            return Tried::Done;
        }
        let on_node = self.node(node);
        let mut units = on_node.shard(memcg.id()).write();
        // Asked under the lock that `offline` takes after the group has died: either we see it dying, or `offline` comes
        // after us and takes the bit along.
        if !memcg.is_online() {
            return Tried::Dying;
        }
        let mut index = self.index.lock(key.id);
        if !index.is_open(key) {
            return Tried::Done;
        }
        if units.get(memcg.id()).is_none() {
            // INVARIANT 2: unit and way are made together.
            if !on_node.summary.lock().link(memcg) {
                return Tried::NoMemory;
            }
            if !units.try_insert(Unit::new(memcg.clone())) {
                on_node.summary.lock().unlink(memcg);
                return Tried::NoMemory;
            }
        }
        let tried = match units.get_mut(memcg.id()).and_then(|unit| unit.words.make(key.id)) {
            Some(bit) => self.mark(bit, memcg, node, key, &mut index),
            None => Tried::NoMemory,
        };
        if let Tried::NoMemory = tried {
            drop(index);
            // The caller has a handle on the group, so the one in the unit is not the last.
            drop(on_node.tidy(&mut units, memcg.id()));
        }
        tried
    }

    /// Sets a bit that was seen clear. INVARIANT 4 and 5: under the index shard's lock, with the pair, if the id is open.
    fn mark(&self, bit: Bit<'_>, memcg: &Memcg, node: NodeId, key: Key, index: &mut index::Shard) -> Tried {
        match index.insert(key, node, memcg.id()) {
            Noted::Yes => {
                // Relaxed: a pass that sees the bit and finds nothing yet clears it, and its second count is ordered by the
                // fences (see the module's Orderings); other changes of the bit are ordered by the index shard's lock.
                bit.word.fetch_or(bit.mask, Ordering::Relaxed);
                Tried::Done
            }
            Noted::Foreign => Tried::Done,
            Noted::NoMemory => Tried::NoMemory,
        }
    }

    /// Clears a bit on a node that exists. The caller counts again after it, and
    /// [`set`](Self::set)s it again if that does not say "empty", or
    /// else calls [`settle`](Self::settle). Says whether that was the last bit in its word.
    pub(crate) fn clear(&self, memcg: &Memcg, node: NodeId, id: u32) -> bool {
        let mut last = false;
        let units = self.node(node).shard(memcg.id()).read();
        if let Some(bit) = units.get(memcg.id()).and_then(|unit| unit.words.find(id)) {
            let mut index = self.index.lock(id);
            index.remove(id, node, memcg.id());
            // Relaxed: ordered against other changes of the bit by the index shard's lock, against the count by the fence.
            last = bit.word.fetch_and(!bit.mask, Ordering::Relaxed) & !bit.mask == 0;
        }
        drop(units);
        if !mutated!("clear_without_fence") {
            // SeqCst: between the clear and the caller's second count; meets the fence in `set`.
            fence(Ordering::SeqCst);
        }
        last
    }

    /// Gives back what a cleared bit leaves: its debt, and its word and unit if `last` says so. Nothing if the bit is set again.
    pub(crate) fn settle(&self, memcg: &Memcg, node: NodeId, id: u32, last: bool) {
        let grave = self.node(node).settle(memcg.id(), id, last);
        drop(grave);
    }

    /// Is the bit set?
    #[cfg(test)]
    pub(crate) fn is_set(&self, memcg: &Memcg, node: NodeId, id: u32) -> bool {
        self.node(node).shard(memcg.id()).read().get(memcg.id()).is_some_and(|unit| unit.words.contains(id))
    }

    /// Adds the ids in `range` whose bit is set to `ids`, in order. Says whether the group has debts here.
    pub(crate) fn collect(&self, memcg: &Memcg, node: NodeId, range: RangeInclusive<u32>, ids: &mut Vec<u32>) -> bool {
        let units = self.node(node).shard(memcg.id()).read();
        let Some(unit) = units.get(memcg.id()) else { return false };
        unit.words.collect(range, ids);
        // Relaxed: a debt missed here is paid by the next pass.
        unit.books().is_some_and(|books| books.indebted.load(Ordering::Relaxed))
    }

    // === debts ===

    /// Takes a debt out, so that nobody else pays it as well (S5). Without `all`, only what is carried.
    pub(crate) fn take_debt(&self, memcg: &Memcg, node: NodeId, id: u32, all: bool) -> Debt {
        let units = self.node(node).shard(memcg.id()).read();
        units.get(memcg.id()).and_then(Unit::books).map_or(Debt::NONE, |books| books.debts.lock().take(id, all))
    }

    /// Takes up to `max` objects of what is owed, so that nobody else pays them as well (S5), and leaves what is carried.
    pub(crate) fn take_owed(&self, memcg: &Memcg, node: NodeId, id: u32, max: u64) -> u64 {
        let units = self.node(node).shard(memcg.id()).read();
        units.get(memcg.id()).and_then(Unit::books).map_or(0, |books| books.debts.lock().take_owed(id, max))
    }

    /// Adds to a debt, up to `owed_max`; if the group has died, to its nearest online ancestor's. Where the bit is clear
    /// nothing exists that could pay, and the debt is forgiven. Says what is owed now.
    pub(crate) fn add_debt(&self, memcg: &Memcg, node: NodeId, id: u32, debt: Debt, owed_max: u64) -> u64 {
        if debt.is_none() {
            return 0;
        }
        let mut climbed;
        let mut at = memcg;
        loop {
            let units = self.node(node).shard(at.id()).read();
            match units.get(at.id()) {
                Some(unit) if unit.words.contains(id) => {
                    // Without memory it is forgiven.
                    let Some(books) = unit.books_to_write() else { return 0 };
                    let owed = books.debts.lock().add(id, debt, owed_max);
                    // Relaxed: see `collect`. Never unset: a unit whose debts are paid is looked at in vain until it goes.
                    books.indebted.store(true, Ordering::Relaxed);
                    return owed;
                }
                Some(_) => return 0,
                // Asked under the lock, as in `set_slow`.
                None if at.is_online() => return 0,
                None => {}
            }
            drop(units);
            climbed = at.nearest_online();
            at = &climbed;
        }
    }

    /// Who owes something for this group on this node.
    pub(crate) fn debtors(&self, memcg: &Memcg, node: NodeId) -> Vec<u32> {
        let units = self.node(node).shard(memcg.id()).read();
        let mut ids = Vec::new();
        if let Some(books) = units.get(memcg.id()).and_then(Unit::books) {
            // As far as there is memory: the others wait for the next time.
            let _ = books.debts.lock().debtors().try_for_each(|id| fallible::try_push(&mut ids, id));
        }
        ids
    }

    /// Objects owed for this group on this node.
    pub(crate) fn owed_by_all(&self, memcg: &Memcg, node: NodeId) -> u64 {
        let units = self.node(node).shard(memcg.id()).read();
        units.get(memcg.id()).and_then(Unit::books).map_or(0, |books| books.debts.lock().sum())
    }

    /// Objects owed by `id` for this group on this node.
    pub(crate) fn owed(&self, memcg: &Memcg, node: NodeId, id: u32) -> u64 {
        let units = self.node(node).shard(memcg.id()).read();
        units.get(memcg.id()).and_then(Unit::books).map_or(0, |books| books.debts.lock().owed(id))
    }

    // === groups ===

    /// The group has died, and its lists have joined `parent`'s: so do its bits and its debts (S18).
    #[doc(alias = "reparent_shrinker_deferred")]
    pub(crate) fn offline(&self, dying: &Memcg, parent: &Memcg) {
        self.ends.begin();
        for n in 0..self.nodes.len() {
            let node = NodeId::new(n as u16);
            let Some(unit) = self.node(node).remove_unit(dying) else { continue };
            let mut last = None;
            while let Some(id) = unit.words.next_after(last) {
                last = Some(id);
                let Some(key) = self.index.lock(id).remove(id, node, dying.id()) else { continue };
                // A bit in vain where the list was empty costs one call, and the debt is kept until then.
                self.set(parent, node, key);
                let debt = unit.books().map_or(Debt::NONE, |books| books.debts.lock().take(key.id, true));
                self.add_debt(parent, node, key.id, debt, u64::MAX);
            }
        }
        self.ends.finish();
    }

    /// The ends of groups, to see whether one overlaps with a round.
    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Drops every unit and way, and closes every id: the registry is gone. What lists still report is not listened to.
    pub(crate) fn shut(&self) {
        self.index.shut();
        let root = self.root.lock().take();
        drop(root);
        for node in &self.nodes {
            for shard in &node.shards {
                let units = {
                    let mut units = shard.write();
                    for unit in units.iter() {
                        node.summary.lock().unlink(&unit.memcg);
                    }
                    core::mem::take(&mut *units)
                };
                drop(units);
            }
        }
    }

    // === to look at ===

    /// Notes a visit, unless the pair was found empty and is gone.
    pub(crate) fn note(&self, memcg: &Memcg, node: NodeId, id: u32, counted: u64, visited: &Visited) {
        let units = self.node(node).shard(memcg.id()).read();
        if let Some(unit) = units.get(memcg.id()).filter(|unit| unit.words.contains(id)) {
            // Without memory it is not noted.
            if let Some(books) = unit.books_to_write() {
                books.seen.lock().add(id, counted, visited);
            }
        }
    }

    /// The live pairs. O(live pairs).
    pub(crate) fn pairs(&self) -> Vec<PairStats> {
        let mut pairs = Vec::new();
        let mut ids = Vec::new();
        for (n, on_node) in self.nodes.iter().enumerate() {
            for shard in &on_node.shards {
                for unit in shard.read().iter() {
                    ids.clear();
                    unit.words.collect(0..=u32::MAX, &mut ids);
                    let (node, books) = (NodeId::new(n as u16), unit.books());
                    let books = books.map(|books| (books.seen.lock(), books.debts.lock()));
                    let pair = |id: &u32| {
                        let (seen, owed) = match &books {
                            Some((seen, debts)) => (seen.get(*id), debts.owed(*id)),
                            None => Default::default(),
                        };
                        PairStats::of(*id, unit.memcg.clone(), node, seen, owed)
                    };
                    pairs.extend(ids.iter().map(pair));
                }
            }
        }
        pairs
    }

    /// What the pairs of `root` and all below it held on a node when they were visited last. O(live pairs on the node), no callback.
    pub(crate) fn held(&self, root: &Memcg, node: NodeId) -> u64 {
        let shards = self.node(node).shards.iter();
        shards.fold(0, |sum: u64, shard| {
            let units = shard.read();
            let below = units.iter().filter(|unit| unit.memcg.is_descendant_of(root));
            below.filter_map(Unit::books).fold(sum, |sum, books| sum.saturating_add(books.seen.lock().counted()))
        })
    }

    /// The groups and nodes for which `id` may hold something. O(its own pairs).
    pub(crate) fn pairs_of(&self, id: u32) -> Vec<(Memcg, NodeId)> {
        let pairs = self.index.pairs(id);
        let memcg = |(node, memcg): (NodeId, MemcgId)| {
            Some((self.node(node).shard(memcg).read().get(memcg)?.memcg.clone(), node))
        };
        pairs.into_iter().filter_map(memcg).collect()
    }

    /// Set bits, and units that hold them, over all nodes. O(live pairs).
    pub(crate) fn live(&self) -> (usize, usize) {
        let shards = self.nodes.iter().flat_map(|node| &node.shards);
        shards.fold((0, 0), |(pairs, units), shard| {
            let shard = shard.read();
            (pairs + shard.iter().map(|unit| unit.words.len()).sum::<usize>(), units + shard.len())
        })
    }

    /// Bytes allocated. O(live pairs).
    pub(crate) fn footprint(&self) -> Bytes {
        let nodes: usize = self.nodes.iter().map(NodeMap::bytes).sum();
        Bytes::new((nodes + self.index.bytes() + core::mem::size_of::<Self>()) as u64)
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

// === impl NodeMap ===

impl NodeMap {
    fn shard(&self, memcg: MemcgId) -> &RwLock<Units> {
        &self.shards[memcg.index() % SHARDS]
    }

    /// See [`Map::settle`]. What comes back is dropped without a lock.
    fn settle(&self, memcg: MemcgId, id: u32, last: bool) -> Option<Unit> {
        let shard = self.shard(memcg);
        if !last {
            let units = shard.read();
            let unit = units.get(memcg)?;
            if !unit.words.contains(id) {
                if let Some(books) = unit.books() {
                    books.debts.lock().take(id, true);
                }
            }
            return None;
        }
        self.tidy(&mut shard.write(), memcg)
    }

    /// Clears the bit and the debt of an id that is closed.
    fn remove_bit(&self, memcg: MemcgId, id: u32) -> Option<Unit> {
        let mut units = self.shard(memcg).write();
        if let Some(bit) = units.get(memcg).and_then(|unit| unit.words.find(id)) {
            // Relaxed: under the write lock.
            bit.word.fetch_and(!bit.mask, Ordering::Relaxed);
        }
        self.tidy(&mut units, memcg)
    }

    /// INVARIANT 2: under the write lock nobody sets a bit, so a unit found empty here is empty, and goes with its way.
    fn tidy(&self, units: &mut Units, memcg: MemcgId) -> Option<Unit> {
        let unit = units.get_mut(memcg)?;
        unit.words.tidy();
        if unit.words.is_empty() {
            return self.remove(units, memcg);
        }
        unit.tidy_books();
        None
    }

    /// Takes a dying group's unit out.
    fn remove_unit(&self, dying: &Memcg) -> Option<Unit> {
        self.remove(&mut self.shard(dying.id()).write(), dying.id())
    }

    fn remove(&self, units: &mut Units, memcg: MemcgId) -> Option<Unit> {
        let gone = units.remove(memcg)?;
        self.summary.lock().unlink(&gone.memcg);
        Some(gone)
    }

    fn bytes(&self) -> usize {
        let units: usize = self.shards.iter().map(|shard| unit::bytes(&shard.read())).sum();
        core::mem::size_of::<Self>() + units + self.summary.lock().bytes()
    }
}
