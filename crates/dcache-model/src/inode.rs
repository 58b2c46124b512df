//! Inodes of positive dentries. An inode stays cached for a while after its last dentry left the
//! cache.
//!
//! Inodes are found by number, in one of [`SHARDS`] maps. Lock order: a dentry's `d_lock`, the
//! map's lock, the list's lock; a walk of the list only *tries* the map's lock.
//!
//! A map shrinks when most of its inodes were removed, so that a walk over millions of files leaves
//! no large empty maps.
//!
//! A change must ensure that the user count of an inode changes only under its map's lock, so that
//! a count of 0 does not change while a thread holds that lock, and must keep the lock order.

use crate::kind::Kind;
use lowwater_base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use lowwater_base::sync::{Arc, Mutex};
use lowwater_lru_core::{linked, AddError, Isolated, Links, ListLru, Memcg, NodeId};
use std::collections::HashMap;

/// An inode.
#[doc(alias = "struct inode")]
pub(crate) struct Inode {
    lru: Links,
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// Dentries that refer to the inode, and calls that use it. Protected by the map's lock.
    users: AtomicU32,
    /// The inode was used again since it was added to the list, or since the last scan. Protected
    /// by the map's lock.
    referenced: AtomicBool,
    /// A name of the inode was removed, perhaps not the last: the last put frees the inode, and the
    /// next [`get`](Inodes::get) of its number makes a new one.
    unlinked: AtomicBool,
    /// The group and node on whose list the inode is.
    memcg: Memcg,
    node: NodeId,
}

linked!(impl[] for Inode { lru, handle: Arc<Inode> });

/// The number of maps of a mount.
const SHARDS: u64 = if cfg!(lowwater_loom) { 1 } else { 16 };

/// A map of `n` inodes shrinks when it has room for more than `SPARE_FACTOR * n + SPARE_MIN`.
const SPARE_FACTOR: usize = 8;
const SPARE_MIN: usize = 64;

type Map = HashMap<u64, Arc<Inode>>;

/// The inodes of a mount.
pub(crate) struct Inodes {
    maps: Box<[Mutex<Map>]>,
    /// Cached inodes: those without users, and some that are in use again.
    pub(crate) lru: ListLru<Inode>,
}

impl Inodes {
    pub(crate) fn new(lru: ListLru<Inode>) -> Self {
        Self { maps: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect(), lru }
    }

    /// Returns the inode with this number, with one more user; allocates it if it is not cached.
    #[doc(alias = "iget_locked")]
    pub(crate) fn get(&self, number: u64, kind: Kind, memcg: &Memcg, node: NodeId) -> Arc<Inode> {
        let mut map = self.map(number).lock();
        let new = || {
            Arc::new(Inode {
                lru: Links::new(),
                number,
                kind,
                users: AtomicU32::new(0),
                referenced: AtomicBool::new(false),
                unlinked: AtomicBool::new(false),
                memcg: memcg.clone(),
                node,
            })
        };
        let inode = map.entry(number).or_insert_with(new);
        // A backend may reuse a number while the old inode is still in use: an unlinked inode, or
        // one of another kind, is stale. Relaxed: ordered by the map's lock; see `unlink`.
        if inode.unlinked.load(Ordering::Relaxed) || inode.kind != kind {
            *inode = new();
        }
        // Relaxed: the map's lock is held.
        inode.users.fetch_add(1, Ordering::Relaxed);
        Arc::clone(inode)
    }

    /// Removes a user. The last put adds the inode to the LRU list, or frees it if it was
    /// [unlinked](Self::unlink).
    #[doc(alias = "iput")]
    pub(crate) fn put(&self, inode: Arc<Inode>) {
        let mut map = self.map(inode.number).lock();
        // Relaxed: the map's lock is held.
        if inode.users.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        // Relaxed: ordered by the map's lock; see `unlink`.
        if inode.unlinked.load(Ordering::Relaxed) {
            let listed = self.lru.del(&inode);
            remove_from_map(&mut map, &inode);
            drop(map);
            drop(listed);
            return;
        }
        match self.lru.add(Arc::clone(&inode), &inode.memcg, inode.node) {
            Ok(()) => {}
            // Relaxed: the map's lock is held.
            Err(AddError::Linked(_)) => inode.referenced.store(true, Ordering::Relaxed),
            // No scan would find an inode that is on no list.
            Err(refused) => {
                remove_from_map(&mut map, &inode);
                drop(map);
                drop(refused);
            }
        }
    }

    /// Marks an inode after the removal of one of its names.
    pub(crate) fn unlink(&self, inode: &Inode) {
        // Relaxed: `put` reads it under the map's lock, which the caller acquires and releases in
        // its own `put` later.
        inode.unlinked.store(true, Ordering::Relaxed);
    }

    /// Scans up to `nr_to_scan` of the oldest inodes of a memcg on a node, and frees those that are
    /// unused and were not used since the last scan. Returns how many were scanned, and how many
    /// were freed.
    #[doc(alias = "prune_icache_sb")]
    pub(crate) fn scan(&self, memcg: &Memcg, node: NodeId, nr_to_scan: u64) -> (u64, u64) {
        let mut left = nr_to_scan;
        let mut old = Isolated::new();
        self.lru.walk_one(memcg, node, &mut left, |it| {
            let inode = it.item();
            let Some(map) = self.map(inode.number).try_lock() else { return it.skip() };
            // Relaxed, for both: the map's lock is held.
            if inode.users.load(Ordering::Relaxed) == 0 && inode.referenced.swap(false, Ordering::Relaxed) {
                drop(map);
                return it.rotate();
            }
            // An inode in use is isolated, too: its last `put` adds it to the list again. The map's
            // lock is held until the inode is off the list, so that `put` does not find it half
            // removed.
            let verdict = it.isolate(&mut old);
            drop(map);
            verdict
        });
        let mut freed = 0;
        for inode in old {
            let mut map = self.map(inode.number).lock();
            // Relaxed: the map's lock is held.
            if inode.users.load(Ordering::Relaxed) == 0 {
                // The inode may have been used and put between the walk and this point, and be on
                // the list again.
                let listed = self.lru.del(&inode);
                remove_from_map(&mut map, &inode);
                drop(map);
                drop(listed);
                freed += 1;
            }
        }
        (nr_to_scan - left, freed)
    }

    pub(crate) fn len(&self) -> usize {
        self.maps.iter().map(|map| map.lock().len()).sum()
    }

    /// Returns the bytes of the maps, without the inodes.
    pub(crate) fn footprint(&self) -> usize {
        self.maps.iter().map(|map| map_bytes(&map.lock())).sum::<usize>() + size_of_val(&*self.maps)
    }

    fn map(&self, number: u64) -> &Mutex<Map> {
        &self.maps[(number % SHARDS) as usize]
    }
}

fn remove_from_map(map: &mut Map, inode: &Arc<Inode>) {
    if map.get(&inode.number).is_some_and(|there| Arc::ptr_eq(there, inode)) {
        map.remove(&inode.number);
        shrink_map(map);
    }
}

/// Replaces a map with much unused room by one with room for twice its inodes. Between two
/// replacements the number of inodes halves or doubles, so the amortized cost of a removal is O(1).
fn shrink_map(map: &mut Map) {
    if map.capacity() <= SPARE_MIN + SPARE_FACTOR * map.len() {
        return;
    }
    let mut small = Map::new();
    // Reclaim removes inodes while memory is short: if the allocation fails, the map stays.
    if small.try_reserve(2 * map.len()).is_ok() {
        small.extend(map.drain());
        *map = small;
    }
}

/// Returns the bytes of a map, without its inodes: a power of two of slots, at most 7 of 8 in use,
/// and a byte for each slot. Rounded up, because a capacity omits the slots of some removed inodes.
fn map_bytes(map: &Map) -> usize {
    match map.capacity() {
        0 => 0,
        capacity => (capacity * 8 / 7).next_power_of_two() * (size_of::<(u64, Arc<Inode>)>() + 1),
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use allocation_counter::measure;
    use lowwater_lru_core::MemcgTree;
    use std::ops::Range;

    const INODES: u64 = 100_000;

    fn fill(inodes: &Inodes, tree: &MemcgTree, numbers: Range<u64>) {
        numbers.for_each(|n| inodes.put(inodes.get(n, Kind::File, tree.root(), NodeId::ZERO)));
        assert_eq!(inodes.len() as u64, INODES);
    }

    #[test]
    fn the_maps_shrink_with_their_inodes_at_a_bounded_cost() {
        let (inodes, tree) = (Inodes::new(ListLru::new()), MemcgTree::new(1));
        let mut allocations = 0;
        let left = measure(|| {
            fill(&inodes, &tree, 0..INODES);
            let scans = measure(|| while inodes.scan(tree.root(), NodeId::ZERO, 1000).1 > 0 {});
            allocations = scans.count_total;
        });
        assert_eq!(inodes.len(), 0);
        assert!(left.bytes_current < 64 << 10, "{} bytes for no inode", left.bytes_current);
        // Each time a map shrinks its length has halved, from 6,250 inodes to 8 or less.
        assert!(allocations <= SHARDS * 10, "{allocations} allocations");
    }

    #[test]
    fn the_footprint_is_what_was_allocated() {
        let (inodes, tree) = (Inodes::new(ListLru::new()), MemcgTree::new(1));
        let inode = inodes.get(0, Kind::File, tree.root(), NodeId::ZERO);
        let (mut map, mut allocated) = (Map::new(), 0);
        assert_eq!(map_bytes(&map), 0);
        for n in 0..10_000 {
            allocated += measure(|| _ = map.insert(n, Arc::clone(&inode))).bytes_current;
            // The slots are aligned, and the bytes of the first 16 are repeated.
            assert!((0..=32).contains(&(allocated - map_bytes(&map) as i64)), "{allocated} for {n}");
        }
        for n in 0..10_000 {
            allocated += measure(|| {
                map.remove(&n);
                shrink_map(&mut map);
            })
            .bytes_current;
            assert!((0..=32).contains(&(allocated - map_bytes(&map) as i64)), "{allocated} for {n}");
        }
        assert!(inodes.footprint() > 0 && inodes.footprint() < 4096);
    }

    #[test]
    fn a_map_that_is_filled_and_emptied_in_part_stays() {
        let (inodes, tree) = (Inodes::new(ListLru::new()), MemcgTree::new(1));
        fill(&inodes, &tree, 0..INODES);
        for n in 2..5 {
            let scan = measure(|| _ = inodes.scan(tree.root(), NodeId::ZERO, INODES / 2));
            assert_eq!((inodes.len() as u64, scan.count_total), (INODES / 2, 0));
            fill(&inodes, &tree, n * INODES / 2..(n + 1) * INODES / 2);
        }
    }
}
