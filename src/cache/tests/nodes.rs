//! More than one node: the node of an entry, and the node from which entries are evicted.
//!
//! The topology is `Fixed`, and the test sets the node on which all threads are.
//!
//! A change must ensure that no test depends on the machine's own nodes.

use super::{entry_bytes, median_of_seeds, without_reclaimer, Seeded};
use crate::cache::Eviction;
use crate::topology::Fixed;
use crate::{ByteSize, Cache, NodeId};
use std::sync::Arc;

const NODES: [NodeId; 2] = [NodeId::ZERO, NodeId::new(1)];

fn of_two_nodes(budget: ByteSize) -> (Arc<Fixed>, Cache<u64, Vec<u8>>) {
    let topology = Arc::new(Fixed::new(2));
    let runtime = without_reclaimer(budget).topology(topology.clone()).build().unwrap();
    let weigher = |_: &u64, value: &Vec<u8>| ByteSize::new(value.capacity() as u64);
    (topology, Cache::<u64, Vec<u8>>::builder(&runtime).weigher(weigher).build().unwrap())
}

/// Returns the number of entries on the lists of each node; checks the lists.
fn of_each(cache: &Cache<u64, Vec<u8>>) -> [u64; 2] {
    let queues = &cache.inner.core.queues;
    queues.assert_valid();
    NODES.map(|node| queues.count_node(node))
}

#[test]
fn an_entry_is_on_the_node_of_its_insert() {
    let (topology, cache) = of_two_nodes(ByteSize::mib(64));
    let tenant = cache.runtime().group("t").unwrap();
    for (node, keys) in NODES.into_iter().zip([0..1_000, 1_000..4_000_u64]) {
        topology.set_current(node);
        keys.for_each(|key| drop(cache.entry(key).group(&tenant).insert(vec![1; 100]).unwrap()));
    }
    assert_eq!(of_each(&cache), [1_000, 3_000]);
    assert!((0..4_000).all(|key| cache.get(&key).is_some()), "a thread of one node finds all entries");
    // A replaced entry moves to the node of the thread that replaces it.
    (0..500).for_each(|key| drop(cache.entry(key).group(&tenant).insert(vec![2; 100]).unwrap()));
    assert_eq!(of_each(&cache), [500, 3_500]);
    // A thread of this node can remove entries of the other node, too.
    (500..600).for_each(|key| assert!(cache.remove(&key).is_some()));
    assert_eq!((of_each(&cache), cache.len()), ([400, 3_500], 3_900));
    cache.runtime().tree().drain_stock();
    assert_eq!(tenant.usage().get(), 3_900 * (100 + entry_bytes()));
    cache.runtime().drop_group(&tenant).unwrap();
    super::eventually(std::time::Duration::from_secs(60), "the group is emptied on both nodes", || {
        !tenant.is_online() && (of_each(&cache), cache.len()) == ([0, 0], 0)
    });
}

#[test]
fn a_full_cache_evicts_from_both_nodes() {
    let (topology, cache) = of_two_nodes(ByteSize::mib(1));
    let tenants = [0, 1].map(|n| cache.runtime().group(&format!("t{n}")).unwrap());
    let put = |key: u64| {
        cache.entry(key).group(&tenants[key as usize % 2]).insert(vec![0; 100]).unwrap();
        assert!(cache.contains_key(&key), "{key}, {:?}", of_each(&cache));
    };
    topology.set_current(NODES[0]);
    // More than three times the entries that fit, about 6,000.
    (0..20_000).for_each(put);
    let [first, none] = of_each(&cache);
    assert!(first > 1_000 && none == 0);
    // From here on only the other node inserts, and it has no entries of its own to evict.
    topology.set_current(NODES[1]);
    (20_000..60_000).for_each(put);
    let [left, second] = of_each(&cache);
    assert!(left < first / 10 && second > first * 8 / 10, "{first} on one, then {left} and {second}");
    // Inserts alternate between the nodes: neither starves.
    for key in 60_000..100_000 {
        topology.set_current(NODES[(key / 10 % 2) as usize]);
        put(key);
    }
    let [left, second] = of_each(&cache);
    assert!(left > first / 4 && second > first / 4, "{left} and {second}");
    super::eventually(std::time::Duration::from_secs(60), "each entry is on a list", || {
        of_each(&cache).iter().sum::<u64>() == cache.len() as u64
    });
    let usage = cache.runtime().root().usage();
    assert!(usage <= ByteSize::mib(1), "{usage}");
}

#[test]
fn a_nodes_memory_is_returned_with_its_entries() {
    let (topology, cache) = of_two_nodes(ByteSize::mib(256));
    let tenants = [0, 1].map(|n| cache.runtime().group(&format!("t{n}")).unwrap());
    for (n, node) in NODES.into_iter().enumerate() {
        topology.set_current(node);
        for key in 0..100_000 {
            cache.entry(key * 2 + n as u64).group(&tenants[n]).insert(Vec::new()).unwrap();
        }
    }
    let slab = cache.inner.core.index.slab();
    let full = slab.footprint();
    cache.runtime().reclaim(&tenants[1], tenants[1].usage());
    let start = std::time::Instant::now();
    while cache.collect() != ByteSize::ZERO {
        assert!(start.elapsed().as_secs() < 60);
    }
    let [kept, gone] = of_each(&cache);
    assert!(kept == 100_000 && gone < 1_000, "{kept} and {gone}");
    // Half of the entries have left; a tenth of the memory more is allowed for chunks that the slab
    // keeps.
    assert!(slab.footprint().get() < full.get() * 6 / 10, "{} of {full}", slab.footprint());
}

/// Requests keys, some of them often, on `nodes` nodes in turn, in a cache of about 1,500 entries
/// whose hash function has this seed; returns the hits in a thousand.
fn hits(nodes: u16, eviction: Eviction, seed: u64) -> u64 {
    let topology = Arc::new(Fixed::new(nodes.into()));
    let runtime = without_reclaimer(ByteSize::kib(256)).topology(topology.clone()).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).eviction(eviction).hasher(Seeded(seed));
    let cache = cache.weigher(|_, _| ByteSize::new(100)).build().unwrap();
    let (mut random, mut hits, requests) = (1_u64, 0, 100_000);
    for request in 0..requests {
        topology.set_current(NodeId::new(request as u16 / 7 % nodes));
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let key = if request % 3 == 0 { 1_000_000 + request } else { (unit * unit * unit * 12_000.0) as u64 };
        match cache.get(&key) {
            Some(_) => hits += 1,
            None => drop(cache.insert(key, 0).unwrap()),
        }
    }
    1_000 * hits / requests
}

#[test]
fn entries_on_several_nodes_are_as_useful_as_on_one() {
    for eviction in [Eviction::Adaptive, Eviction::S3Fifo] {
        let [one, four] = [1, 4].map(|nodes| median_of_seeds(|seed| hits(nodes, eviction, seed)));
        println!("{eviction:?}: {one} and {four} hits in a thousand");
        assert!(one <= four + 10, "{eviction:?}: {one} and {four} hits in a thousand");
    }
}
