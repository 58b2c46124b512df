//! The inverse of the map: for each shrinker, the (node, group) pairs with a set bit.
//!
//! Without the index, dropping a registration would have to search every live group for its bits
//! and debts, or leave them to the next owner of the id, as Linux does. The index changes only when
//! a bit changes: an `add` sets a bit at most once between two passes.
//!
//! A change must ensure that a bit and its pair change under one hold of the index shard's lock
//! (invariant 4 of the map), and that a key whose id was closed inserts nothing.

use alloc::{boxed::Box, vec::Vec};
use core::mem::size_of;
use core::ops::DerefMut;

use hashbrown::HashMap;
use lowwater_base::fallible;
use lowwater_base::sync::atomic::{AtomicU64, Ordering};
use lowwater_base::sync::Mutex;
use lowwater_lru_core::{MemcgId, NodeId};

use crate::bitmap::Bitmap;
use crate::hash::{shrink_after_removal, IdHasher};

/// An id and the serial number of its owner: a previous owner cannot set a bit for the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The shrinker's id.
    pub(crate) id: u32,
    /// The serial number of the id's owner: later owners, also of other ids, have larger ones.
    serial: u64,
}

/// The number of shards of the index, by shrinker.
const SHARDS: usize = super::shards::SHARDS;

#[cfg(feature = "metrics")]
impl Key {
    /// Returns a number that no other owner of any id ever has; earlier owners have smaller ones.
    pub(crate) fn owner(self) -> u64 {
        self.serial
    }
}

/// All shards, and the last serial number that was given.
pub(super) struct Index {
    shards: Box<[Mutex<Shard>]>,
    serial: AtomicU64,
}

/// The shrinkers of one shard.
#[derive(Default)]
pub(super) struct Shard {
    /// The ids in use, with their pairs.
    open: HashMap<u32, Pairs, IdHasher>,
}

/// The set bits of one shrinker.
struct Pairs {
    /// The serial number in the owner's [`Key`].
    serial: u64,
    set: Set,
}

type Pair = (NodeId, MemcgId);

/// The result of inserting a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexOutcome {
    /// The pair is in the index.
    Present,
    /// The id does not, or no longer, belong to this owner.
    NotOwner,
    /// There is no memory.
    NoMemory,
}

/// The pairs of a shrinker. A shrinker that a single group uses, such as a container's own file
/// system, needs no heap memory.
#[derive(Default)]
enum Set {
    #[default]
    None,
    One(Pair),
    Many(Box<Many>),
}

/// The groups on each node. Ids are dense, so with many groups a word of the bitmap holds many of
/// them.
#[derive(Default)]
struct Many(Vec<(NodeId, Bitmap)>);

impl Many {
    /// Inserts a pair. Returns false without memory; the set is then unchanged.
    fn try_insert(&mut self, (node, memcg): Pair) -> bool {
        if !self.0.iter().any(|(there, _)| *there == node)
            && fallible::try_push(&mut self.0, (node, Bitmap::default())).is_err()
        {
            return false;
        }
        self.on(node).is_some_and(|groups| groups.insert(memcg.get()))
    }

    /// Removes a pair. Returns false if it was not there.
    fn remove(&mut self, (node, memcg): Pair) -> bool {
        let Some(groups) = self.on(node).filter(|groups| groups.contains(memcg.get())) else { return false };
        groups.remove(memcg.get());
        true
    }

    fn on(&mut self, node: NodeId) -> Option<&mut Bitmap> {
        self.0.iter_mut().find(|(there, _)| *there == node).map(|(_, groups)| groups)
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, groups)| groups.is_empty())
    }

    /// Returns the first pair after `last`, by index in the list and by id; the first of all for
    /// `None`.
    fn next_after(&self, last: Option<(usize, MemcgId)>) -> Option<(usize, MemcgId)> {
        let (from, mut after) = last.map_or((0, None), |(at, memcg)| (at, Some(memcg.get())));
        (from..self.0.len()).find_map(|at| Some((at, MemcgId::new(self.0[at].1.next_after(after.take())?))))
    }

    fn iter(&self) -> impl Iterator<Item = Pair> + '_ {
        let places = core::iter::successors(self.next_after(None), |last| self.next_after(Some(*last)));
        places.map(|(at, memcg)| (self.0[at].0, memcg))
    }

    fn bytes(&self) -> usize {
        let words: usize = self.0.iter().map(|(_, groups)| groups.bytes()).sum();
        size_of::<Self>() + self.0.capacity() * size_of::<(NodeId, Bitmap)>() + words
    }
}

impl Set {
    /// Inserts a pair. Returns false, without a change, if there is no memory.
    fn try_insert(&mut self, pair: Pair) -> bool {
        match self {
            Self::None => *self = Self::One(pair),
            Self::One(one) if *one == pair => {}
            Self::One(one) => {
                let mut set = Many::default();
                if !set.try_insert(*one) || !set.try_insert(pair) {
                    return false;
                }
                let Some(set) = fallible::try_box(set) else { return false };
                *self = Self::Many(set);
            }
            Self::Many(set) => return set.try_insert(pair),
        }
        true
    }

    /// Removes a pair. Returns false if it was not there.
    fn remove(&mut self, pair: Pair) -> bool {
        match self {
            Self::One(one) if *one == pair => *self = Self::None,
            Self::None | Self::One(_) => return false,
            Self::Many(set) => {
                if !set.remove(pair) {
                    return false;
                }
                if set.is_empty() {
                    *self = Self::None;
                }
            }
        }
        true
    }

    /// Returns true if the set has the group on any node.
    fn has(&self, memcg: MemcgId) -> bool {
        match self {
            Self::None => false,
            Self::One((_, one)) => *one == memcg,
            Self::Many(set) => set.0.iter().any(|(_, groups)| groups.contains(memcg.get())),
        }
    }

    /// Returns the pairs. Allocates nothing.
    fn take(self) -> impl Iterator<Item = Pair> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(pair) => (Some(pair), None),
            Self::Many(set) => (None, Some(set)),
        };
        let mut last = None;
        let many = core::iter::from_fn(move || {
            let set = many.as_ref()?;
            let (at, memcg) = set.next_after(last)?;
            last = Some((at, memcg));
            set.0.get(at).map(|(node, _)| (*node, memcg))
        });
        one.into_iter().chain(many)
    }

    #[cfg(all(test, not(lowwater_loom)))]
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(set) => set.iter().count(),
        }
    }

    #[cfg(all(test, not(lowwater_loom)))]
    fn contains(&self, pair: Pair) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => *one == pair,
            Self::Many(set) => set.iter().any(|there| there == pair),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Many(set) => set.bytes(),
            Self::None | Self::One(_) => 0,
        }
    }
}

impl Index {
    /// Creates an empty index; `None` without memory.
    pub(super) fn try_new() -> Option<Self> {
        let shards = fallible::try_slice(SHARDS, |_| Mutex::new(Shard::default()))?;
        Some(Self { shards, serial: AtomicU64::new(0) })
    }

    /// Locks the shard of an id.
    pub(super) fn lock(&self, id: u32) -> impl DerefMut<Target = Shard> + '_ {
        self.shards[id as usize % SHARDS].lock()
    }

    /// Opens an id for a new owner, whose key is returned; `None` without memory.
    pub(super) fn open(&self, id: u32) -> Option<Key> {
        let mut shard = self.lock(id);
        shard.open.try_reserve(1).ok()?;
        // Relaxed: each number is given once, and the numbers of two calls of which one happens
        // before the other are in that order.
        let serial = self.serial.fetch_add(1, Ordering::Relaxed) + 1;
        let old = shard.open.insert(id, Pairs { serial, set: Set::default() });
        debug_assert!(old.is_none(), "id {id} is given out while it is in use");
        Some(Key { id, serial })
    }

    /// Closes an id and returns its pairs; none is added from here on.
    pub(super) fn close(&self, key: Key) -> impl Iterator<Item = Pair> {
        let mut shard = self.lock(key.id);
        let mut set = Set::None;
        if shard.is_open(key) {
            set = shard.open.remove(&key.id).map(|pairs| pairs.set).unwrap_or_default();
            shrink_after_removal(&mut shard.open);
        }
        set.take()
    }

    /// Returns the current pairs of `id`.
    pub(super) fn pairs(&self, id: u32) -> Vec<Pair> {
        let shard = self.lock(id);
        match shard.open.get(&id).map(|pairs| &pairs.set) {
            None | Some(Set::None) => Vec::new(),
            Some(Set::One(pair)) => [*pair].into(),
            Some(Set::Many(set)) => set.iter().collect(),
        }
    }

    /// Closes all ids and discards their pairs, when the registry is dropped.
    pub(super) fn shut(&self) {
        for shard in &self.shards {
            shard.lock().open = HashMap::default();
        }
    }

    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().open.values().map(|pairs| pairs.set.len()).sum::<usize>()).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        let shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let sets: usize = shard.open.values().map(|pairs| pairs.set.bytes()).sum();
            size_of::<Mutex<Shard>>() + shard.open.allocation_size() + sets
        };
        self.shards.iter().map(shard).sum()
    }
}

impl Shard {
    pub(super) fn is_open(&self, key: Key) -> bool {
        self.open.get(&key.id).is_some_and(|pairs| pairs.serial == key.serial)
    }

    /// Inserts a pair.
    pub(super) fn insert(&mut self, key: Key, node: NodeId, memcg: MemcgId) -> IndexOutcome {
        match self.open.get_mut(&key.id) {
            Some(pairs) if pairs.serial == key.serial => match pairs.set.try_insert((node, memcg)) {
                true => IndexOutcome::Present,
                false => IndexOutcome::NoMemory,
            },
            _ => IndexOutcome::NotOwner,
        }
    }

    /// Removes a pair of the id's current owner, and returns the owner's key; `None` if the pair
    /// was not there.
    pub(super) fn remove(&mut self, id: u32, node: NodeId, memcg: MemcgId) -> Option<Key> {
        let pairs = self.open.get_mut(&id)?;
        pairs.set.remove((node, memcg)).then_some(Key { id, serial: pairs.serial })
    }

    /// Returns true if the shrinker has the group on any node.
    pub(super) fn has(&self, id: u32, memcg: MemcgId) -> bool {
        self.open.get(&id).is_some_and(|pairs| pairs.set.has(memcg))
    }

    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn contains(&self, id: u32, node: NodeId, memcg: MemcgId) -> bool {
        self.open.get(&id).is_some_and(|pairs| pairs.set.contains((node, memcg)))
    }
}
