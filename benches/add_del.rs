//! The cost of an add and a del, compared with a minimal list under one lock, against the number of
//! threads: 1, 2, 4 and so on, to all processors.
//!
//! | row | setup |
//! |---|---|
//! | `lowwater, own groups` | each thread's objects are in a group of their own: the case that the lists are designed for |
//! | `lowwater, one group` | all threads' objects are in one group: they contend for its list's lock until the list is split, which the contention triggers |
//! | `lowwater, one group, split` | the same, but split before the measurement: with one thread, the cost of a split list |
//! | `one lock` | a [`parking_lot::Mutex`] around one doubly linked list, stored in an array: no groups, no nodes, no observers |
//! | `boxes, own groups` | as `lowwater, own groups`, with objects in boxes that move on and off the list: no reference counts |
//! | `boxes, one lock` | as `one lock`, with the list's links in the boxes themselves, as raw pointers: the minimal work |
//!
//! Each operation pair takes a handle (an `Arc` or a box), adds it to a list that holds a thousand
//! others for each thread that uses the list, and deletes it again. The time is that of one pair on
//! one thread, while the other threads do the same: with a core each and no shared state it does
//! not grow with the number of threads.
//!
//! Before the rows, a control shows whether two processors are available. After the rows: the
//! throughput of two threads on one group as a fraction of that on their own groups, from
//! alternating runs.
//!
//! A change must ensure that `one lock` and the rows above it hold equal items, so that only the
//! lists differ. `ci/bench.sh` repeats the name of the benchmark group; `ci/measured/lists.py`
//! reads the rows by their names, and the sentence that `print_ratio` prints.

mod settings;
mod threads;

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use lowwater::{linked, Links, ListLru, Memcg, MemcgTree, NodeId};
use parking_lot::Mutex;

/// Objects that stay on a list, for each thread that uses the list.
const RESIDENTS: usize = 1000;
/// Objects of each thread that are added and deleted, in turn.
const MOVERS: usize = 64;
/// Threads of the ratio after the rows.
const RATIO_THREADS: usize = 2;

struct Item {
    links: Links,
    /// The index of the item's node in [`OneList`].
    place: usize,
}

linked!(impl[] for Item { links, handle: Arc<Item> });

fn items(range: std::ops::Range<usize>) -> Vec<Arc<Item>> {
    range.map(|place| Arc::new(Item { links: Links::new(), place })).collect()
}

/// Returns the movers of one thread. Their places come after those of all residents.
fn movers(thread: usize) -> Vec<Arc<Item>> {
    let first = RESIDENTS * threads::most() + MOVERS * thread;
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

/// A doubly linked list in an array. The node of an item is at the item's `place`.
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

// === the plain list of boxes ===

struct Boxed {
    links: Links,
}

linked!(impl[] for Boxed { links, handle: Box<Boxed> });

/// The links of a hand-written intrusive list.
struct Plain {
    prev: *mut Plain,
    next: *mut Plain,
}

/// A circular list through its own head.
struct Ring {
    head: Box<Plain>,
    len: u64,
}

// SAFETY: the pointers lead to objects that only the ring owns, and they are accessed only through
// `&mut Ring`, so moving the ring to another thread moves all access with it.
unsafe impl Send for Ring {}

impl Ring {
    fn new() -> Self {
        let mut head = Box::new(Plain { prev: ptr::null_mut(), next: ptr::null_mut() });
        head.prev = &raw mut *head;
        head.next = head.prev;
        Self { head, len: 0 }
    }

    fn add(&mut self, object: Box<Plain>) {
        let (object, head) = (Box::into_raw(object), &raw mut *self.head);
        let last = self.head.prev;
        // SAFETY: `object` came from `Box::into_raw` above, so it is valid and not aliased.
        unsafe { *object = Plain { prev: last, next: head } };
        // SAFETY: `last` is the head or on the ring, and objects on the ring are live until `del`;
        // `&mut self` excludes other accesses.
        unsafe { (*last).next = object };
        self.head.prev = object;
        self.len += 1;
    }

    /// Removes `object` from the ring and returns it.
    ///
    /// # Safety
    ///
    /// `object` is on this ring.
    unsafe fn del(&mut self, object: *mut Plain) -> Box<Plain> {
        // SAFETY: `object` is on the ring by the contract of this function, so it is live and
        // initialized.
        let Plain { prev, next } = unsafe { ptr::read(object) };
        // SAFETY: the previous element of a listed object is on the ring (or is its head), so it is
        // live.
        unsafe { (*prev).next = next };
        // SAFETY: the next element of a listed object is on the ring (or is its head), so it is
        // live.
        unsafe { (*next).prev = prev };
        self.len -= 1;
        // SAFETY: `add` made the pointer by `Box::into_raw`, and the object is on the ring no more,
        // so the box is made once.
        unsafe { Box::from_raw(object) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.len > 0 {
            // SAFETY: `len` is not 0, so the element after the head is an object on the ring.
            drop(unsafe { self.del(self.head.next) });
        }
    }
}

fn boxes_one_lock(threads: usize, pairs: u64) -> Duration {
    let ring = Mutex::new(Ring::new());
    let plain = || Box::new(Plain { prev: ptr::null_mut(), next: ptr::null_mut() });
    (0..RESIDENTS * threads).for_each(|_| ring.lock().add(plain()));
    threads::timed(threads, |_| {
        let mut movers: Vec<_> = (0..MOVERS).map(|_| Some(plain())).collect();
        for pair in 0..pairs as usize {
            let mover = &mut movers[pair % MOVERS];
            let mut object = mover.take().expect("a deleted object is back in its place");
            let address = &raw mut *object;
            ring.lock().add(object);
            // SAFETY: the object was just added, and only this thread deletes it.
            *mover = Some(unsafe { ring.lock().del(address) });
        }
    })
}

fn boxes_lowwater(threads: usize, pairs: u64, groups: &[Memcg]) -> Duration {
    let lru = ListLru::<Boxed>::new();
    let boxed = || Box::new(Boxed { links: Links::new() });
    for group in &groups[..threads] {
        for _ in 0..RESIDENTS {
            lru.add(boxed(), group, NodeId::ZERO).expect("a new object is on no list");
        }
    }
    threads::timed(threads, |thread| {
        let mut movers: Vec<_> = (0..MOVERS).map(|_| Some(boxed())).collect();
        for pair in 0..pairs as usize {
            let mover = &mut movers[pair % MOVERS];
            let object = mover.take().expect("a deleted object is back in its place");
            let address = &raw const *object;
            lru.add(object, &groups[thread], NodeId::ZERO).expect("a deleted item is on no list");
            // SAFETY: the list owns the object, which only this thread deletes, so the address is
            // valid until `del`.
            *mover = lru.del(unsafe { &*address });
        }
    })
}

// === the rows ===

/// Returns lists with the residents of this many threads.
fn lists(threads: usize, group_of: impl Fn(usize) -> Memcg) -> ListLru<Item> {
    let lru = ListLru::<Item>::new();
    for thread in 0..threads {
        for item in items(0..RESIDENTS) {
            lru.add(item, &group_of(thread), NodeId::ZERO).expect("a new object is on no list");
        }
    }
    lru
}

fn lowwater(lru: &ListLru<Item>, threads: usize, pairs: u64, group_of: impl Fn(usize) -> Memcg + Sync) -> Duration {
    threads::timed(threads, |thread| {
        let (group, movers) = (group_of(thread), movers(thread));
        for item in movers.iter().cycle().take(pairs as usize) {
            lru.add(Arc::clone(item), &group, NodeId::ZERO).expect("a deleted item is on no list");
            lru.del(item).expect("an added item is on the list");
        }
    })
}

/// Lets two threads contend for a list's lock until the list is split, which shows in its
/// footprint. One of them sleeps in the callback of a walk, which runs under the lock.
fn split(lru: &ListLru<Item>, group: &Memcg) {
    let whole = lru.footprint();
    let item = items(0..1).remove(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while lru.footprint() == whole {
                lru.walk_one(group, NodeId::ZERO, &mut 1, |it| {
                    std::thread::sleep(Duration::from_micros(100));
                    it.skip()
                });
            }
        });
        while lru.footprint() == whole {
            lru.add(Arc::clone(&item), group, NodeId::ZERO).expect("a deleted item is on no list");
            lru.del(&item).expect("an added item is on the list");
        }
    });
}

/// Prints the throughput on one group relative to that on own groups: the median of several pairs
/// of runs.
fn print_ratio(groups: &[Memcg]) {
    const PAIRS: u64 = 2_000_000;
    let mut ratios: Vec<f64> = (0..15)
        .map(|_| {
            // New lists in each run, because the split is part of the cost.
            let (own, one) = (|thread: usize| groups[thread].clone(), |_| groups[0].clone());
            let own = lowwater(&lists(RATIO_THREADS, own), RATIO_THREADS, PAIRS, own);
            let one = lowwater(&lists(RATIO_THREADS, one), RATIO_THREADS, PAIRS, one);
            own.as_secs_f64() / one.as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "{RATIO_THREADS} threads on one group reach {:.2} times the throughput of {RATIO_THREADS} on groups of their own \
         (middle of {}, from {:.2} to {:.2})",
        ratios[ratios.len() / 2],
        ratios.len(),
        ratios[0],
        ratios[ratios.len() - 1],
    );
}

fn one_lock(threads: usize, pairs: u64) -> Duration {
    let mut list = OneList::new((RESIDENTS + MOVERS) * threads::most());
    items(0..RESIDENTS * threads).into_iter().for_each(|item| list.add(item));
    let list = Mutex::new(list);
    threads::timed(threads, |thread| {
        for item in movers(thread).iter().cycle().take(pairs as usize) {
            list.lock().add(Arc::clone(item));
            list.lock().del(item).expect("an added item is on the list");
        }
    })
}

/// Registers each row of the module's table, for each number of threads.
fn add_del(criterion: &mut Criterion) {
    threads::print_control();
    let tree = MemcgTree::default();
    let groups: Vec<_> = (0..threads::most().max(RATIO_THREADS))
        .map(|n| tree.root().create(&n.to_string()).expect("a new name"))
        .collect();
    let mut rows = criterion.benchmark_group("add+del");
    for threads in threads::counts() {
        // Pairs of all threads together, so that reports print their throughput.
        rows.throughput(Throughput::Elements(threads as u64));
        let (own, one) = (|thread: usize| groups[thread].clone(), |_| groups[0].clone());
        // Created once, because criterion may call each row many times.
        let (on_own, on_one, on_split) = (lists(threads, own), lists(threads, one), lists(threads, one));
        split(&on_split, &groups[0]);
        rows.bench_function(BenchmarkId::new("lowwater, own groups", threads), |b| {
            b.iter_custom(|pairs| lowwater(&on_own, threads, pairs, own));
        });
        rows.bench_function(BenchmarkId::new("lowwater, one group", threads), |b| {
            b.iter_custom(|pairs| lowwater(&on_one, threads, pairs, one));
        });
        rows.bench_function(BenchmarkId::new("lowwater, one group, split", threads), |b| {
            b.iter_custom(|pairs| lowwater(&on_split, threads, pairs, one));
        });
        rows.bench_function(BenchmarkId::new("one lock", threads), |b| {
            b.iter_custom(|pairs| one_lock(threads, pairs));
        });
        rows.bench_function(BenchmarkId::new("boxes, own groups", threads), |b| {
            b.iter_custom(|pairs| boxes_lowwater(threads, pairs, &groups));
        });
        rows.bench_function(BenchmarkId::new("boxes, one lock", threads), |b| {
            b.iter_custom(|pairs| boxes_one_lock(threads, pairs));
        });
    }
    rows.finish();
    print_ratio(&groups);
}

fn main() {
    let mut criterion = settings::criterion(20);
    add_del(&mut criterion);
    criterion.final_summary();
}
