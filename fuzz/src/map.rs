//! Random sequences of calls on a registry: shrinkers and groups that are created and end, objects,
//! and passes of all kinds.
//!
//! 1. No object is hidden (S11), also when the map grows (S16): `drop_caches` leaves no object of a
//!    registered shrinker, and then no bit in the map.
//! 2. A pass frees exactly as many objects as it reports.
//! 3. The next owner of an id has no deferred objects (S17), and no objects are deferred when all
//!    caches are empty.
//!
//! Numbers such as S11 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that each sequence ends with `drop_all`, which checks properties 1 and 3.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use lowwater_lru_core::{linked, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::{Count, Reclaim, Registration, Registry, Scan, ShrinkControl, Shrinker, Work};

const NODES: u16 = 2;
const GROUPS_MAX: usize = 24;
const SHELVES_MAX: usize = 70; // More than the bits of one word of the map.

struct Item(Links);

linked!(impl[] for Item { 0, handle: Arc<Item> });

/// A cache that consists of one list. A stubborn one refuses to scan until `drop_all`.
struct Shelf {
    list: OnceLock<ListLru<Item>>,
    stubborn: AtomicBool,
}

impl Shelf {
    fn list(&self) -> &ListLru<Item> {
        self.list.get().expect("the list is set at creation")
    }

    fn len(&self) -> u64 {
        (0..NODES).map(|node| self.list().count_node(NodeId::new(node))).sum()
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
        // Relaxed: there is only one thread.
        if self.stubborn.load(Relaxed) {
            return Scan::Stop;
        }
        let (mut gone, mut left) = (Isolated::new(), sc.nr_to_scan());
        let freed = self.list().walk_one(sc.memcg(), sc.node(), &mut left, |it| it.isolate(&mut gone));
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        Scan::Freed(freed)
    }
}

/// Runs the calls that `data` encodes, and panics if a property of the module documentation fails.
pub fn check(data: &[u8]) {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, NODES.into());
    let mut world = World { groups: vec![tree.root().clone()], registry, shelves: Vec::new() };
    let mut feed = data.iter().map(|byte| usize::from(*byte));
    while world.step(&mut feed).is_some() {
        world.compare();
    }
    world.drop_all();
}

struct World {
    groups: Vec<Memcg>,
    registry: Registry,
    shelves: Vec<(Arc<Shelf>, Registration)>,
}

impl World {
    /// Runs one operation; `None` when the input has ended.
    fn step(&mut self, feed: &mut impl Iterator<Item = usize>) -> Option<()> {
        let (op, group) = (feed.next()?, feed.next()? % self.groups.len());
        let group = self.groups[group].clone();
        match op % 10 {
            0 if self.groups.len() < GROUPS_MAX => {
                self.groups.extend(group.create(&self.groups.len().to_string()).ok());
            }
            1 => drop(group.offline()),
            2 if self.shelves.len() < SHELVES_MAX => self.register(feed.next()?),
            3 if !self.shelves.is_empty() => {
                let (_, registration) = self.shelves.swap_remove(feed.next()? % self.shelves.len());
                registration.unregister().map_err(|(why, _)| why).expect("the call is not in a callback");
            }
            4..=6 if !self.shelves.is_empty() => {
                let (shelf, _) = &self.shelves[feed.next()? % self.shelves.len()];
                let node = NodeId::new(feed.next()? as u16 % NODES);
                for _ in 0..feed.next()? {
                    shelf
                        .list()
                        .add(Arc::new(Item(Links::new())), &group, node)
                        .map_err(drop)
                        .expect("memory is available");
                }
            }
            7 => self.pass(&group, feed)?,
            8 => {
                let before = self.len();
                let outcome = self.registry.direct_reclaim(&group, Reclaim::FOREGROUND, &|| false);
                assert_eq!(before - self.len(), outcome.freed, "2");
            }
            9 if feed.next()? % 4 == 0 => self.drop_all(),
            _ => drop(self.registry.sweep()),
        }
        Some(())
    }

    fn register(&mut self, how: usize) {
        let shelf = Arc::new(Shelf { list: OnceLock::new(), stubborn: AtomicBool::new(how.is_multiple_of(5)) });
        let builder = self.registry.builder("shelf").batch(1 + how as u64 % 40).seeks(how as u32 % 9);
        let prepared = builder.alloc().expect("ids are not used up");
        assert!(shelf.list.set(ListLru::with_occupancy(prepared.occupancy())).is_ok());
        let registration = prepared.register(Arc::clone(&shelf) as Arc<dyn Shrinker>);
        self.owes_nothing(&registration);
        self.shelves.push((shelf, registration));
    }

    fn owes_nothing(&self, registration: &Registration) {
        for group in &self.groups {
            for node in (0..NODES).map(NodeId::new) {
                assert_eq!(self.registry.owed(group, node, registration.id()), 0, "3");
            }
        }
    }

    fn pass(&mut self, group: &Memcg, feed: &mut impl Iterator<Item = usize>) -> Option<()> {
        let (node, priority, how) = (NodeId::new(feed.next()? as u16 % NODES), feed.next()? as u8 % 13, feed.next()?);
        let flags = if how & 1 == 0 { Reclaim::KSWAPD } else { Reclaim::FOREGROUND };
        let mut work = if how & 2 == 0 { Work::unlimited() } else { Work::objects(how as u64) };
        let before = self.len();
        let progress = if how & 4 == 0 {
            self.registry.shrink(group, node, priority, flags, &mut work)
        } else {
            self.registry.pay_debts(group, node, &mut work).0
        };
        assert_eq!(before - self.len(), progress.freed, "2");
        Some(())
    }

    fn len(&self) -> u64 {
        self.shelves.iter().map(|(shelf, _)| shelf.len()).sum()
    }

    fn compare(&self) {
        for (shelf, _) in &self.shelves {
            shelf.list().assert_valid();
        }
    }

    fn drop_all(&self) {
        self.shelves.iter().for_each(|(shelf, _)| shelf.stubborn.store(false, Relaxed));
        while self.registry.drop_caches() > 0 {}
        assert_eq!(self.len(), 0, "1: hidden");
        assert_eq!(self.registry.snapshot().live_pairs, 0, "1: a stale bit");
        self.shelves.iter().for_each(|(_, registration)| self.owes_nothing(registration));
    }
}
