//! The life of one object, through public names only, in the order of the picture in
//! docs/DESIGN.md, section 3: charge, list, map; pressure, pass, scan, map again; and the end of
//! its group.
//!
//! It shows how the layers work together below a shrinker that is no cache of this crate. A change
//! of the picture is a change here.

#[path = "common/wait.rs"]
mod wait;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use wait::until;

use lowwater::topology::Fixed;
use lowwater::{
    linked, ByteSize, Count, Isolated, Links, ListLru, Memcg, NodeId, Reclaim, Runtime, Scan, ShrinkControl, Shrinker,
};

/// The bytes of an inode.
const INODE: ByteSize = ByteSize::kib(1);

struct Inode {
    links: Links,
    number: u64,
    /// The group that is charged for it.
    payer: Memcg,
    freed: Arc<Mutex<Vec<u64>>>,
}

linked!(impl[] for Inode { links, handle: Arc<Inode> });

impl Drop for Inode {
    fn drop(&mut self) {
        // First, so that what was uncharged is in the list.
        self.freed.lock().unwrap().push(self.number);
        self.payer.uncharge(INODE);
    }
}

/// An owner of inodes: used ones are elsewhere, unused ones are on its lists.
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

    // The owner: first an id and an occupancy, which its lists need, then the shrinker, which needs
    // the lists.
    let prepared = registry.builder("mount").alloc().unwrap();
    let id = prepared.id();
    let mount = Arc::new(Mount {
        unused: ListLru::with_occupancy(prepared.occupancy()),
        counts: AtomicU64::new(0),
        scans: AtomicU64::new(0),
    });
    let registration = prepared.register(mount.clone());
    let (counts, scans) = (|| mount.counts.load(Relaxed), || mount.scans.load(Relaxed));
    assert_eq!((registry.snapshot().live_pairs, mount.unused.pairs()), (0, 0), "no memory for unused pairs");
    assert_eq!(registry.drop_caches(), 0);
    assert_eq!(counts(), 0, "an empty shrinker is not called");

    // It allocates an object for a group on a node: bytes are charged to the group and its
    // ancestors; the topology reports the node.
    let freed = Arc::new(Mutex::new(Vec::new()));
    let node = runtime.topology().current();
    let allocate = |number: u64, payer: &Memcg| {
        runtime.charge(payer, INODE).unwrap();
        Arc::new(Inode { links: Links::new(), number, payer: payer.clone(), freed: freed.clone() })
    };
    let inode = allocate(1, &group);
    assert_eq!(node, NodeId::new(1));
    assert_eq!((usage(&group), usage(&team), usage(runtime.root())), (INODE, INODE, INODE));

    // Its last user releases it: the object joins the list of its group and node. The list is
    // created now, with the ancestors' lists.
    mount.unused.add(inode.clone(), &group, node).unwrap();
    assert_eq!(mount.unused.pairs(), 3, "the group's, the team's, the root's; no other node's");
    assert_eq!((mount.unused.count_one(&group, node), mount.unused.count_one(&group, NodeId::ZERO)), (1, 0));
    assert_eq!(registry.snapshot().live_pairs, 1, "0 -> 1 set one bit: this group, this node, this shrinker");

    // The object is used again before there is pressure; the bit of its list may stay set in vain.
    assert!(mount.unused.del(&inode).is_some());
    assert_eq!((registry.snapshot().live_pairs, mount.unused.count_one(&group, node)), (1, 0));
    mount.unused.add(inode, &group, node).unwrap();

    // Pressure, first on a thread that may not take the owner's locks: the shrinker's count reports
    // that. No scan starts, and the requested objects become a debt of the background, which pays
    // it without further pressure.
    let careful = Reclaim::FOREGROUND - Reclaim::MAY_FS;
    let outcome = registry.direct_reclaim(&group, careful, &|| false);
    assert_eq!((outcome.freed, outcome.scanned), (0, 0));
    until("the background pays the debt", || scans() > 0 && registry.owed(&group, node, id) == 0);
    until("the requested object is freed", || usage(&group) == ByteSize::ZERO && *freed.lock().unwrap() == [1]);

    // Pressure in the background: a charge comes near the group's limit. The node's thread wakes,
    // passes over live pairs, and evicts.
    group.set_max(ByteSize::kib(16));
    let more: Vec<_> = (2..=17).map(|number| allocate(number, &group)).collect();
    for inode in more {
        mount.unused.add(inode, &group, node).unwrap();
    }
    runtime.reclaimer().charged(&group);
    until("the reclaimer evicts the oldest, until the group is at its watermark", || {
        usage(&group) <= ByteSize::kib(15) && freed.lock().unwrap().contains(&2)
    });

    // The rest is dropped by hand. The list is empty, so its bit is cleared; after that the
    // shrinker is not called any more.
    runtime.drop_caches();
    until("everything is freed", || usage(runtime.root()) == ByteSize::ZERO);
    until("the bit is cleared", || registry.snapshot().live_pairs == 0);
    assert_eq!(registry.owed(&group, node, id), 0, "a debt that nothing could pay is none");
    let before = counts();
    runtime.drop_caches();
    assert_eq!(counts(), before);
    assert_eq!(freed.lock().unwrap().len(), 17);

    // The background pays no debt from here on: the asserts below are about one that is owed.
    registry.set_debt_listener(None);

    // The group ends. Its objects join the parent's list at the cold end, where they are evicted
    // first; the parent's bit is set.
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

    // A late add with the ended group's handle reaches the parent's list.
    mount.unused.add(allocate(102, &group), &group, node).unwrap();
    assert_eq!(mount.unused.count_one(&team, node), 3);

    // The id names the nearest online ancestor until the last object that names the group is gone;
    // then the id is free.
    assert_eq!(runtime.tree().get(group_id), Some(team.clone()));
    drop((group, young));
    freed.lock().unwrap().clear();
    assert_eq!(runtime.drop_caches(), 3);
    assert_eq!(*freed.lock().unwrap(), [101, 100, 102]);
    // (The reclaimer may still have the group in its queue.)
    until("the dead group's id is free", || {
        runtime.tree().drain_stock();
        runtime.tree().get(group_id).is_none()
    });
    assert_eq!(runtime.group("team/next").unwrap().id(), group_id, "and is given out again");

    // The owner is dropped: after this no callback runs.
    drop(registration);
    let before = counts();
    runtime.drop_caches();
    assert_eq!(counts(), before);
    assert_eq!(usage(runtime.root()), ByteSize::ZERO);
    mount.unused.assert_valid();
}
