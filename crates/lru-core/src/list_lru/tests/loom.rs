//! Every interleaving, of small stories. Each ordering that a story
//! rests on has a twin without it, which must fail.

mod split;

use super::{item, Item};
use crate::list_lru::{sweep::sweep_group, Swept};
use crate::sync::atomic::{fence, AtomicBool, Ordering};
use crate::sync::with_mutant;
use crate::{Isolated, ListLru, Memcg, MemcgTree, NodeId, Occupancy, OfflineHook};
use alloc::boxed::Box;
use alloc::sync::Arc;
use loom::thread;

const N0: NodeId = NodeId::ZERO;

struct World {
    tree: MemcgTree,
    child: Memcg,
    lru: ListLru<Item>,
}

/// Leaked until [`World::end`]: a story that fails is not taken down, as loom may not be called while it is unwound.
fn world_heard_by(ear: Option<Arc<Bit>>) -> &'static World {
    let tree = MemcgTree::new(1);
    let child = tree.root().create("c").unwrap();
    let lru = ear.map_or_else(ListLru::new, |ear| ListLru::with_occupancy(ear));
    Box::leak(Box::new(World { tree, child, lru }))
}

fn world() -> &'static World {
    world_heard_by(None)
}

impl World {
    /// Checks the list, and drops everything. Nobody else is left.
    fn end(&'static self) {
        self.lru.assert_valid();
        // SAFETY: it came from `Box::leak`, the story's other threads are joined, and this is its end.
        drop(unsafe { Box::from_raw(core::ptr::from_ref(self).cast_mut()) });
    }
}

fn check(story: impl Fn() + Sync + Send + 'static) {
    let runs = Arc::new(core::sync::atomic::AtomicUsize::new(0));
    let counted = runs.clone();
    loom::model(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        story();
    });
    assert!(runs.load(Ordering::Relaxed) > 1, "a story with one interleaving checks nothing");
}

#[test]
fn l4_of_two_adds_of_one_item_one_is_true() {
    check(|| {
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
    check(|| {
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

/// R1: an add that populates, beside the end of the group.
fn add_beside_offline() {
    let w = world();
    let other = { thread::spawn(move || w.child.offline().unwrap()) };
    w.lru.add(item(0), &w.child, N0).unwrap();
    other.join().unwrap();
    assert_eq!((w.lru.count_one(&w.child, N0), w.lru.count_one(w.tree.root(), N0)), (0, 1));
    assert_eq!(w.lru.pairs(), 1, "a dead group is not populated (L7, L8)");
    w.end();
}

#[test]
fn r1_an_add_beside_offline_ends_at_the_parent() {
    check(add_beside_offline);
}

/// R2: a del beside the splice.
fn del_beside_offline() {
    let w = world();
    let it = item(0);
    w.lru.add(it.clone(), &w.child, N0).unwrap();
    let other = { thread::spawn(move || w.child.offline().unwrap()) };
    assert!(w.lru.del(&it).is_some(), "it is on a list throughout");
    other.join().unwrap();
    assert_eq!(w.lru.count_node(N0), 0);
    w.end();
}

#[test]
fn r2_r8_a_del_beside_offline_finds_its_item() {
    check(del_beside_offline);
}

/// R8: a list found in the table, beside its end.
fn lookup_beside_offline() {
    let w = world();
    drop(w.lru.prepare(&w.child, N0).unwrap());
    let other = thread::spawn(move || w.child.offline().unwrap());
    w.lru.add(item(0), &w.child, N0).unwrap();
    other.join().unwrap();
    assert_eq!(w.lru.count_one(w.tree.root(), N0), 1);
    w.end();
}

#[test]
fn r8_a_list_is_freed_after_its_readers() {
    check(lookup_beside_offline);
}

#[test]
#[should_panic]
fn r8_and_is_read_after_its_end_when_freed_at_once() {
    with_mutant("free_without_waiting", || check(lookup_beside_offline));
}

#[test]
#[should_panic]
fn r8_and_when_readers_enter_relaxed() {
    with_mutant("pin_relaxed", || check(lookup_beside_offline));
}

#[test]
#[should_panic]
fn r8_and_when_readers_leave_relaxed() {
    with_mutant("unpin_relaxed", || check(lookup_beside_offline));
}

#[test]
#[should_panic]
fn r8_and_when_the_collector_looks_relaxed() {
    with_mutant("collect_relaxed", || check(lookup_beside_offline));
}

#[test]
fn r7_a_walk_beside_offline_shows_an_item_once() {
    check(|| {
        let w = world();
        w.lru.add(item(0), &w.child, N0).unwrap();
        let other = { thread::spawn(move || w.child.offline().unwrap()) };
        let mut private = Isolated::new();
        let mut removed = w.lru.walk_one(&w.child, N0, &mut 1, |it| it.isolate(&mut private));
        other.join().unwrap();
        removed += w.lru.walk_one(w.tree.root(), N0, &mut 1, |it| it.isolate(&mut private));
        assert_eq!((removed, private.len()), (1, 1));
        w.end();
    });
}

/// A list made by one thread, found by another without a lock.
fn publish_beside_lookup() {
    let w = world();
    drop(w.lru.prepare(w.tree.root(), N0).unwrap());
    let other = { thread::spawn(move || drop(w.lru.prepare(w.tree.root(), NodeId::new(1)).unwrap())) };
    w.lru.walk_one(w.tree.root(), NodeId::new(1), &mut 1, |it| it.skip());
    other.join().unwrap();
    w.end();
}

#[test]
fn a_published_list_is_seen_as_it_was_made() {
    check(publish_beside_lookup);
}

#[test]
#[should_panic]
fn and_not_when_the_table_is_swapped_relaxed() {
    with_mutant("table_relaxed", || check(publish_beside_lookup));
}

/// As above, but into a free slot of the same table.
fn insert_beside_lookup() {
    let w = world();
    drop(w.lru.prepare(w.tree.root(), N0).unwrap());
    drop(w.lru.prepare(w.tree.root(), NodeId::new(1)).unwrap());
    drop(w.lru.prepare(w.tree.root(), NodeId::new(2)).unwrap());
    let other = { thread::spawn(move || drop(w.lru.prepare(w.tree.root(), NodeId::new(3)).unwrap())) };
    w.lru.walk_one(w.tree.root(), NodeId::new(3), &mut 1, |it| it.skip());
    other.join().unwrap();
    w.end();
}

#[test]
fn an_inserted_list_is_seen_as_it_was_made() {
    check(insert_beside_lookup);
}

#[test]
#[should_panic]
fn and_not_when_it_is_published_relaxed() {
    with_mutant("publish_relaxed", || check(insert_beside_lookup));
}

/// An item that leaves one list and joins another on two threads.
fn from_list_to_list() {
    let w = world();
    let second = world();
    drop(second.lru.prepare(w.tree.root(), N0).unwrap());
    let it = item(0);
    w.lru.add(it.clone(), w.tree.root(), N0).unwrap();
    let other = {
        let it = it.clone();
        thread::spawn(move || assert!(w.lru.del(&it).is_some()))
    };
    let moved = second.lru.add(it.clone(), w.tree.root(), N0).is_ok();
    other.join().unwrap();
    assert_eq!(second.lru.count_node(N0), u64::from(moved));
    second.end();
    w.end();
}

#[test]
fn an_item_moves_between_lists_without_a_race_on_its_links() {
    check(from_list_to_list);
}

#[test]
#[should_panic]
fn and_races_when_it_is_let_go_relaxed() {
    with_mutant("unlink_relaxed", || check(from_list_to_list));
}

/// An item found by its home alone, on a list that another thread just made.
fn del_beside_first_add() {
    let w = world();
    let it = item(0);
    let other = {
        let it = it.clone();
        thread::spawn(move || w.lru.add(it, w.tree.root(), N0).unwrap())
    };
    let removed = w.lru.del(&it).is_some();
    other.join().unwrap();
    assert_eq!(w.lru.count_node(N0), u64::from(!removed));
    w.end();
}

#[test]
fn a_list_found_through_its_item_is_seen_as_it_was_made() {
    check(del_beside_first_add);
}

#[test]
#[should_panic]
fn and_not_when_the_item_is_claimed_relaxed() {
    with_mutant("claim_relaxed", || check(del_beside_first_add));
}

/// A listener of one bit, as small as can be.
struct Bit(AtomicBool);

impl Occupancy for Bit {
    fn occupied(&self, _memcg: &Memcg, _node: NodeId) {
        if !crate::mutated!("listener_without_fence") {
            // SeqCst: between the count (stored by the list) and the bit; meets the fence in `clear_if_empty`.
            fence(Ordering::SeqCst);
        }
        // Relaxed: ordered by the fence.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Bit {
    fn clear_if_empty(&self, lru: &ListLru<Item>, memcg: &Memcg) {
        // Relaxed: ordered by the fence.
        self.0.store(false, Ordering::Relaxed);
        // SeqCst: between the bit and the count; meets the fence in `occupied`. It has no twin here: `count_one` enters the read
        // side, whose own fence happens to stand in for it. Listeners must not rely on that.
        fence(Ordering::SeqCst);
        if !crate::mutated!("clear_without_count") && lru.count_one(memcg, N0) != 0 {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// L10: the bit, for an add beside a clear.
fn add_beside_clear() {
    let bit = Arc::new(Bit(AtomicBool::new(true)));
    let w = world_heard_by(Some(bit.clone()));
    drop(w.lru.prepare(w.tree.root(), N0).unwrap());
    let other = thread::spawn(move || w.lru.add(item(0), w.tree.root(), N0).unwrap());
    bit.clear_if_empty(&w.lru, w.tree.root());
    other.join().unwrap();
    assert!(bit.0.load(Ordering::Relaxed), "an object must not be hidden");
    w.end();
}

#[test]
fn l10_an_object_is_never_hidden() {
    check(add_beside_clear);
}

#[test]
#[should_panic]
fn l10_but_is_without_the_listeners_fence() {
    with_mutant("listener_without_fence", || check(add_beside_clear));
}

#[test]
#[should_panic]
fn l10_but_is_without_the_second_count() {
    with_mutant("clear_without_count", || check(add_beside_clear));
}

// === R1 to R11: the races of a group's end, and the orderings that were wrong once ===

/// R2: looks for the one item there is, on the child's list and then on its parent's.
fn look_beside_offline() {
    let w = world();
    w.lru.add(item(0), &w.child, N0).unwrap();
    let other = thread::spawn(move || w.child.offline().unwrap());
    let mut shown = 0;
    for group in [&w.child, w.tree.root()] {
        w.lru.walk_one(group, N0, &mut 1, |it| {
            shown += 1;
            it.skip()
        });
    }
    assert_ne!(shown, 0, "an item is not out of sight between two lists");
    other.join().unwrap();
    w.end();
}

#[test]
fn r2_an_item_is_in_sight_while_its_group_ends() {
    check(look_beside_offline);
}

/// Linux 6.13 to 7.1.
#[test]
#[should_panic]
fn r2_and_is_not_when_the_slot_is_erased_before_the_drain() {
    with_mutant("erase_before_drain", || check(look_beside_offline));
}

#[test]
#[should_panic]
fn r1_and_a_dead_group_is_populated_without_the_dying_check() {
    with_mutant("populate_without_dying_check", || check(add_beside_offline));
}

/// A bit for each of the two groups.
#[derive(Default)]
struct Bits {
    root: core::sync::atomic::AtomicBool,
    child: core::sync::atomic::AtomicBool,
}

impl Occupancy for Bits {
    fn occupied(&self, memcg: &Memcg, _node: NodeId) {
        let bit = if memcg.depth() == 0 { &self.root } else { &self.child };
        bit.store(true, Ordering::Relaxed);
    }
}

fn bits_and_world() -> (Arc<Bits>, &'static World) {
    let bits = Arc::new(Bits::default());
    let tree = MemcgTree::new(1);
    let child = tree.root().create("c").unwrap();
    let lru = ListLru::with_occupancy(bits.clone());
    (bits, Box::leak(Box::new(World { tree, child, lru })))
}

/// R3: an add that may walk up, beside the end of its group.
fn bit_beside_offline() {
    let (bits, w) = bits_and_world();
    let other = thread::spawn(move || w.child.offline().unwrap());
    w.lru.add(item(0), &w.child, N0).unwrap();
    other.join().unwrap();
    assert_eq!(w.lru.count_one(w.tree.root(), N0), 1);
    assert!(bits.root.load(Ordering::Relaxed), "the bit is of the group whose list it is (L10)");
    w.end();
}

#[test]
fn r3_l10_the_bit_is_the_effective_groups() {
    check(bit_beside_offline);
}

/// Linux 4.19 to 7.1.
#[test]
#[should_panic]
fn r3_and_is_lost_when_it_is_that_of_the_group_that_was_passed() {
    with_mutant("bit_of_the_passed", || check(bit_beside_offline));
}

#[test]
#[should_panic]
fn r3_and_is_lost_when_a_drain_sets_that_of_the_dying() {
    with_mutant("bit_of_the_dying", || check(bit_beside_offline));
}

/// R4: who hears of the end finds the items at the parent's already.
#[test]
fn r4_lists_are_reparented_before_anybody_hears_of_it() {
    struct Hears(&'static ListLru<Item>, Arc<core::sync::atomic::AtomicBool>);
    impl OfflineHook for Hears {
        fn offline(&self, dying: &Memcg, parent: &Memcg) {
            assert_eq!(self.0.count_one(dying, N0), 0);
            self.1.store(true, Ordering::Relaxed);
            self.0.walk_one(parent, N0, &mut 1, |it| it.skip());
        }
    }
    check(|| {
        let w = world();
        let heard = Arc::new(core::sync::atomic::AtomicBool::new(false));
        w.tree.add_hook(Arc::new(Hears(&w.lru, heard.clone())));
        let it = item(0);
        w.lru.add(it.clone(), &w.child, N0).unwrap();
        let other = thread::spawn(move || w.child.offline().unwrap());
        assert!(w.lru.del(&it).is_some());
        other.join().unwrap();
        assert!(heard.load(Ordering::Relaxed));
        w.end();
    });
}

/// R6: a del beside the drain; then all counts are of what is there.
#[test]
fn r6_l1_a_del_counts_off_the_list_that_has_the_item() {
    check(del_and_count_beside_offline);
}

fn del_and_count_beside_offline() {
    let w = world();
    let (mine, stays) = (item(0), item(1));
    w.lru.add(mine.clone(), &w.child, N0).unwrap();
    w.lru.add(stays, &w.child, N0).unwrap();
    let other = thread::spawn(move || w.child.offline().unwrap());
    assert!(w.lru.del(&mine).is_some());
    assert!(w.lru.count_one(w.tree.root(), N0) <= 2, "never huge (L2)");
    other.join().unwrap();
    assert_eq!(w.lru.count_one(w.tree.root(), N0), 1);
    w.end();
}

/// Linux until 5.16.
#[test]
#[should_panic]
fn r6_and_not_when_the_id_is_the_parents_before_the_drain() {
    with_mutant("count_of_the_parent", || check(del_and_count_beside_offline));
}

/// R7: the callback gives the lock back, the group ends, the walk goes on.
#[test]
fn r7_l12_a_walk_that_gave_the_lock_back_ends_though_its_group_does() {
    check(|| {
        let w = world();
        w.lru.add(item(0), &w.child, N0).unwrap();
        let other = thread::spawn(move || w.child.offline().unwrap());
        let mut shown = 0;
        w.lru.walk_one(&w.child, N0, &mut 2, |it| {
            shown += 1;
            it.unlock().retry()
        });
        assert!(shown <= 2);
        other.join().unwrap();
        assert_eq!(w.lru.count_one(w.tree.root(), N0), 1, "what was not shown is at the parent's");
        w.end();
    });
}

/// R9: the lists end while the group does.
#[test]
fn r9_l20_a_drop_beside_offline_frees_every_item_once() {
    check(|| {
        let tree = MemcgTree::new(1);
        let child = tree.root().create("c").unwrap();
        let lru = ListLru::<Item>::new();
        let it = item(0);
        lru.add(it.clone(), &child, N0).unwrap();
        let other = {
            let child = child.clone();
            thread::spawn(move || child.offline().unwrap())
        };
        drop(lru);
        other.join().unwrap();
        assert!(!it.links.is_linked());
        assert_eq!(Arc::strong_count(&it), 1);
        // A story that failed is not taken down.
        core::mem::forget((tree, child));
    });
}

/// R10: an item that names a dead group goes, and with it the id, while a new group takes one.
#[test]
fn r10_l18_an_id_is_given_again_only_when_nothing_names_it() {
    check(|| {
        let w = world();
        let it = item(0);
        let dead = w.tree.root().create("d").unwrap();
        let id = dead.id();
        w.lru.add(it.clone(), &dead, N0).unwrap();
        dead.offline().unwrap();
        drop(dead);
        let other = {
            let it = it.clone();
            thread::spawn(move || assert!(w.lru.del(&it).is_some()))
        };
        let heir = w.tree.root().create("h").unwrap();
        assert_eq!(w.lru.count_one(&heir, N0), 0, "it starts clean");
        let linked = it.links.is_linked();
        assert!(!linked || heir.id() != id, "one id, two groups");
        other.join().unwrap();
        w.end();
    });
}

/// R11: totals beside a drain; exact again when it is over (L3).
#[test]
fn r11_l3_totals_after_a_drain_are_what_is_there() {
    check(|| {
        let w = world();
        w.lru.add(item(0), &w.child, N0).unwrap();
        let other = thread::spawn(move || w.child.offline().unwrap());
        assert!(w.lru.count_node(N0) <= 2, "never huge");
        other.join().unwrap();
        assert_eq!(w.lru.count_node(N0), 1);
        w.end();
    });
}

// === the sweep ===

/// A world whose root has an empty list that the last sweep marked.
fn idle_world() -> &'static World {
    let w = world();
    drop(w.lru.prepare(w.tree.root(), N0).unwrap());
    sweep_group(w.tree.root(), &mut Swept::default());
    w
}

fn add_beside_sweep() {
    let w = idle_world();
    let other = thread::spawn(move || sweep_group(w.tree.root(), &mut Swept::default()));
    w.lru.add(item(0), w.tree.root(), N0).unwrap();
    other.join().unwrap();
    assert_eq!((w.lru.count_one(w.tree.root(), N0), w.lru.pairs()), (1, 1));
    w.end();
}

#[test]
fn an_add_beside_a_sweep_finds_a_list_or_makes_one() {
    check(add_beside_sweep);
}

/// R5: the parent's list is swept while the child's is made.
fn populate_beside_sweep() {
    let w = idle_world();
    let other = thread::spawn(move || sweep_group(w.tree.root(), &mut Swept::default()));
    w.lru.add(item(0), &w.child, N0).unwrap();
    other.join().unwrap();
    w.lru.assert_valid(); // L6
    w.child.offline().unwrap();
    assert_eq!(w.lru.count_one(w.tree.root(), N0), 1);
    w.end();
}

#[test]
fn r5_l6_a_populated_group_has_populated_ancestors_beside_a_sweep() {
    check(populate_beside_sweep);
}

#[test]
#[should_panic]
fn r5_and_not_when_the_parents_list_is_not_looked_for_again() {
    with_mutant("populate_without_parent", || check(populate_beside_sweep));
}

#[test]
fn an_offline_beside_a_sweep_loses_nothing() {
    check(|| {
        let w = world();
        drop(w.lru.prepare(&w.child, N0).unwrap());
        sweep_group(&w.child, &mut Swept::default());
        let other = thread::spawn(move || {
            sweep_group(&w.child, &mut Swept::default());
        });
        w.child.offline().unwrap();
        other.join().unwrap();
        assert_eq!(w.lru.pairs(), 1);
        w.end();
    });
}

fn prepare_beside_sweep() {
    let w = idle_world();
    let other = thread::spawn(move || sweep_group(w.tree.root(), &mut Swept::default()));
    let prepared = w.lru.prepare(w.tree.root(), N0).unwrap();
    other.join().unwrap();
    sweep_group(w.tree.root(), &mut Swept::default());
    assert_eq!(w.lru.pairs(), 1);
    drop(prepared);
    w.end();
}

#[test]
fn a_promise_beside_a_sweep_is_kept() {
    check(prepare_beside_sweep);
}

#[test]
#[should_panic]
fn and_not_when_a_swept_list_is_taken_for_a_dying_groups() {
    with_mutant("swept_means_dying", || check(prepare_beside_sweep));
}

/// R7, in the open: the group ends while the walk has given the lock back, and its mark goes along.
#[test]
fn r7_a_mark_that_goes_to_the_parent_is_taken_back() {
    check(|| {
        let w = world();
        w.lru.add(item(0), &w.child, N0).unwrap();
        w.lru.add(item(1), &w.child, N0).unwrap();
        let other = thread::spawn(move || w.child.offline().unwrap());
        w.lru.walk_one(&w.child, N0, &mut 2, |it| {
            let (_gone, unlocked) = it.remove();
            unlocked.retry()
        });
        other.join().unwrap();
        w.end();
    });
}

#[test]
fn l14_of_two_walks_that_retry_one_gets_the_item() {
    check(|| {
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
