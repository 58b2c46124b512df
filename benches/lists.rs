//! The cost of lists of many groups and nodes, and of a walk.
//!
//! | curve | axis | operation |
//! |---|---|---|
//! | `add+del, groups` | groups, each with a list of its own | an add and a del, each in another group than the last |
//! | `add+del, nodes` | nodes, each with a list of its own | an add and a del, each on another node than the last |
//! | `walk, objects` | objects on the list | a walk over all of them, which leaves each where it is |
//!
//! `VecDeque` is the comparison for the walk: the same handles in an array. Curves against threads,
//! with lists under one lock for comparison, are in `add_del`; `lazy_footprint` has the baseline
//! with all lists from the start.
//!
//! A change must ensure that a walk visits all objects. `ci/bench.sh` repeats the curves' names.

mod settings;

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

use criterion::measurement::WallTime;
use criterion::{AxisScale, BenchmarkGroup, BenchmarkId, Criterion, PlotConfiguration};
use lowwater::{linked, Links, ListLru, Memcg, MemcgTree, NodeId};

const GROUPS: [usize; 5] = [1, 10, 100, 1_000, 10_000];
const NODES: [usize; 4] = [1, 2, 4, 8];
const OBJECTS: [usize; 4] = [100, 1_000, 10_000, 100_000];

struct Object {
    links: Links,
}

linked!(impl[] for Object { links, handle: Arc<Object> });

fn object() -> Arc<Object> {
    Arc::new(Object { links: Links::new() })
}

fn groups(tree: &MemcgTree, count: usize) -> Vec<Memcg> {
    (0..count).map(|n| tree.root().create(&n.to_string()).expect("a new name")).collect()
}

fn curve<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut rows = criterion.benchmark_group(name);
    rows.plot_config(PlotConfiguration::default().summary_scale(AxisScale::Logarithmic));
    rows
}

/// Adds and deletes one object, in each place in turn. Another object stays in each place, so that
/// no list becomes empty.
fn add_del(rows: &mut BenchmarkGroup<'_, WallTime>, value: usize, places: &[(Memcg, NodeId)]) {
    let (lru, moved) = (ListLru::<Object>::new(), object());
    for (group, node) in places {
        lru.add(object(), group, *node).expect("a new object is on no list");
    }
    let mut turns = places.iter().cycle();
    rows.bench_function(BenchmarkId::new("lowwater", value), |b| {
        b.iter(|| {
            let (group, node) = turns.next().expect("a cycle does not end");
            lru.add(Arc::clone(&moved), group, *node).expect("a deleted item is on no list");
            lru.del(&moved).expect("an added item is on the list");
        });
    });
}

fn against_groups(criterion: &mut Criterion) {
    let mut rows = curve(criterion, "add+del, groups");
    for count in GROUPS {
        let tree = MemcgTree::default();
        let places: Vec<_> = groups(&tree, count).into_iter().map(|group| (group, NodeId::ZERO)).collect();
        add_del(&mut rows, count, &places);
    }
}

fn against_nodes(criterion: &mut Criterion) {
    let mut rows = curve(criterion, "add+del, nodes");
    for count in NODES {
        let tree = MemcgTree::default();
        let group = groups(&tree, 1).remove(0);
        let places: Vec<_> = (0..count).map(|node| (group.clone(), NodeId::new(node as u16))).collect();
        add_del(&mut rows, count, &places);
    }
}

fn against_objects(criterion: &mut Criterion) {
    let mut rows = curve(criterion, "walk, objects");
    for count in OBJECTS {
        let array: VecDeque<_> = (0..count).map(|_| object()).collect();
        rows.bench_function(BenchmarkId::new("VecDeque", count), |b| {
            b.iter(|| array.iter().for_each(|object| _ = black_box(object)));
        });
        let tree = MemcgTree::default();
        let group = groups(&tree, 1).remove(0);
        let lru = ListLru::<Object>::new();
        for _ in 0..count {
            lru.add(object(), &group, NodeId::ZERO).expect("a new object is on no list");
        }
        rows.bench_function(BenchmarkId::new("lowwater", count), |b| {
            b.iter(|| {
                let mut all = count as u64;
                lru.walk_one(&group, NodeId::ZERO, &mut all, |it| it.skip())
            });
        });
    }
}

fn main() {
    let mut criterion = settings::criterion(10);
    against_groups(&mut criterion);
    against_nodes(&mut criterion);
    against_objects(&mut criterion);
    criterion.final_summary();
}
