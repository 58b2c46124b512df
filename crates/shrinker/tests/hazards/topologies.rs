//! Topologies whose results change between calls.
//!
//! A topology is the user's code, so its numbers are clamped and not trusted.

use crate::common::Shelf;
use crate::hazard::within;
use crate::MARKS;
use lowwater_lru_core::{MemcgTree, NodeId, Topology};
use lowwater_shrinker::{Reclaim, Reclaimer, Registry, RegistryConfig, Work};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// Returns the given values, `nodes` another one in each call; panics without `cpus`.
struct Liar {
    nodes: Vec<usize>,
    asked: AtomicUsize,
    current: u16,
    cpus: Option<Vec<usize>>,
}

impl Topology for Liar {
    fn nodes(&self) -> usize {
        self.nodes[self.asked.fetch_add(1, Relaxed) % self.nodes.len()]
    }
    fn current(&self) -> NodeId {
        NodeId::new(self.current)
    }
    fn cpus_of(&self, _: NodeId) -> &[usize] {
        self.cpus.as_ref().expect("the topology's own fault")
    }
    fn distance(&self, _: NodeId, _: NodeId) -> u32 {
        panic!("the topology's own fault")
    }
}

#[test]
fn inconsistent_topologies_are_refused_or_clamped() {
    type Lie = (&'static [usize], u16, Option<Vec<usize>>);
    // The results of `nodes` in turn (the registry calls it first, then the reclaimer), the current
    // node, the processors of each node.
    let lies: [Lie; 8] = [
        (&[0], 0, Some(vec![])),
        (&[1, 0, 0, 0], 3, Some(vec![])),
        (&[1, 1, 1 << 20], 0, Some(vec![])),
        (&[3, 3, 1], 2, Some(vec![])),
        (&[2, 3], 9, Some(vec![])),
        (&[2], u16::MAX, Some(vec![usize::MAX, 1 << 40, 0, 0])),
        (&[2], 1, None),
        (&[1], 0, Some((0..1 << 16).collect())),
    ];
    for (nodes, current, cpus) in lies {
        let said = format!("{nodes:?} {current} {}", cpus.is_some());
        let liar = Liar { nodes: nodes.into(), asked: AtomicUsize::new(0), current, cpus };
        within(&said.clone(), move || {
            let tree = MemcgTree::new(0);
            let topology: Arc<dyn Topology> = Arc::new(liar);
            let registry = Registry::with_config(&tree, RegistryConfig::with_topology(Arc::clone(&topology)));
            assert!((1..=3).contains(&registry.nodes()), "{said}: {} nodes", registry.nodes());
            let shelf = Arc::new(Shelf::new());
            let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
            let started = catch_unwind(AssertUnwindSafe(|| Reclaimer::start(&registry, topology.clone(), MARKS)));
            // A panic of the topology reaches the caller, and ends no thread.
            let threads = started.map(Result::ok).unwrap_or_default();
            let last = NodeId::new(registry.nodes() as u16 - 1);
            for node in 0..registry.nodes() {
                shelf.add(tree.root(), NodeId::new(node as u16), 100);
            }
            registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
            registry.shrink(tree.root(), last, 0, Reclaim::FOREGROUND, &mut Work::unlimited());
            registry.drop_caches();
            assert_eq!(shelf.total(), 0, "{said}");
            let _ = format!("{:?}", RegistryConfig::with_topology(topology));
            drop(threads);
            registration.unregister().unwrap();
        });
    }
}
