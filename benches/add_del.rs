//! What do an add and a del cost, against one lock around one list made for the purpose? And what if two threads do it at once?
//!
//! | row | what |
//! |---|---|
//! | `lowwater, own groups` | each thread's objects are in a group of their own: the case that the lists are made for |
//! | `lowwater, one group` | all threads' objects are in one group: they meet at its list's lock |
//! | `one lock` | a [`parking_lot::Mutex`] around one doubly linked list, laid out in an array: no groups, no nodes, nobody listens |
//!
//! Each takes a handle (an `Arc`), puts it on a list that holds a thousand others, and takes it off again. The time is that of one such
//! pair on one thread, while the other threads do the same: with two cores and nothing shared it does not grow with the threads.

mod threads;

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use lowwater::{linked, Links, ListLru, Memcg, MemcgTree, NodeId};
use parking_lot::Mutex;

/// Objects that stay on each list.
const RESIDENTS: usize = 1000;
/// Objects of each thread that come and go, in turn.
const MOVERS: usize = 64;
const THREADS_MAX: usize = 2;

struct Item {
    links: Links,
    place: usize,
}

linked!(impl[] for Item { links, handle: Arc<Item> });

fn items(range: std::ops::Range<usize>) -> Vec<Arc<Item>> {
    range.map(|place| Arc::new(Item { links: Links::new(), place })).collect()
}

/// The movers of one thread, whose places lie behind all residents'.
fn movers(thread: usize) -> Vec<Arc<Item>> {
    let first = RESIDENTS * THREADS_MAX + MOVERS * thread;
    items(first..first + MOVERS)
}

// === the plain list ===

const NONE: usize = usize::MAX;

#[derive(Clone)]
struct Node {
    prev: usize,
    next: usize,
    item: Option<Arc<Item>>,
}

/// An item's node is the one at its place.
struct OneList {
    first: usize,
    last: usize,
    nodes: Vec<Node>,
}

impl OneList {
    fn new(places: usize) -> Self {
        Self { first: NONE, last: NONE, nodes: vec![Node { prev: NONE, next: NONE, item: None }; places] }
    }

    fn add(&mut self, item: Arc<Item>) {
        let place = item.place;
        self.nodes[place] = Node { prev: self.last, next: NONE, item: Some(item) };
        match self.last {
            NONE => self.first = place,
            last => self.nodes[last].next = place,
        }
        self.last = place;
    }

    fn del(&mut self, item: &Item) -> Option<Arc<Item>> {
        let Node { prev, next, item } =
            std::mem::replace(&mut self.nodes[item.place], Node { prev: NONE, next: NONE, item: None });
        match prev {
            NONE => self.first = next,
            prev => self.nodes[prev].next = next,
        }
        match next {
            NONE => self.last = prev,
            next => self.nodes[next].prev = prev,
        }
        item
    }
}

// === the rows ===

fn lowwater(threads: usize, pairs: u64, group_of: impl Fn(usize) -> Memcg + Sync) -> Duration {
    let lru = ListLru::<Item>::new();
    for thread in 0..threads {
        for item in items(0..RESIDENTS) {
            lru.add(item, &group_of(thread), NodeId::ZERO).expect("a new object is on no list");
        }
    }
    threads::timed(threads, |thread| {
        let (group, movers) = (group_of(thread), movers(thread));
        for item in movers.iter().cycle().take(pairs as usize) {
            lru.add(Arc::clone(item), &group, NodeId::ZERO).expect("it was taken off before");
            lru.del(item).expect("it was just put there");
        }
    })
}

fn one_lock(threads: usize, pairs: u64) -> Duration {
    let mut list = OneList::new((RESIDENTS + MOVERS) * THREADS_MAX);
    items(0..RESIDENTS * threads).into_iter().for_each(|item| list.add(item));
    let list = Mutex::new(list);
    threads::timed(threads, |thread| {
        for item in movers(thread).iter().cycle().take(pairs as usize) {
            list.lock().add(Arc::clone(item));
            list.lock().del(item).expect("it was just put there");
        }
    })
}

fn add_del(criterion: &mut Criterion) {
    threads::print_control();
    let tree = MemcgTree::default();
    let groups: Vec<_> = (0..THREADS_MAX).map(|n| tree.root().create(&n.to_string()).expect("a new name")).collect();
    let mut rows = criterion.benchmark_group("add+del");
    for threads in 1..=THREADS_MAX {
        rows.bench_function(BenchmarkId::new("lowwater, own groups", threads), |b| {
            b.iter_custom(|pairs| lowwater(threads, pairs, |thread| groups[thread].clone()));
        });
        rows.bench_function(BenchmarkId::new("lowwater, one group", threads), |b| {
            b.iter_custom(|pairs| lowwater(threads, pairs, |_| groups[0].clone()));
        });
        rows.bench_function(BenchmarkId::new("one lock", threads), |b| {
            b.iter_custom(|pairs| one_lock(threads, pairs));
        });
    }
}

fn main() {
    let criterion = Criterion::default().sample_size(20);
    let short = criterion.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let mut criterion = short.configure_from_args();
    add_del(&mut criterion);
    criterion.final_summary();
}
