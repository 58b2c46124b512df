//! One object's life, through public names only, in the order of the picture in docs/DESIGN.md:
//!
//! charge, topology, list, table, lock, occupancy, map; pressure, reclaimer, pass, budget, deferred, shrink, walk, isolate, map
//! again; and what becomes of all that when its group dies.

#[path = "common/wait.rs"]
mod wait;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use wait::until;

use lowwater::topology::Fixed;
use lowwater::{
    linked, ByteSize, Count, Isolated, Links, ListLru, Memcg, NodeId, Reclaim, Runtime, Scan, ShrinkControl, Shrinker,
};

/// What an inode costs its group.
const INODE: ByteSize = ByteSize::kib(1);

struct Inode {
    links: Links,
    number: u64,
    /// The group that pays for it.
    payer: Memcg,
    freed: Arc<Mutex<Vec<u64>>>,
}

linked!(impl[] for Inode { links, handle: Arc<Inode> });

impl Drop for Inode {
    fn drop(&mut self) {
        self.payer.uncharge(INODE);
        self.freed.lock().unwrap().push(self.number);
    }
}

/// An owner of inodes: those in use are elsewhere, those that nobody uses are on its lists.
struct Mount {
    unused: ListLru<Inode>,
    counts: AtomicU64,
    scans: AtomicU64,
}

impl Shrinker for Mount {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        self.counts.fetch_add(1, Relaxed);
        if !sc.flags().contains(Reclaim::MAY_FS) {
            sc.will_defer();
        }
        match self.unused.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.scans.fetch_add(1, Relaxed);
        let mut dispose = Isolated::new();
        let mut left = sc.nr_to_scan();
        let freed = self.unused.walk_one(sc.memcg(), sc.node(), &mut left, |it| it.isolate(&mut dispose));
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        drop(dispose); // Here, where the list's lock is not held any more.
        Scan::Freed(freed)
    }
}

#[test]
fn the_life_of_an_object() {
    let topology = Arc::new(Fixed::new(2));
    topology.set_current(NodeId::new(1));
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).topology(topology.clone()).build().unwrap();
    let registry = runtime.registry().clone();
    let (team, group) = (runtime.group("team").unwrap(), runtime.group("team/web").unwrap());
    let usage = |group: &Memcg| {
        runtime.tree().drain_stock();
        group.usage()
    };

    // The owner: first an id and an occupancy, which its lists need, then the shrinker, which needs the lists.
    let prepared = registry.builder("mount").alloc().unwrap();
    let id = prepared.id();
    let mount = Arc::new(Mount {
        unused: ListLru::with_occupancy(prepared.occupancy()),
        counts: AtomicU64::new(0),
        scans: AtomicU64::new(0),
    });
    let registration = prepared.register(mount.clone());
    let (counts, scans) = (|| mount.counts.load(Relaxed), || mount.scans.load(Relaxed));
    assert_eq!((registry.snapshot().live_pairs, mount.unused.pairs()), (0, 0), "nothing is kept for what is not used");
    assert_eq!(registry.drop_caches(), 0);
    assert_eq!(counts(), 0, "who holds nothing is not asked");

    // It allocates an object for a group on a node: bytes are counted up the chain; the node is asked, not guessed.
    let freed = Arc::new(Mutex::new(Vec::new()));
    let node = runtime.topology().current();
    let allocate = |number: u64, payer: &Memcg| {
        runtime.charge(payer, INODE).unwrap();
        Arc::new(Inode { links: Links::new(), number, payer: payer.clone(), freed: freed.clone() })
    };
    let inode = allocate(1, &group);
    assert_eq!(node, NodeId::new(1));
    assert_eq!((usage(&group), usage(&team), usage(runtime.root())), (INODE, INODE, INODE));

    // Its last user lets go: it goes to the list of its group on its node, which is made now, with its ancestors'.
    mount.unused.add(inode.clone(), &group, node).unwrap();
    assert_eq!(mount.unused.pairs(), 3, "the group's, the team's, the root's; no other node's");
    assert_eq!((mount.unused.count_one(&group, node), mount.unused.count_one(&group, NodeId::ZERO)), (1, 0));
    assert_eq!(registry.snapshot().live_pairs, 1, "0 -> 1 set one bit: this group, this node, this shrinker");

    // Somebody uses it again before pressure comes; the bit may stay in vain.
    assert!(mount.unused.del(&inode).is_some());
    assert_eq!((registry.snapshot().live_pairs, mount.unused.count_one(&group, node)), (1, 0));
    mount.unused.add(inode, &group, node).unwrap();

    // Pressure, first on a thread that may not take the owner's locks: the shrinker says so when it counts. No scan is started,
    // and what was asked for is left as a debt for the background, which pays it though nothing else presses.
    let careful = Reclaim::FOREGROUND - Reclaim::MAY_FS;
    let outcome = registry.direct_reclaim(&group, careful, &|| false);
    assert_eq!((outcome.freed, outcome.scanned), (0, 0));
    until("the background pays what it was told of", || scans() > 0 && registry.owed(&group, node, id) == 0);
    until("the object that was asked for is freed", || *freed.lock().unwrap() == [1]);

    // Pressure in the background: a charge comes near the group's limit. The node's thread wakes, passes over what is live, and pays.
    group.set_max(ByteSize::kib(16));
    let more: Vec<_> = (2..=16).map(|number| allocate(number, &group)).collect();
    for inode in more {
        mount.unused.add(inode, &group, node).unwrap();
    }
    runtime.reclaimer().charged(&group);
    until("the reclaimer brings the group below its watermark", || usage(&group) < ByteSize::kib(16));
    assert_eq!(freed.lock().unwrap()[0], 1, "the oldest goes first");
    assert!(scans() > 0);

    // All the rest, by hand. The list is empty, so the bit goes; after that nobody is asked any more.
    runtime.drop_caches();
    until("everything is freed", || usage(runtime.root()) == ByteSize::ZERO);
    until("the bit is cleared", || registry.snapshot().live_pairs == 0);
    assert_eq!(registry.owed(&group, node, id), 0, "a debt that nothing could pay is none");
    let before = counts();
    runtime.drop_caches();
    assert_eq!(counts(), before);
    assert_eq!(freed.lock().unwrap().len(), 16);

    // The group dies. Its objects join the parent's list, at its cold end; the parent's bit is set.
    let (old, young) = (allocate(100, &team), allocate(101, &group));
    mount.unused.add(old, &team, node).unwrap();
    mount.unused.add(young.clone(), &group, node).unwrap();
    registry.direct_reclaim(&group, careful, &|| false);
    assert!(registry.owed(&group, node, id) > 0);
    let group_id = group.id();
    runtime.end_group(&group).unwrap();
    assert_eq!((mount.unused.count_one(&group, node), mount.unused.count_one(&team, node)), (0, 2));
    assert_eq!(registry.snapshot().live_pairs, 1, "the team's; nothing is kept for the dead");
    assert!(registry.owed(&team, node, id) > 0, "its debts join the parent's");

    // A late add with the dead group's handle finds the parent's list.
    mount.unused.add(allocate(102, &group), &group, node).unwrap();
    assert_eq!(mount.unused.count_one(&team, node), 3);

    // The id names the nearest living ancestor until the last object that names the group is gone; then it is free.
    assert_eq!(runtime.tree().get(group_id), Some(team.clone()));
    drop((group, young));
    freed.lock().unwrap().clear();
    assert_eq!(runtime.drop_caches(), 3);
    assert_eq!(*freed.lock().unwrap(), [101, 100, 102]);
    // (The reclaimer may still have it on its list of groups to look at.)
    until("the dead group's id is free", || {
        runtime.tree().drain_stock();
        runtime.tree().get(group_id).is_none()
    });
    assert_eq!(runtime.group("team/next").unwrap().id(), group_id, "and is given out again");

    // The owner goes: after this no callback comes.
    drop(registration);
    let before = counts();
    runtime.drop_caches();
    assert_eq!(counts(), before);
    assert_eq!(usage(runtime.root()), ByteSize::ZERO);
    mount.unused.assert_valid();
}
