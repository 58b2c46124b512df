//! Slabs and indexes with an allocator that counts and that fails.
//!
//! A refused allocation must be an error and never a lost object, and `footprint` must be exact to
//! the byte.

// With `lowwater_epoch` the read side is crossbeam-epoch, which aborts without memory.
#![cfg(all(not(lowwater_loom), not(lowwater_epoch)))]

#[path = "../../base/tests/faulty/mod.rs"]
mod faulty;

use faulty::{refused_after, ALLOCATED};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use lowwater_lru_core::list_lru::sweep;
use lowwater_lru_core::{ListLru, MemcgTree, NodeId};
use lowwater_rcu::pin;
use lowwater_store::__base::slots::ChunkTable;
use lowwater_store::index::InsertError;
use lowwater_store::slab::{Slab, Slot, SlotState};
use lowwater_store::ExtendibleIndex;
use lowwater_store::{slotted, CompressedLinks};

/// True if the chunk table is allocated from the heap, in parts of 1,024 chunks. Otherwise the
/// system maps it once.
fn numbers_allocate() -> bool {
    !cfg!(all(target_os = "linux", feature = "std", not(miri)))
}

struct Thing(CompressedLinks, SlotState);

slotted!(impl[] for Thing { 0, 1, weight: |thing| size_of_val(thing) as u64 });

fn thing(slab: &Slab<Thing>) -> Option<Slot<Thing>> {
    slab.alloc(Thing(CompressedLinks::new(), SlotState::new(0)), NodeId::ZERO).ok()
}

/// Frees retired objects.
fn settle() {
    sweep(MemcgTree::new(0).root());
}

/// Runs one test at a time, because a test could free and count the retired objects of another. The
/// first call allocates process-wide state, which stays.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static FIRST: Once = Once::new();
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    FIRST.call_once(each_allocation_of_a_process_first_object_may_fail);
    settle();
    guard
}

fn each_allocation_of_a_process_first_object_may_fail() {
    // From the last to the first: those for chunks that all slabs share, without which the slab has
    // a chunk of its own; the vectors of nodes and of chunks, and the slab's shared part.
    for nth in (0..8).rev() {
        let slab = Slab::new();
        let (first, came) = refused_after(nth, || thing(&slab));
        assert_eq!(first.is_none(), nth < 3, "allocation {nth} was refused");
        assert!(came || nth >= 3, "there are allocations for each slab");
        assert!(thing(&slab).is_some(), "but there is memory again");
    }
    // As many shared chunks as any test needs: their tables stay.
    let slabs = [Slab::new(), Slab::new(), Slab::new()];
    let _things: Vec<_> = slabs.iter().flat_map(|slab| (0..10_000).map(|_| thing(slab))).collect();
}

/// A walk that releases the lock leaves a cursor on the list. Links between slots are numbers of
/// the chunk table, so the cursor takes such a number, too, for which the table may have to grow.
#[test]
fn a_walk_without_memory_for_its_cursor_ends_and_loses_nothing() {
    let _alone = alone();
    let (tree, slab) = (MemcgTree::new(0), Slab::new());
    let lru = ListLru::<Thing>::new();
    let add = |thing| lru.add(thing, tree.root(), NodeId::ZERO).expect("the object is on no list");
    (0..3).for_each(|_| add(thing(&slab).unwrap()));
    let mut removed = Vec::with_capacity(3);
    let mut walk = |nth| {
        let ((), came) = refused_after(nth, || {
            lru.walk_one(tree.root(), NodeId::ZERO, &mut 3, |it| {
                let (handle, unlocked) = it.remove();
                removed.push(handle);
                unlocked.retry()
            });
        });
        lru.assert_valid();
        let nr = removed.len();
        removed.drain(..).for_each(add);
        (nr, came)
    };
    // Uses up numbers until the table has to grow for the cursor's.
    let mut place = 0_u64;
    let mut used_up = 0;
    while walk(0) == (3, false) {
        if used_up == 1_100 {
            assert!(!numbers_allocate(), "those that an allocation gives are used up by then");
            return;
        }
        used_up += 1;
        assert!(ChunkTable::global().register((&raw mut place).cast(), 1 << 19).is_some());
    }
    assert_eq!([walk(0), walk(1), walk(0)], [(1, true), (3, false), (3, false)], "it ends; then there is memory");
    assert_eq!(lru.count_one(tree.root(), NodeId::ZERO), 3);
}

/// More objects than the 1,024 slots from which a slab has several thread caches.
const THINGS: usize = 3_000;

#[test]
fn a_slab_continues_after_a_failed_allocation() {
    let _alone = alone();
    let before = ALLOCATED.get();
    let (mut footprints, mut unseen) = (Vec::with_capacity(200), 0);
    for nth in 0.. {
        let slab = Slab::new();
        let mut things = Vec::with_capacity(THINGS);
        let fill = || (0..THINGS).for_each(|_| things.extend(thing(&slab)));
        let ((), came) = refused_after(nth, fill);
        slab.assert_valid();
        assert!(things.len() >= THINGS - 1, "one is refused at most ({nth})");
        unseen += usize::from(came && things.len() == THINGS);
        things.extend((things.len()..THINGS).filter_map(|_| thing(&slab)));
        assert_eq!(things.len(), THINGS);
        footprints.push(slab.footprint());
        if !came {
            break;
        }
    }
    assert!(footprints.len() > 6, "{footprints:?}");
    assert!(footprints.iter().all(|footprint| footprint == &footprints[0]), "all is as with memory: {footprints:?}");
    // A shared chunk is allocated only where the system maps none.
    let wanted = 2 + usize::from(numbers_allocate());
    assert_eq!(unseen, wanted, "the thread caches, their pointer, and a shared chunk can be done without");
    drop(footprints);
    settle();
    assert_eq!(ALLOCATED.get(), before);
}

/// The bytes allocated by this thread since `before`.
fn since(before: isize) -> u64 {
    u64::try_from(ALLOCATED.get() - before).expect("nothing was freed that was there before")
}

/// A full chunk, which with `std` on Linux comes from the system, not from the allocator. Smaller
/// ones are parts of chunks that slabs share.
const CHUNK: u64 = 64 << 10;

#[test]
fn a_slabs_footprint_equals_its_allocations() {
    let _alone = alone();
    let before = ALLOCATED.get();
    let slab = Slab::new();
    assert_eq!(slab.footprint().get(), since(before), "a new slab");
    let mut things = Vec::with_capacity(40_000);
    let vec = (things.capacity() * size_of::<Slot<Thing>>()) as u64;
    let (mut chunks, mut last) = (0, slab.footprint().get());
    for nr in 1..=things.capacity() {
        things.push(thing(&slab).unwrap());
        let now = slab.footprint().get();
        if now != last {
            settle();
            chunks = slab.footprint().get() + vec - since(before);
            // The smaller chunks together are as large as a full one.
            // Where the system maps none, a second shared chunk is one of the allocator.
            let is_small = chunks <= CHUNK && chunks.is_power_of_two() || numbers_allocate() && chunks == 0;
            let is_full = !numbers_allocate() && chunks % CHUNK == 0;
            assert!(is_small || is_full, "{chunks} bytes for {nr} objects are not the allocator's");
            assert!(numbers_allocate() || chunks >= (nr * size_of::<Thing>()) as u64, "{chunks} bytes, {nr} objects");
        }
        last = now;
    }
    assert!(chunks > 10 * CHUNK || numbers_allocate(), "{chunks} bytes of chunks");
    things.clear();
    while slab.collect().get() != 0 {}
    settle();
    assert_eq!(slab.footprint().get() + vec, since(before), "without an object and without a chunk");
    drop((slab, things));
    assert_eq!(ALLOCATED.get(), before);
}

#[test]
fn an_indexes_footprint_equals_its_allocations() {
    let _alone = alone();
    let first = ALLOCATED.get();
    let index = Box::new(ExtendibleIndex::<Thing>::new());
    let mut handles = Vec::with_capacity(10_000);
    let things: Vec<_> = (0..handles.capacity()).map(|_| thing(index.slab()).unwrap()).collect();
    settle();
    let (none, before) = (index.footprint(), ALLOCATED.get());
    for thing in things {
        let (of, guard) = (hash(&thing), pin());
        let (_, handle) = index.insert(thing, of, &guard, |_, _| false, &hash, |slot, _| Ok(slot)).unwrap();
        handles.push(handle);
        drop(guard);
        if handles.len() % 97 == 0 {
            settle();
            assert_eq!(index.footprint().get() - none.get(), since(before), "{} objects", handles.len());
        }
    }
    assert!(index.footprint().get() > 50_000, "{:?}", index.footprint());
    remove_all(handles.drain(..), &index);
    drop((handles, index));
    settle();
    assert_eq!(ALLOCATED.get(), first);
}

/// Entries of an index with segments from the allocator only, with some in a pool, and with nearly
/// all in a pool.
#[cfg(not(miri))]
const LARGE: [usize; 3] = [60_000, 75_000, 140_000];

/// An index with `nr` entries.
#[cfg(not(miri))]
fn filled(nr: usize, handles: &mut Vec<Slot<Thing>>) -> ExtendibleIndex<Thing> {
    let index = ExtendibleIndex::new();
    put_more(&index, nr, handles);
    index
}

/// Inserts entries until there are `nr`; returns how often there was no memory.
#[cfg(not(miri))]
fn put_more(index: &ExtendibleIndex<Thing>, nr: usize, handles: &mut Vec<Slot<Thing>>) -> usize {
    let mut refused = 0;
    while handles.len() < nr {
        let Some(thing) = thing(index.slab()) else {
            refused += 1;
            continue;
        };
        let (of, guard) = (mixed(&thing), pin());
        match index.insert(thing, of, &guard, |_, _| false, &mixed, |slot, _| Ok(slot)) {
            Ok((_, handle)) => handles.push(handle),
            Err(InsertError::NoMemory(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    refused
}

/// A hash that differs in its first bits, too.
#[cfg(not(miri))]
fn mixed(thing: &Thing) -> u64 {
    hash(thing).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29)
}

#[test]
#[cfg(all(target_os = "linux", feature = "std", not(miri)))] // Elsewhere all of it is allocated.
fn a_large_indexes_footprint_equals_its_allocations_and_chunks() {
    let _alone = alone();
    let first = ALLOCATED.get();
    let mut handles = Vec::with_capacity(LARGE[2]);
    let index = filled(LARGE[0], &mut handles);
    settle();
    let others = (index.slab().footprint().get(), index.footprint().get(), ALLOCATED.get());
    put_more(&index, LARGE[2], &mut handles);
    settle();
    index.collect();
    let slab = index.slab().footprint().get() - others.0;
    let told = slab + index.footprint().get() - others.1;
    let chunks = i128::from(told) - (ALLOCATED.get() - others.2) as i128;
    assert!(
        chunks >= 20 * i128::from(CHUNK) && chunks % i128::from(CHUNK) == 0,
        "{chunks} bytes are not the allocator's"
    );
    for handle in handles.drain(..) {
        assert!(index.remove(mixed(&handle), &pin(), |thing| std::ptr::eq(thing, &*handle), &mixed, |_| ()).is_some());
    }
    drop((handles, index));
    settle();
    assert_eq!(ALLOCATED.get(), first);
}

/// Refuses every third of the first 45 allocations while a pool comes into use.
#[test]
#[cfg(not(miri))]
fn a_large_index_continues_after_a_failed_allocation() {
    let _alone = alone();
    let before = ALLOCATED.get();
    let (mut handles, mut times) = (Vec::with_capacity(LARGE[1]), 0);
    for nth in (0..45).step_by(3) {
        let index = filled(LARGE[0], &mut handles);
        let (refused, came) = refused_after(nth, || put_more(&index, LARGE[1], &mut handles));
        assert!(refused <= usize::from(came), "{refused} of the one ({nth})");
        for handle in handles.drain(..) {
            let (guard, is) = (pin(), |thing: &Thing| std::ptr::eq(thing, &*handle));
            assert!(index.remove(mixed(&handle), &guard, is, &mixed, |_| ()).is_some(), "none is lost ({nth})");
        }
        index.assert_valid(&mixed);
        while index.collect().get() != 0 {}
        times += usize::from(came);
    }
    drop(handles);
    settle();
    assert_eq!(ALLOCATED.get(), before);
    assert_eq!(times, 15, "there are more allocations than that");
}

const ENTRIES: usize = 1_200;

fn hash(thing: &Thing) -> u64 {
    std::ptr::from_ref(thing).addr() as u64
}

/// Removes the objects of these handles from the index, if they are found.
fn remove_all(handles: impl Iterator<Item = Slot<Thing>>, index: &ExtendibleIndex<Thing>) {
    for handle in handles {
        let guard = pin();
        let is = |thing: &Thing| std::ptr::eq(thing, &*handle);
        assert!(index.get(hash(&handle), &guard, is).is_some(), "it is found");
        assert!(index.remove(hash(&handle), &guard, is, &hash, |_| ()).is_some(), "it is removed");
    }
}

/// Fills an index and empties it again; returns how often there was no memory, and the index.
fn fill_and_empty(handles: &mut Vec<Slot<Thing>>) -> (usize, ExtendibleIndex<Thing>) {
    let (mut refused, index) = (0, ExtendibleIndex::new());
    while handles.len() < ENTRIES {
        let Some(thing) = thing(index.slab()) else {
            refused += 1;
            continue;
        };
        let (of, guard) = (hash(&thing), pin());
        match index.insert(thing, of, &guard, |_, _| false, &hash, |slot, _| Ok(slot)) {
            Ok((_, handle)) => handles.push(handle),
            Err(InsertError::NoMemory(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    remove_all(handles.drain(..), &index);
    (refused, index)
}

#[test]
fn an_index_continues_after_a_failed_allocation() {
    let _alone = alone();
    let before = ALLOCATED.get();
    let (mut handles, mut seen, mut unseen) = (Vec::with_capacity(ENTRIES), 0, 0);
    for nth in 0.. {
        let ((refused, index), came) = refused_after(nth, || fill_and_empty(&mut handles));
        index.assert_valid(&hash);
        assert!(refused <= usize::from(came), "{refused} of the one ({nth})");
        (seen, unseen) = (seen + refused, unseen + usize::from(came) - refused);
        while index.slab().collect().get() != 0 {}
        if !came {
            break;
        }
    }
    assert!(seen > 5 && unseen > 10, "{seen} failures were reported, {unseen} were tolerated");
    drop(handles);
    settle();
    assert_eq!(ALLOCATED.get(), before);
}
