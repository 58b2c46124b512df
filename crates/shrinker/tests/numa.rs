//! This machine's real nodes: where objects are allocated, which node is reclaimed, and whether
//! memory returns to that node.
//!
//! `ci/vm.sh` runs this in guests with 1, 2 and 4 nodes. A test must pass, with a message, where
//! the machine has too few nodes or no `/sys/devices/system/node`.
#![cfg(all(target_os = "linux", feature = "std", not(lowwater_loom)))]

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lowwater_lru_core::topology::{Sysfs, Topology};
use lowwater_lru_core::{linked, ByteSize, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::Watermarks;
use lowwater_shrinker::{
    Count, Reclaim, Reclaimer, Registration, Registry, RegistryConfig, Scan, ShrinkControl, Shrinker, Work,
};
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

/// One object's memory: more than 32 MiB, the size from which glibc always maps memory and unmaps
/// it at once.
const OBJECT: usize = 33 << 20;
/// Objects on each node.
const OBJECTS: u64 = 2;
/// The memory that the tests' own threads may allocate or free meanwhile; less than an object, so
/// that a missing object is noticed.
const SLACK: u64 = 12 << 20;

struct Object {
    links: Links,
    memory: Vec<u8>,
}

linked!(impl[] for Object { links, handle: Box<Object> });

/// A cache of these objects.
struct Cache(ListLru<Object>);

impl Shrinker for Cache {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.0.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut left = sc.nr_to_scan();
        let mut old = Isolated::new();
        let freed = self.0.walk_one(sc.memcg(), sc.node(), &mut left, |it| it.isolate(&mut old));
        for object in old {
            sc.memcg().uncharge(ByteSize::new(object.memory.len() as u64));
        }
        Scan::Freed(freed)
    }
}

/// Memory is per process, so the tests run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

struct World {
    topology: Arc<Sysfs>,
    tree: MemcgTree,
    registry: Registry,
    cache: Arc<Cache>,
    _registration: Registration,
}

/// `None` if there is no `/sys/devices/system/node`.
fn world() -> Option<World> {
    let Ok(topology) = Sysfs::detect() else {
        println!("skipped: this system does not tell its nodes");
        return None;
    };
    let topology = Arc::new(topology);
    let tree = MemcgTree::new(0);
    let registry = Registry::with_config(&tree, RegistryConfig::with_topology(topology.clone()));
    let prepared = registry.builder("objects").alloc().unwrap();
    let cache = Arc::new(Cache(ListLru::with_occupancy(prepared.occupancy())));
    let _registration = prepared.register(cache.clone());
    Some(World { topology, tree, registry, cache, _registration })
}

impl World {
    fn nodes(&self) -> impl Iterator<Item = NodeId> {
        (0..self.topology.nodes() as u16).map(NodeId::new)
    }

    /// The nodes that have memory, and processors that this process may use.
    fn own_nodes(&self) -> Vec<NodeId> {
        self.nodes().filter(|node| self.on(*node, || self.topology.current() == *node).unwrap_or(false)).collect()
    }

    /// Runs `run` on a thread that is bound to the node's processors; `None` if this process may
    /// use none of them.
    fn on<R: Send>(&self, node: NodeId, run: impl FnOnce() -> R + Send) -> Option<R> {
        let mut cpus = CpuSet::new();
        // None where the kernel has more processors than a `CpuSet`.
        let allowed = sched_getaffinity(None).ok();
        let is_allowed = |cpu: &&usize| allowed.as_ref().is_none_or(|allowed| allowed.is_set(**cpu));
        self.topology.cpus_of(node).iter().filter(is_allowed).for_each(|cpu| cpus.set(*cpu));
        std::thread::scope(|scope| {
            let bound = scope.spawn(|| (cpus.count() > 0 && sched_setaffinity(None, &cpus).is_ok()).then(run));
            bound.join().unwrap()
        })
    }

    /// Allocates objects on a thread that is bound to the node, and adds them to the list of the
    /// node on which the thread then runs.
    fn fill(&self, memcg: &Memcg, node: NodeId) {
        self.on(node, || {
            for _ in 0..OBJECTS {
                memcg.try_charge(ByteSize::new(OBJECT as u64)).map(drop).unwrap();
                let object = Box::new(Object { links: Links::new(), memory: black_box(vec![1; OBJECT]) });
                self.cache.0.add(object, memcg, self.topology.current()).unwrap();
            }
        });
    }

    /// Bytes of this process on a node. The total of the node would include other processes, which
    /// allocate and free all the time.
    fn used(&self, node: NodeId) -> u64 {
        let on_node = format!("N{}=", self.topology.os_node(node));
        let number = |line: &str, name: &str| -> u64 {
            line.split_whitespace().find_map(|field| field.strip_prefix(name)).map_or(0, |n| n.parse().unwrap())
        };
        let text = fs::read_to_string("/proc/self/numa_maps").unwrap();
        text.lines().map(|line| number(line, &on_node) * (number(line, "kernelpagesize_kB=") << 10)).sum()
    }

    /// Waits until the usage on the node is `wanted`, within the slack.
    fn wait_used(&self, what: &str, node: NodeId, wanted: u64) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.used(node).abs_diff(wanted) > SLACK {
            assert!(Instant::now() < end, "{what}: node {node} uses {} bytes and not about {wanted}", self.used(node));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Prints a line that `ci/vm.sh` counts: a change of the text, or of the number of such lines, must
/// be made there, too.
fn said(what: &str, nodes: usize) {
    println!("numa: {what} on {nodes} nodes");
}

#[test]
fn objects_are_listed_and_freed_on_the_node_of_their_memory() {
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        return println!("skipped: the allocator of a sanitizer keeps freed memory");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = world() else { return };
    let group = world.tree.root().create("group").unwrap();
    let nodes = world.own_nodes();
    let before: Vec<u64> = nodes.iter().map(|node| world.used(*node)).collect();
    for node in &nodes {
        world.fill(&group, *node);
        assert_eq!(world.cache.0.count_one(&group, *node), OBJECTS, "node {node}: all objects are on its list");
    }
    for (node, before) in nodes.iter().zip(&before) {
        world.wait_used("filled", *node, before + OBJECTS * OBJECT as u64);
    }
    // Node by node: the memory of the other nodes stays.
    for (at, node) in nodes.iter().enumerate() {
        let done = world.registry.shrink(world.tree.root(), *node, 0, Reclaim::KSWAPD, &mut Work::unlimited());
        assert_eq!(done.freed, OBJECTS);
        for (other, (node, before)) in nodes.iter().zip(&before).enumerate() {
            let left = if other <= at { 0 } else { OBJECTS };
            assert_eq!(world.cache.0.count_one(&group, *node), left);
            world.wait_used("reclaimed", *node, before + left * OBJECT as u64);
        }
    }
    said("memory came and went", nodes.len());
}

#[test]
fn a_full_node_evicts_no_objects_of_other_nodes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = world() else { return };
    let nodes = world.own_nodes();
    let group = world.tree.root().create("group").unwrap();
    nodes.iter().for_each(|node| world.fill(&group, *node));
    let (full, others) = nodes.split_first().unwrap();
    // Three passes, each for more objects than the node has.
    for _ in 0..3 {
        world.registry.shrink(world.tree.root(), *full, 0, Reclaim::KSWAPD, &mut Work::objects(2 * OBJECTS));
    }
    assert_eq!(world.cache.0.count_one(&group, *full), 0);
    for node in others {
        assert_eq!(world.cache.0.count_one(&group, *node), OBJECTS, "node {node} lost objects for node {full}");
    }
    // Direct reclaim takes memory from the thread's node first, then from others.
    if let Some(near) = others.first() {
        world.on(*near, || {
            world
                .registry
                .direct_reclaim(&group, Reclaim::FOREGROUND, &|| world.cache.0.count_one(&group, *near) < OBJECTS)
        });
        assert!(world.cache.0.count_one(&group, *near) < OBJECTS);
        for node in &others[1..] {
            assert_eq!(world.cache.0.count_one(&group, *node), OBJECTS, "node {node} gave for a thread on node {near}");
        }
        said("others kept theirs", nodes.len());
    } else {
        println!("skipped: that others keep theirs needs two nodes");
    }
}

#[test]
fn reclaimers_run_on_their_nodes_processors() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = world() else { return };
    let reclaimer =
        Reclaimer::start(&world.registry, world.topology.clone(), Watermarks::for_budget(ByteSize::mib(64))).unwrap();
    let allowed = |status: &Path| {
        let status = fs::read_to_string(status).unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        lowwater_lru_core::topology::parse_list(list.trim()).unwrap()
    };
    // The processors of each node that this process may use; no entry for a node of which it may
    // use none.
    let of_node = |node| Some((node, world.on(node, || allowed(Path::new("/proc/thread-self/status")))?));
    let expected: HashMap<_, _> = world.nodes().filter_map(of_node).collect();
    let end = Instant::now() + Duration::from_secs(60);
    while reclaimer.stats().iter().filter(|stats| stats.pinned).count() < expected.len() {
        assert!(Instant::now() < end, "reclaimers are not bound: {:?}", reclaimer.stats());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut seen = 0;
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let Ok(name) = fs::read_to_string(task.join("comm")) else { continue };
        let Some(node) = name.trim_end().strip_prefix("lowwater/").and_then(|n| n.parse().ok()) else { continue };
        if let Some(expected) = expected.get(&NodeId::new(node)) {
            assert_eq!(allowed(&task.join("status")), *expected, "reclaimer of node {node}");
        }
        seen += 1;
    }
    assert_eq!(seen, world.topology.nodes(), "each node has a reclaimer");
    said("reclaimers are bound", seen);
}
