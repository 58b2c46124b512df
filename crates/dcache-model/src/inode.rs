//! Inodes: what positive dentries stand for, kept a while after their last name left the cache.
//!
//! An inode is found by its number, in one of a few maps. Its user count changes under that map's lock, so that "nobody uses it"
//! stands still while one holds it. Lock order: a dentry's, the map's, the list's; a walk of the list only *tries* the map's.

use crate::kind::Kind;
use lowwater_base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use lowwater_base::sync::{Arc, Mutex};
use lowwater_lru_core::{linked, Isolated, Links, ListLru, Memcg, NodeId};
use std::collections::HashMap;

/// An inode.
#[doc(alias = "struct inode")]
pub(crate) struct Inode {
    lru: Links,
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// Dentries that stand for it, and calls that use it. Under the map's lock.
    users: AtomicU32,
    /// Used again since it was put on the list.
    referenced: AtomicBool,
    /// Its last name was removed: it goes with its last user.
    unlinked: AtomicBool,
    memcg: Memcg,
    node: NodeId,
}

linked!(impl[] for Inode { lru, handle: Arc<Inode> });

const SHARDS: u64 = if cfg!(lowwater_loom) { 1 } else { 16 };

type Map = HashMap<u64, Arc<Inode>>;

/// The inodes of a mount.
pub(crate) struct Inodes {
    maps: Box<[Mutex<Map>]>,
    pub(crate) lru: ListLru<Inode>,
}

impl Inodes {
    pub(crate) fn new(lru: ListLru<Inode>) -> Self {
        Self { maps: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect(), lru }
    }

    /// The inode of this number, with one more user.
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
        // Relaxed: a number may be given again while somebody still uses what had it. The kind tells a stale one, too.
        if inode.unlinked.load(Ordering::Relaxed) || inode.kind != kind {
            *inode = new();
        }
        // Relaxed: the map's lock is held.
        inode.users.fetch_add(1, Ordering::Relaxed);
        Arc::clone(inode)
    }

    /// One user less. The last one leaves it on the list, or frees it if it has no name any more.
    #[doc(alias = "iput")]
    pub(crate) fn put(&self, inode: Arc<Inode>) {
        let mut map = self.map(inode.number).lock();
        // Relaxed: the map's lock is held.
        if inode.users.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        // Relaxed: as above.
        if inode.unlinked.load(Ordering::Relaxed) {
            let listed = self.lru.del(&inode);
            remove_from_map(&mut map, &inode);
            drop(map);
            drop(listed);
        } else if self.lru.add(Arc::clone(&inode), &inode.memcg, inode.node).is_err() {
            // It was still on the list. Relaxed: as above.
            inode.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Its last name is gone.
    pub(crate) fn unlink(&self, inode: &Inode) {
        // Relaxed: read by `put`, under a lock that the caller takes and gives back in its own `put` later.
        inode.unlinked.store(true, Ordering::Relaxed);
    }

    /// Gives up to `nr_to_scan` of a group's oldest a look, and frees those that nobody used since the last. What was scanned, and
    /// freed.
    #[doc(alias = "prune_icache_sb")]
    pub(crate) fn scan(&self, memcg: &Memcg, node: NodeId, nr_to_scan: u64) -> (u64, u64) {
        let mut left = nr_to_scan;
        let mut old = Isolated::new();
        self.lru.walk_one(memcg, node, &mut left, |it| {
            let inode = it.item();
            let Some(map) = self.map(inode.number).try_lock() else { return it.skip() };
            // Relaxed, all: the map's lock is held.
            if inode.users.load(Ordering::Relaxed) == 0 && inode.referenced.swap(false, Ordering::Relaxed) {
                drop(map);
                return it.rotate();
            }
            // In use, it comes back with its last `put`, which must not find it half on the list.
            let verdict = it.isolate(&mut old);
            drop(map);
            verdict
        });
        let mut freed = 0;
        for inode in old {
            let mut map = self.map(inode.number).lock();
            // Relaxed: the map's lock is held.
            if inode.users.load(Ordering::Relaxed) == 0 {
                // Between the walk and here it may have been used and put again: then it is on the list once more.
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

    fn map(&self, number: u64) -> &Mutex<Map> {
        &self.maps[(number % SHARDS) as usize]
    }
}

fn remove_from_map(map: &mut Map, inode: &Arc<Inode>) {
    if map.get(&inode.number).is_some_and(|there| Arc::ptr_eq(there, inode)) {
        map.remove(&inode.number);
    }
}
