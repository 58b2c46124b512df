//! The cost of lists that are created on first use, compared with a list for every id from the
//! start: in bytes, and in time.
//!
//! | row | setup |
//! |---|---|
//! | `lazy/N` | N groups and N `ListLru`s, and each group uses one: created, used, ended; the structures count their own bytes |
//! | `eager/N` | the baseline of the same size with a list for every id: N x N of them |
//!
//! The time is that of one life cycle: create N groups, add one object of each to its own list,
//! offline them all. Lazy should grow as N, eager as N x N. Before the times, a table shows the
//! bytes while all groups are online, and after they were offlined.
//!
//! A change must keep the sizes that both have in common, since their bytes and times are compared.
//! `ci/bench.sh` repeats the name of the benchmark group.

mod settings;

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput};
use lowwater::{linked, Links, ListLru, MemcgTree, NodeId};
use lowwater_lru_core::list_lru::baseline::EagerListLru;

/// Numbers of groups, and of lists.
const LAZY: [u32; 4] = [100, 1_000, 10_000, 100_000];
/// The baseline takes 32 bytes for each list, id and node: 10,000 of each would take 8 GB.
const EAGER: [u32; 2] = [100, 1_000];
const NODES: usize = 2;

struct Object {
    links: Links,
}

linked!(impl[] for Object { links, handle: Box<Object> });

fn object() -> Box<Object> {
    Box::new(Object { links: Links::new() })
}

/// Runs one life cycle with lazy lists. Returns the bytes in the middle of it, and after it while
/// the lists still exist.
fn lazy(n: u32) -> [u64; 2] {
    let tree = MemcgTree::new(0);
    let lists: Vec<_> = (0..n).map(|_| ListLru::<Object>::new()).collect();
    let bytes = || lists.iter().map(|list| list.footprint().get()).sum::<u64>() + tree.footprint().get();
    let groups: Vec<_> = (0..n).map(|n| tree.root().create(&n.to_string()).expect("a new name")).collect();
    for (n, (list, group)) in lists.iter().zip(&groups).enumerate() {
        list.add(object(), group, NodeId::new((n % NODES) as u16)).expect("a new object is on no list");
    }
    let during = bytes();
    for group in groups {
        group.offline().expect("the group is online and has no children");
    }
    [during, bytes()]
}

/// As [`lazy`], for the baseline.
fn eager(n: u32) -> [u64; 2] {
    let tree = MemcgTree::new(0);
    let lists: Vec<_> = (0..n).map(|_| Arc::new(EagerListLru::<Object>::new(NODES))).collect();
    for list in &lists {
        tree.add_hook(list.clone());
    }
    let bytes = || lists.iter().map(|list| list.footprint().get()).sum::<u64>() + tree.footprint().get();
    let groups: Vec<_> = (0..n).map(|n| tree.root().create(&n.to_string()).expect("a new name")).collect();
    for (n, (list, group)) in lists.iter().zip(&groups).enumerate() {
        list.add(object(), group, NodeId::new((n % NODES) as u16)).expect("a new object is on no list");
    }
    let during = bytes();
    for group in groups {
        group.offline().expect("the group is online and has no children");
    }
    [during, bytes()]
}

fn lives(criterion: &mut Criterion) {
    println!(
        "{:>9} {:>16} {:>16} {:>16} {:>16}",
        "groups", "lazy, during", "lazy, after", "eager, during", "eager, after"
    );
    for n in LAZY {
        let [during, after] = lazy(n);
        let [eager_during, eager_after] =
            if EAGER.contains(&n) { eager(n).map(|bytes| bytes.to_string()) } else { ["", ""].map(String::from) };
        println!("{n:>9} {during:>16} {after:>16} {eager_during:>16} {eager_after:>16}");
    }
    let mut rows = criterion.benchmark_group("footprint");
    for n in LAZY {
        rows.throughput(Throughput::Elements(n.into()));
        rows.bench_function(BenchmarkId::new("lazy", n), |b| b.iter(|| lazy(n)));
    }
    for n in EAGER {
        rows.throughput(Throughput::Elements(n.into()));
        rows.bench_function(BenchmarkId::new("eager", n), |b| b.iter(|| eager(n)));
    }
}

fn main() {
    let mut criterion = settings::criterion(10);
    lives(&mut criterion);
    criterion.final_summary();
}
