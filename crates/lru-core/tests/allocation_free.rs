//! L19: once a list exists, adding, removing and walking allocate nothing.
//!
//! Callers in reclaim have no memory to allocate from. The allocator of this program counts
//! allocations per thread, so that tests may run in parallel; it does not count frees.
//!
//! Numbers such as L19 are those of docs/INVARIANTS.md.
//!
//! A new operation on an existing list is added here.

#![cfg(not(lowwater_loom))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use lowwater_lru_core::{linked, Isolated, Links, ListLru, MemcgTree, NodeId};

struct Counting;

thread_local! { static ALLOCATIONS: Cell<u64> = const { Cell::new(0) } }

// SAFETY: all calls are forwarded to the system allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: this function's clause is that of `System.alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: this function's clause is that of `System.dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Item {
    links: Links,
}

linked!(impl[] for Item { links, handle: Arc<Item> });

/// Returns the number of this thread's allocations during `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
#[cfg_attr(lowwater_epoch, ignore = "crossbeam-epoch allocates for deferred drops")]
fn l19_add_and_del_allocate_nothing_once_the_list_exists() {
    let tree = MemcgTree::default();
    let group = tree.root().create("group").unwrap();
    let node = NodeId::new(3);
    let lru = ListLru::<Item>::new();
    let items: Vec<_> = (0..1_000).map(|_| Arc::new(Item { links: Links::new() })).collect();

    let first = allocations(|| lru.add(Arc::clone(&items[0]), &group, node).unwrap());
    assert!(first > 0, "the first add makes the list, so this test can see allocations");
    lru.del(&items[0]).unwrap();

    let work = || {
        for item in &items {
            lru.add(Arc::clone(item), &group, node).unwrap();
        }
        for item in items.iter().step_by(2) {
            lru.del(item).unwrap();
        }
        let mut private = Isolated::new();
        lru.walk_one(&group, node, &mut u64::MAX.clone(), |it| it.isolate(&mut private));
        assert_eq!(private.count(), 500);
    };
    assert_eq!(allocations(work), 0);
}

#[test]
fn l19_after_prepare_the_first_add_allocates_nothing_either() {
    let tree = MemcgTree::default();
    let group = tree.root().create("group").unwrap();
    let lru = ListLru::<Item>::new();
    let item = Arc::new(Item { links: Links::new() });
    let _prepared = lru.prepare(&group, NodeId::ZERO).unwrap();
    assert_eq!(allocations(|| lru.add(item, &group, NodeId::ZERO).unwrap()), 0);
}
