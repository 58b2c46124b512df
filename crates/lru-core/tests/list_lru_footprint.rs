//! `ListLru::footprint` compared with an allocator that counts: exact to the byte, also when
//! concurrently created tables turn out to be unnecessary.
//!
//! A single test, since memory retired by another test's thread would be freed, and counted, here.
//!
//! An embedder may charge this figure to a budget, so an estimate is not enough.
//!
//! A field that allocates must be added to `footprint`, or this test fails.

// crossbeam-epoch, the read side with `lowwater_epoch`, frees later, and allocates for retired
// objects.
#![cfg(all(feature = "std", not(lowwater_loom), not(lowwater_epoch)))]

#[path = "../../base/tests/faulty/mod.rs"]
mod faulty;

use faulty::{meanwhile, ALLOCATED};
use std::sync::Arc;

use lowwater_lru_core::{linked, list_lru, Links, ListLru, MemcgTree, NodeId};

const N0: NodeId = NodeId::ZERO;

struct Item(Links);

linked!(impl[] for Item { 0, handle: Arc<Item> });

#[test]
fn l16_a_concurrently_outgrown_table_is_freed() {
    let tree = MemcgTree::new(0);
    let groups: Vec<_> = (0..40).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    // Frees retired memory; the first call also makes the allocations that happen once per thread.
    let flush = || list_lru::sweep(MemcgTree::new(0).root());
    flush();
    let before = ALLOCATED.get();
    // In each round, the lists of 39 other groups are created in the middle of another allocation.
    for nth in 0.. {
        let lru = ListLru::<Item>::new();
        let others = || groups[1..].iter().for_each(|group| drop(lru.prepare(group, N0).unwrap()));
        let ((), done) = meanwhile(nth, &others, || drop(lru.prepare(&groups[0], N0).unwrap()));
        lru.assert_valid();
        flush();
        let bytes = ALLOCATED.get() - before + size_of_val(&lru) as isize;
        assert_eq!(bytes as u64, lru.footprint().get(), "others were there at allocation {nth}");
        drop(lru);
        flush();
        assert_eq!(ALLOCATED.get(), before, "all of it goes");
        if !done {
            assert!(nth >= 4, "two lists, and two tables at least");
            return;
        }
    }
}
