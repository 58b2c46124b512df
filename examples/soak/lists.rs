//! Lists and shrinkers by hand: items of groups in three generations, and shrinkers that come, hold something, and leave.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use lowwater::{
    linked, ByteSize, Count, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId, Reclaim, Registration, Registry,
    Runtime, Scan, ShrinkControl, Shrinker,
};

use crate::pace::Random;
use crate::Step;

const NODES: u64 = 2;
const NAMES: u64 = 5;

/// Items that exist, on lists or in somebody's hands.
static ALIVE: AtomicI64 = AtomicI64::new(0);

struct Item(Links);

linked!(impl[] for Item { 0, handle: Arc<Item> });

impl Item {
    fn new() -> Arc<Self> {
        // Relaxed: read when nothing moves.
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self(Links::new()))
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        // Relaxed: as above.
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A cache that is nothing but a list.
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
        self.0.get().expect("set when it was made")
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

    /// A group down to three levels below the root, made if need be.
    fn group(&self, random: &mut Random) -> Memcg {
        let mut group = self.tree.root().clone();
        for _ in 0..random.of(4) {
            let name = random.of(NAMES).to_string();
            // It may be ending, or made by another just now: then this one will do.
            match group.child(&name).or_else(|| group.create(&name).ok()) {
                Some(child) => group = child,
                None => break,
            }
        }
        group
    }

    /// Items come, are turned over, and go; groups, too.
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
                        // Reclaim may have been faster.
                        drop(list.del(&item));
                    }
                }
            }
            if mine.len() > 2_000 {
                // The lists keep their own handles: these now go when somebody takes them.
                mine.clear();
            }
            if random.of(5_000) == 0 {
                self.registry.drop_caches();
            }
        })
    }

    /// Shrinkers that register in the runtime beside its cache, hold something for its tenants, and leave.
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
                registration.unregister().map_err(|(why, _)| why).expect("this is no callback");
            }
            for (shelf, _) in &there {
                // Of either tree: a list does not care whose group it is, and only ids of its registry's tree are asked.
                let node = NodeId::new(random.of(NODES) as u16);
                let add = |group: &Memcg| drop(shelf.list().add(Item::new(), group, node));
                if random.of(4) == 0 {
                    add(runtime.root());
                }
            }
        })
    }

    /// All lists hold together, and hold what is alive.
    pub fn check(&self) {
        let list = self.shelf.list();
        list.assert_valid();
        let listed: u64 = (0..NODES).map(|node| list.count_node(NodeId::new(node as u16))).sum();
        // Relaxed: nothing moves but the runtime's reclaimers, which take from others' lists.
        let alive = ALIVE.load(Ordering::Relaxed);
        assert!(alive >= listed as i64, "{listed} items are on the list, and {alive} exist");
        let snapshot = self.registry.snapshot();
        assert!(snapshot.shrinkers.iter().all(|s| s.panics == 0 && s.in_flight == 0), "nobody is inside of a callback");
    }

    /// Takes everything off: all that was listed is found by reclaim (S11), and nothing is left in the map.
    pub fn empty(&self) -> u64 {
        let list = self.shelf.list();
        while self.registry.drop_caches() > 0 {}
        let left: u64 = (0..NODES).map(|node| list.count_node(NodeId::new(node as u16))).sum();
        assert_eq!(left, 0, "items that reclaim does not find");
        // The root is the first.
        for group in self.tree.root().descendants().skip(1).collect::<Vec<_>>().into_iter().rev() {
            group.offline().expect("its children have ended before it");
        }
        while self.registry.sweep() != Default::default() {}
        assert_eq!(list.pairs(), 0, "a list that nobody uses");
        let bytes: [ByteSize; 3] = [self.tree.footprint(), self.registry.footprint(), list.footprint()];
        bytes.iter().map(|bytes| bytes.get()).sum()
    }
}
