//! What do an add and a del cost, against one lock around one list made for the purpose? And what if two threads do it at once?
//!
//! | row | what |
//! |---|---|
//! | `lowwater, own groups` | each thread's objects are in a group of their own: the case that the lists are made for |
//! | `lowwater, one group` | all threads' objects are in one group: they meet at its list's lock, until it is split, which it is as soon as they do |
//! | `lowwater, one group, split` | the same, but split before the time is taken: with one thread, what a split costs |
//! | `one lock` | a [`parking_lot::Mutex`] around one doubly linked list, laid out in an array: no groups, no nodes, nobody listens |
//! | `boxes, own groups` | as `lowwater, own groups`, with objects in boxes that move on and off the list: no reference counts |
//! | `boxes, one lock` | as `one lock`, with the list's links in the boxes themselves, by raw pointers: as little as can be done |
//!
//! Each takes a handle (an `Arc`), puts it on a list that holds a thousand others, and takes it off again. The time is that of one such
//! pair on one thread, while the other threads do the same: with two cores and nothing shared it does not grow with the threads.
//!
//! After the rows: the throughput of all threads on one group as a part of that on groups of their own, from runs in turn.

mod threads;

use std::ptr;
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

// === the plain list of boxes ===

struct Boxed {
    links: Links,
}

linked!(impl[] for Boxed { links, handle: Box<Boxed> });

/// The links that a hand-written list puts in its objects.
struct Plain {
    prev: *mut Plain,
    next: *mut Plain,
}

/// A ring through its own head.
struct Ring {
    head: Box<Plain>,
    len: u64,
}

// SAFETY: what the pointers lead to is touched by whoever holds the lock around the ring, on any thread.
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
        // SAFETY: it came from a box just now.
        unsafe { *object = Plain { prev: last, next: head } };
        // SAFETY: what is on the ring is live, and the lock around it is held.
        unsafe { (*last).next = object };
        self.head.prev = object;
        self.len += 1;
    }

    /// # Safety
    ///
    /// The object is on the ring.
    unsafe fn del(&mut self, object: *mut Plain) -> Box<Plain> {
        // SAFETY: it is on the ring, says the caller.
        let Plain { prev, next } = unsafe { ptr::read(object) };
        // SAFETY: its neighbours are on the ring.
        unsafe { (*prev).next = next };
        // SAFETY: as above.
        unsafe { (*next).prev = prev };
        self.len -= 1;
        // SAFETY: `add` made the pointer of a box.
        unsafe { Box::from_raw(object) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.len > 0 {
            // SAFETY: the first is on the ring, as it is not empty.
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
            let mut object = mover.take().expect("it was taken off before");
            let address = &raw mut *object;
            ring.lock().add(object);
            // SAFETY: it was just put there, and only this thread takes it off.
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
            let object = mover.take().expect("it was taken off before");
            let address = &raw const *object;
            lru.add(object, &groups[thread], NodeId::ZERO).expect("it was taken off before");
            // SAFETY: the list has it, and only this thread takes it off.
            *mover = lru.del(unsafe { &*address });
        }
    })
}

// === the rows ===

/// Lists with the residents of so many threads.
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
            lru.add(Arc::clone(item), &group, NodeId::ZERO).expect("it was taken off before");
            lru.del(item).expect("it was just put there");
        }
    })
}

/// Lets two threads meet at a list's lock until it is split, which shows in what the lists cost.
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
            lru.add(Arc::clone(&item), group, NodeId::ZERO).expect("it was taken off before");
            lru.del(&item).expect("it was just put there");
        }
    });
}

/// Prints what one group is worth against groups of their own: the middle one of some runs, each right after the other's.
fn print_ratio(groups: &[Memcg]) {
    const PAIRS: u64 = 2_000_000;
    let mut ratios: Vec<f64> = (0..15)
        .map(|_| {
            // New ones each time: that they split is a part of it.
            let (own, one) = (|thread: usize| groups[thread].clone(), |_| groups[0].clone());
            let own = lowwater(&lists(THREADS_MAX, own), THREADS_MAX, PAIRS, own);
            let one = lowwater(&lists(THREADS_MAX, one), THREADS_MAX, PAIRS, one);
            own.as_secs_f64() / one.as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "{THREADS_MAX} threads on one group reach {:.2} times the throughput of {THREADS_MAX} on groups of their own \
         (middle of {}, from {:.2} to {:.2})",
        ratios[ratios.len() / 2],
        ratios.len(),
        ratios[0],
        ratios[ratios.len() - 1],
    );
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
        let (own, one) = (|thread: usize| groups[thread].clone(), |_| groups[0].clone());
        // Made once, as criterion may ask for the row many times.
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
    let criterion = Criterion::default().sample_size(20);
    let short = criterion.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let mut criterion = short.configure_from_args();
    add_del(&mut criterion);
    criterion.final_summary();
}
