//! Lists and shrinkers used directly: items of groups in three generations, and shrinkers that
//! register, hold objects, and unregister.
//!
//! Each item counts itself in `ALIVE`: a check fails if more items are listed than are alive. Items
//! that are never freed show as resident memory.
//!
//! Numbers such as S11 are those of docs/INVARIANTS.md.
//!
//! A step that is added must keep `check` true, and a kept item must be counted.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use lowwater::{
    linked, ByteSize, Count, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId, Reclaim, Registration, Registry,
    Runtime, Scan, ShrinkControl, Shrinker,
};

use crate::pace::Random;
use crate::Step;

const NODES: u64 = 2;
/// Names of the children of a group: few, so that workers meet in the same groups.
const NAMES: u64 = 5;

/// The number of live items, on lists or owned elsewhere.
static ALIVE: AtomicI64 = AtomicI64::new(0);

struct Item(Links);

linked!(impl[] for Item { 0, handle: Arc<Item> });

impl Item {
    fn new() -> Arc<Self> {
        // Relaxed: read when all threads stand still.
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self(Links::new()))
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        // Relaxed: read when all threads stand still.
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A cache that consists of one list.
#[derive(Default)]
struct Shelf(OnceLock<ListLru<Item>>);

impl Shelf {
    fn register(registry: &Registry) -> (Arc<Self>, Registration) {
        let shelf = Arc::new(Self::default());
        let prepared = registry.builder("shelf").alloc().expect("ids are not used up");
        assert!(shelf.0.set(ListLru::with_occupancy(prepared.occupancy())).is_ok());
        let registration = prepared.register(Arc::clone(&shelf) as Arc<dyn Shrinker>);
        (shelf, registration)
    }

    fn list(&self) -> &ListLru<Item> {
        self.0.get().expect("the list is set at creation")
    }
}

impl Shrinker for Shelf {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.list().count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut gone = Isolated::new();
        let mut left = sc.nr_to_scan();
        let freed = self.list().walk_one(sc.memcg(), sc.node(), &mut left, |it| it.isolate(&mut gone));
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        Scan::Freed(freed)
    }
}

pub struct Lists {
    tree: MemcgTree,
    registry: Registry,
    shelf: Arc<Shelf>,
    _registration: Registration,
}

impl Lists {
    pub fn new() -> Self {
        let tree = MemcgTree::new(2);
        let registry = Registry::new(&tree, NODES as usize);
        let (shelf, registration) = Shelf::register(&registry);
        Self { tree, registry, shelf, _registration: registration }
    }

    /// Returns a group up to three levels below the root, and creates it if necessary.
    fn group(&self, random: &mut Random) -> Memcg {
        let mut group = self.tree.root().clone();
        for _ in 0..random.of(4) {
            let name = random.of(NAMES).to_string();
            // It may be ending, or another thread has just created it: then use its parent.
            match group.child(&name).or_else(|| group.create(&name).ok()) {
                Some(child) => group = child,
                None => break,
            }
        }
        group
    }

    /// Adds, rotates and removes items; creates and ends groups.
    pub fn items(&self, seed: u64) -> Step<'_> {
        let mut random = Random::new(seed);
        let mut mine = Vec::new();
        Box::new(move || {
            let group = self.group(&mut random);
            let node = NodeId::new(random.of(NODES) as u16);
            let list = self.shelf.list();
            match random.of(10) {
                0..=5 => {
                    let item = Item::new();
                    list.add(Arc::clone(&item), &group, node).map_err(drop).expect("a new item is on no list");
                    mine.push(item);
                }
                6 => {
                    let mut walked = Isolated::new();
                    list.walk_one(&group, node, &mut random.of(20), |it| match random.of(4) {
                        0 => it.isolate(&mut walked),
                        1 => it.rotate(),
                        2 => it.unlock().retry(),
                        _ => it.skip(),
                    });
                }
                7 => drop(self.registry.shrink(
                    &group,
                    node,
                    random.of(8) as u8,
                    Reclaim::KSWAPD,
                    &mut lowwater_shrinker::Work::objects(200),
                )),
                8 if random.of(20) == 0 => drop(group.offline()),
                8 => drop(self.registry.direct_reclaim(&group, Reclaim::FOREGROUND, &|| false)),
                _ => {
                    if !mine.is_empty() {
                        let item = mine.swap_remove(random.of(mine.len() as u64) as usize);
                        // Reclaim may have removed it first.
                        drop(list.del(&item));
                    }
                }
            }
            if mine.len() > 2_000 {
                // The lists have their own handles: the items are dropped when they are removed.
                mine.clear();
            }
            if random.of(5_000) == 0 {
                self.registry.drop_caches();
            }
        })
    }

    /// Registers shrinkers at the runtime's registry and at this one, which hold objects of the
    /// runtime's root group, and ends them.
    pub fn churn<'a>(&'a self, runtime: &'a Runtime) -> Step<'a> {
        let mut random = Random::new(77);
        let mut there: Vec<(Arc<Shelf>, Registration)> = Vec::new();
        Box::new(move || {
            if there.len() < 30 && random.of(2) == 0 {
                let registry = if random.of(2) == 0 { runtime.registry() } else { &self.registry };
                there.push(Shelf::register(registry));
            } else if !there.is_empty() {
                let (shelf, registration) = there.swap_remove(random.of(there.len() as u64) as usize);
                shelf.list().assert_valid();
                registration.unregister().map_err(|(why, _)| why).expect("the call is not in a callback");
            }
            for (shelf, _) in &there {
                // Also for the shrinkers of the other registry: a list accepts groups of any tree,
                // and a registry uses only the ids of its own tree.
                let node = NodeId::new(random.of(NODES) as u16);
                let add = |group: &Memcg| drop(shelf.list().add(Item::new(), group, node));
                if random.of(4) == 0 {
                    add(runtime.root());
                }
            }
        })
    }

    /// Checks that the list is consistent, and has no more items than are alive.
    pub fn check(&self) {
        let list = self.shelf.list();
        list.assert_valid();
        let listed: u64 = (0..NODES).map(|node| list.count_node(NodeId::new(node as u16))).sum();
        // Relaxed: only the runtime's reclaimers run, which remove items of other lists.
        let alive = ALIVE.load(Ordering::Relaxed);
        assert!(alive >= listed as i64, "{listed} items are on the list, and {alive} exist");
        let snapshot = self.registry.snapshot();
        assert!(
            snapshot.shrinkers.iter().all(|s| s.panics == 0 && s.in_flight == 0),
            "no thread is inside of a callback"
        );
    }

    /// Empties the lists: reclaim must find all listed items (S11). Returns the remaining bytes of
    /// the structures.
    pub fn empty(&self) -> u64 {
        let list = self.shelf.list();
        while self.registry.drop_caches() > 0 {}
        let left: u64 = (0..NODES).map(|node| list.count_node(NodeId::new(node as u16))).sum();
        assert_eq!(left, 0, "items that reclaim does not find");
        // The first group is the root.
        for group in self.tree.root().descendants().skip(1).collect::<Vec<_>>().into_iter().rev() {
            group.offline().expect("its children have ended before it");
        }
        while self.registry.sweep() != Default::default() {}
        assert_eq!(list.pairs(), 0, "an unused list");
        let bytes: [ByteSize; 3] = [self.tree.footprint(), self.registry.footprint(), list.footprint()];
        bytes.iter().map(|bytes| bytes.get()).sum()
    }
}
