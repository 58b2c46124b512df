//! Model checks of the lists with `loom`: each test runs two threads in every order (with at most
//! three preemptions, see `ci/loom.sh`), and each submodule covers one kind of race (offline,
//! publication, splitting, sweep, listener). A test whose name contains `fails_with_` repeats a
//! check with one ordering or step removed (a mutant, by the name passed to `with_mutant`) and must
//! fail: it shows that the check detects that bug.
//!
//! A new atomic operation in the lists needs a check here and a row in docs/ORDERINGS.md. Numbers
//! such as L4 are those of docs/INVARIANTS.md.

mod listener;
mod offline;
mod publish;
mod split;
mod sweep;

use super::{item, Item};
use crate::sync::model;
use crate::{Isolated, ListLru, Memcg, MemcgTree, NodeId, Occupancy};
use alloc::boxed::Box;
use alloc::sync::Arc;
use loom::thread;

const N0: NodeId = NodeId::ZERO;

/// A tree with one group below the root, and lists for both.
struct World {
    tree: MemcgTree,
    child: Memcg,
    lru: ListLru<Item>,
}

/// Creates a world that is leaked until [`World::end`]: a failed execution is not torn down, as
/// loom must not be called while it unwinds.
fn world_heard_by(listener: Option<Arc<dyn Occupancy>>) -> &'static World {
    let tree = MemcgTree::new(1);
    let child = tree.root().create("c").unwrap();
    let lru = listener.map_or_else(ListLru::new, |listener| ListLru::with_occupancy(listener));
    Box::leak(Box::new(World { tree, child, lru }))
}

fn world() -> &'static World {
    world_heard_by(None)
}

impl World {
    /// Checks the list, and drops everything. All other threads have ended.
    fn end(&'static self) {
        self.lru.assert_valid();
        // SAFETY: the pointer came from `Box::leak`, the execution's other threads are joined, and
        // `self` is not used afterwards.
        drop(unsafe { Box::from_raw(core::ptr::from_ref(self).cast_mut()) });
    }
}

#[test]
fn l4_of_two_adds_of_one_item_one_succeeds() {
    model(|| {
        let w = world();
        drop(w.lru.prepare(w.tree.root(), N0).unwrap());
        let it = item(0);
        let other = {
            let it = it.clone();
            thread::spawn(move || w.lru.add(it, &w.child, N0).is_ok())
        };
        let mine = w.lru.add(it.clone(), w.tree.root(), N0).is_ok();
        assert!(mine ^ other.join().unwrap());
        assert_eq!(w.lru.count_node(N0), 1);
        w.end();
    });
}

#[test]
fn l4_l14_of_a_del_and_a_walk_one_gets_the_item() {
    model(|| {
        let w = world();
        let it = item(0);
        w.lru.add(it.clone(), w.tree.root(), N0).unwrap();
        let other = {
            let it = it.clone();
            thread::spawn(move || w.lru.del(&it).is_some())
        };
        let mut private = Isolated::new();
        let walked = w.lru.walk_one(w.tree.root(), N0, &mut 1, |it| it.isolate(&mut private));
        assert_eq!(walked + u64::from(other.join().unwrap()), 1);
        w.end();
    });
}

/// A replacement and a del of the same item, or a replacement and the offline of the group: one
/// operation gets the item, and the replacement has the item's place.
#[test]
fn l4_l9_of_a_replacement_and_a_del_one_gets_the_item() {
    for is_ending in [false, true] {
        model(move || {
            let w = world();
            let (it, by) = (item(0), item(1));
            w.lru.add(it.clone(), &w.child, N0).unwrap();
            let other = {
                let (it, by) = (it.clone(), by.clone());
                thread::spawn(move || w.lru.replace(&it, by).is_ok())
            };
            if is_ending {
                w.child.offline().unwrap();
            }
            let deleted = !is_ending && w.lru.del(&it).is_some();
            let replaced = other.join().unwrap();
            assert!(replaced ^ deleted);
            assert_eq!(w.lru.count_node(N0), u64::from(replaced));
            assert_eq!(w.lru.del(&by).is_some(), replaced);
            w.end();
        });
    }
}

#[test]
fn l14_of_two_walks_that_retry_one_gets_the_item() {
    model(|| {
        let w = world();
        w.lru.add(item(0), w.tree.root(), N0).unwrap();
        let walk = move || {
            w.lru.walk_one(w.tree.root(), N0, &mut 1, |it| {
                let (_gone, unlocked) = it.remove();
                unlocked.retry()
            })
        };
        let other = thread::spawn(walk);
        assert_eq!(walk() + other.join().unwrap(), 1);
        w.end();
    });
}
