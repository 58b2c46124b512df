//! A cache for tests, [`Shelf`], which keeps only a number of objects for each group and node.
//!
//! It behaves like lists: the first object of a group on a node is reported, and a dead group's
//! objects move to its parent, which is reported, too. Tests can replace its results.
//!
//! A change must ensure that it reports as a `ListLru` does.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::mutable_key_type, reason = "a group's handle is hashed and compared by its address")]

use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId, Occupancy, OfflineHook};
use lowwater_shrinker::{Count, Prepared, Registration, Registry, RegistryConfig, Scan, ShrinkControl, Shrinker};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

pub type CountFn = Box<dyn Fn(&ShrinkControl<'_>) -> Option<Count> + Send + Sync>;
pub type WeighFn = Box<dyn Fn(&ShrinkControl<'_>) -> Option<ByteSize> + Send + Sync>;
pub type ScanFn = Box<dyn Fn(&mut ShrinkControl<'_>) -> Option<Scan> + Send + Sync>;

#[derive(Default)]
pub struct Shelf {
    state: Mutex<State>,
    occupancy: OnceLock<Arc<dyn Occupancy>>,
    /// Bytes that are uncharged for each freed object. `add` charges nothing: the test does.
    pub object_bytes: u64,
    /// Calls of `count_objects` and `scan_objects`.
    pub counts: AtomicU64,
    pub scans: AtomicU64,
    /// The largest number of objects that one call was requested to scan.
    pub scanned_most: AtomicU64,
    /// Replacements for the correct results; where one returns `None`, the correct result is used.
    pub count: OnceLock<CountFn>,
    pub scan: OnceLock<ScanFn>,
    pub weigh: OnceLock<WeighFn>,
}

#[derive(Default)]
struct State {
    objects: HashMap<(Memcg, NodeId), u64>,
    dead: HashSet<Memcg>,
}

impl Shelf {
    pub fn new() -> Self {
        Self::default()
    }

    /// A shelf that uncharges this many bytes for each object that it frees.
    pub fn of_bytes(object_bytes: u64) -> Self {
        Self { object_bytes, ..Self::default() }
    }

    /// Registers the shelf.
    pub fn register(self: &Arc<Self>, prepared: Prepared) -> Registration {
        assert!(self.occupancy.set(prepared.occupancy()).is_ok(), "a shelf is registered once");
        prepared.register(Arc::clone(self) as Arc<dyn Shrinker>)
    }

    /// Stores an occupancy without registering the shelf.
    pub fn prepare(&self, prepared: &Prepared) {
        assert!(self.occupancy.set(prepared.occupancy()).is_ok(), "a shelf is registered once");
    }

    /// Lets `tree` notify the shelf of group ends, before registries that are created later: hooks
    /// are called in the order in which they were added.
    pub fn hear_of_deaths(self: &Arc<Self>, tree: &MemcgTree) {
        tree.add_hook(Arc::new(Deaths(Arc::downgrade(self))));
    }

    pub fn add(&self, memcg: &Memcg, node: NodeId, objects: u64) {
        let mut state = self.state.lock().unwrap();
        let mut effective = memcg.clone();
        while state.dead.contains(&effective) {
            effective = effective.parent().unwrap().clone();
        }
        let shelf = state.objects.entry((effective.clone(), node)).or_default();
        let first = *shelf == 0;
        *shelf += objects;
        drop(state);
        if first && objects > 0 {
            if let Some(occupancy) = self.occupancy.get() {
                occupancy.occupied(&effective, node);
            }
        }
    }

    /// Reports objects, whether or not there are any.
    pub fn occupied(&self, memcg: &Memcg, node: NodeId) {
        self.occupancy.get().unwrap().occupied(memcg, node);
    }

    pub fn len(&self, memcg: &Memcg, node: NodeId) -> u64 {
        self.state.lock().unwrap().objects.get(&(memcg.clone(), node)).copied().unwrap_or(0)
    }

    pub fn total(&self) -> u64 {
        self.state.lock().unwrap().objects.values().sum()
    }

    fn reparent(&self, dying: &Memcg, parent: &Memcg) {
        let mut state = self.state.lock().unwrap();
        state.dead.insert(dying.clone());
        let nodes: Vec<_> = state.objects.keys().filter(|(memcg, _)| memcg == dying).map(|(_, node)| *node).collect();
        for node in nodes {
            let objects = state.objects.remove(&(dying.clone(), node)).unwrap_or(0);
            *state.objects.entry((parent.clone(), node)).or_default() += objects;
            if objects > 0 {
                self.occupancy.get().unwrap().occupied(parent, node);
            }
        }
    }
}

impl Shrinker for Shelf {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        self.counts.fetch_add(1, Relaxed);
        if let Some(count) = self.count.get().and_then(|count| count(sc)) {
            return count;
        }
        match self.len(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.scans.fetch_add(1, Relaxed);
        self.scanned_most.fetch_max(sc.nr_to_scan(), Relaxed);
        if let Some(scan) = self.scan.get().and_then(|scan| scan(sc)) {
            return scan;
        }
        let freed = match self.state.lock().unwrap().objects.get_mut(&(sc.memcg().clone(), sc.node())) {
            Some(objects) => {
                let n = sc.nr_to_scan().min(*objects);
                *objects -= n;
                n
            }
            None => 0,
        };
        if self.object_bytes > 0 {
            sc.memcg().uncharge(ByteSize::new(freed * self.object_bytes));
        }
        sc.set_nr_scanned(freed);
        Scan::Freed(freed)
    }

    fn weigh_objects(&self, sc: &ShrinkControl<'_>) -> Option<ByteSize> {
        self.weigh.get().and_then(|weigh| weigh(sc))
    }
}

struct Deaths(Weak<Shelf>);

impl OfflineHook for Deaths {
    fn offline(&self, dying: &Memcg, parent: &Memcg) {
        if let Some(shelf) = self.0.upgrade() {
            shelf.reparent(dying, parent);
        }
    }
}

/// A tree, a registry over one node, and a registered shelf that is notified of group ends.
pub fn one_shelf() -> (MemcgTree, Registry, Arc<Shelf>, Registration) {
    shelf_on(1, Shelf::new())
}

/// As [`one_shelf`], with a registry over `nodes` nodes and with this shelf.
pub fn shelf_on(nodes: usize, shelf: Shelf) -> (MemcgTree, Registry, Arc<Shelf>, Registration) {
    let tree = MemcgTree::new(0);
    let shelf = Arc::new(shelf);
    shelf.hear_of_deaths(&tree);
    // Without a bound in time, since these tests are about objects, and must not fail on a busy
    // machine; and without sweeps, which would do what a notification has failed to do.
    let hour = std::time::Duration::from_secs(3600);
    let config = RegistryConfig::new(nodes).direct_time_max_ns(u64::MAX).sweep_every(hour);
    let registry = Registry::with_config(&tree, config);
    let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
    (tree, registry, shelf, registration)
}
