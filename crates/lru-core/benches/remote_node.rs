//! The cost of an object on a remote node: an add and a removal, and a walk, on the processors of
//! the first node, with objects allocated on that node and on the others. `ci/vm.sh numa` also runs
//! it in guests, where all memory is equally near: there it shows only that it runs. On a machine
//! with one node it prints that there is nothing to compare.
//!
//! It decides whether lists per node pay; no other bench needs several nodes.

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("remote_node: this system does not tell its nodes");
}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::hint::black_box;
    use std::time::Instant;

    use lowwater_lru_core::topology::{Sysfs, Topology};
    use lowwater_lru_core::{linked, Links, ListLru, MemcgTree, NodeId};
    use rustix::thread::{sched_setaffinity, CpuSet};

    /// 25.6 MB of objects: more than most processors' caches hold.
    const OBJECTS: usize = 200_000;
    /// The best round is printed.
    const ROUNDS: usize = 5;

    struct Object {
        links: Links,
        /// Two cache lines with the links. Written at once, so that the memory is allocated on the
        /// node to which the thread is bound.
        _rest: [u64; 13],
    }

    linked!(impl[] for Object { links, handle: Box<Object> });

    pub(super) fn main() {
        let Ok(topology) = Sysfs::detect() else {
            return println!("remote_node: this system does not tell its nodes");
        };
        let here = NodeId::ZERO;
        println!("| objects on node | distance | add and removal, ns | walk, ns an object |");
        println!("|---|---|---|---|");
        for node in (0..topology.nodes() as u16).map(NodeId::new) {
            let (pair, walk) = (0..ROUNDS)
                .map(|_| round(&topology, here, node))
                .fold((f64::MAX, f64::MAX), |best, now| (best.0.min(now.0), best.1.min(now.1)));
            println!("| {node} | {} | {pair:.1} | {walk:.1} |", topology.distance(here, node));
        }
        if topology.nodes() == 1 {
            println!("remote_node: this machine has one node, so nothing is remote");
        }
    }

    /// Returns the nanoseconds of an add and a removal, and of a visit in a walk.
    fn round(topology: &Sysfs, here: NodeId, node: NodeId) -> (f64, f64) {
        bind(topology, node);
        let objects: Vec<Box<Object>> =
            (0..OBJECTS as u64).map(|i| Box::new(Object { links: Links::new(), _rest: [i; 13] })).collect();
        bind(topology, here);
        let tree = MemcgTree::new(0);
        let (group, lists) = (tree.root(), ListLru::<Object>::new());
        let begin = Instant::now();
        for object in objects {
            lists.add(black_box(object), group, node).expect("the object is on no list, and memory is available");
        }
        let added = begin.elapsed();
        let begin = Instant::now();
        lists.walk_one(group, node, &mut (OBJECTS as u64), |it| it.rotate());
        let walked = begin.elapsed();
        let begin = Instant::now();
        let mut gone = lowwater_lru_core::Isolated::new();
        lists.walk_one(group, node, &mut (OBJECTS as u64), |it| it.isolate(&mut gone));
        let deleted = begin.elapsed();
        drop(gone);
        let each = |time: std::time::Duration| time.as_nanos() as f64 / OBJECTS as f64;
        (each(added + deleted), each(walked))
    }

    fn bind(topology: &Sysfs, node: NodeId) {
        let mut cpus = CpuSet::new();
        topology.cpus_of(node).iter().for_each(|cpu| cpus.set(*cpu));
        // A memory-only node, or one that this process may not use: then the location of the
        // objects is unspecified.
        let _not_allowed = sched_setaffinity(None, &cpus);
    }
}
