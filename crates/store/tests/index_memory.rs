//! The memory of a large index: the resident memory of the process is that of the reported
//! footprints, while the index grows and after it shrank.
//!
//! A test program of its own, since resident memory is counted per process, and readers of other
//! tests would delay the free of replaced segments.
//!
//! A bound may be lowered; a change that raises one must be explained in docs/DESIGN.md.

// crossbeam-epoch, the read side with `lowwater_epoch`, frees later.
#![cfg(all(target_os = "linux", feature = "std", not(miri), not(lowwater_loom), not(lowwater_epoch)))]

use lowwater_lru_core::list_lru::sweep;
use lowwater_lru_core::{MemcgTree, NodeId};
use lowwater_rcu::pin;
use lowwater_store::index::Cursor;
use lowwater_store::slab::{Slot, SlotState};
use lowwater_store::ExtendibleIndex;
use lowwater_store::{slotted, CompressedLinks};
use std::fs::read_to_string;
use std::hint::black_box;
use std::sync::Barrier;

struct Thing(CompressedLinks, SlotState, u64);

slotted!(impl[] for Thing { 0, 1, weight: |thing| size_of_val(thing) as u64 });

fn hash(thing: &Thing) -> u64 {
    thing.2.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29)
}

/// Returns the bytes of anonymous memory, swapped out or not. Pages of the program's file are not
/// among them: the system may drop these at any time.
fn resident() -> u64 {
    // Linux before 4.14 or without `CONFIG_PROC_PAGE_MONITOR`, and some containers, have no
    // `smaps_rollup`. The counts of `status` may be off: by 64 pages for each thread, since Linux
    // 6.2 by a batch for each processor.
    let (counts, names) = match read_to_string("/proc/self/smaps_rollup") {
        Ok(counts) => (counts, ["Anonymous:", "Swap:"]),
        Err(_) => (read_to_string("/proc/self/status").expect("/proc is mounted"), ["RssAnon:", "VmSwap:"]),
    };
    let kib = |name: &str| {
        let line = counts.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |line| line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap())
    };
    let [anonymous, swapped] = names.map(kib);
    assert!(anonymous > 0, "/proc/self does not count anonymous memory: {counts}");
    (anonymous + swapped) << 10
}

fn insert(index: &ExtendibleIndex<Thing>, key: u64) -> Slot<Thing> {
    let thing = Thing(CompressedLinks::new(), SlotState::new(0), key);
    let (slot, guard) = (index.slab().alloc(thing, NodeId::ZERO).ok().expect("memory"), pin());
    let hash_of_slot = hash(&slot);
    index
        .insert(slot, hash_of_slot, &guard, |present, new| present.2 == new.2, &hash, |slot, _| Ok(slot))
        .expect("memory")
        .1
}

fn remove(index: &ExtendibleIndex<Thing>, handle: Slot<Thing>) {
    let has_key = |thing: &Thing| thing.2 == handle.2;
    assert!(index.remove(hash(&handle), &pin(), has_key, &hash, |_| ()).is_some());
}

/// The allowed difference between resident and reported memory, in bytes: freed segments of the
/// small index, which came from the allocator and stay there, and chunks that are reported and not
/// touched yet.
const DIFFERENCE_MAX: u64 = 1_000_000;

#[test]
fn resident_memory_follows_the_entries() {
    const N: u64 = 1_050_000;
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        return println!("skipped: a sanitizer has memory of its own");
    }
    // A huge page is resident as soon as a part of it is used.
    rustix::thread::disable_transparent_huge_pages(true).expect("a process may do with small pages");
    let tree = MemcgTree::new(0);
    // `black_box`, so that each element is written and the vector is resident before the first
    // measurement.
    let mut handles: Vec<_> = (0..N).map(|_| black_box(None)).collect();
    let before = resident();
    let index = ExtendibleIndex::<Thing>::new();
    let mut per_entry_max = 0.0_f64;
    for key in 0..N {
        handles[key as usize] = Some(insert(&index, key));
        if key > N / 2 && key % 50_000 == 0 {
            // Flushes the retired segments of the whole process (`lowwater_rcu::flush`), as the
            // background of a cache does.
            sweep(tree.root());
            let (slab, own) = (index.slab().footprint().get(), index.footprint().get());
            let measured = resident() - before;
            assert!(
                measured.abs_diff(slab + own) < DIFFERENCE_MAX,
                "{measured} bytes are resident; the footprints are {slab} and {own}"
            );
            per_entry_max = per_entry_max.max(own as f64 / key as f64);
        }
    }
    assert!(per_entry_max <= 10.0, "{per_entry_max} bytes of the index for each entry");
    let full = index.footprint().get();

    // One entry of ten remains.
    for key in 0..N {
        if key % 10 != 0 {
            remove(&index, handles[key as usize].take().expect("each once"));
        }
    }
    sweep(tree.root());
    while index.collect().get() != 0 {}
    let (slab, own) = (index.slab().footprint().get(), index.footprint().get());
    assert!(own * 3 < full, "{own} of {full} bytes");
    let measured = resident() - before;
    assert!(
        measured.abs_diff(slab + own) < 2 * DIFFERENCE_MAX,
        "{measured} bytes are resident; the footprints are {slab} and {own}"
    );
    index.assert_valid(&hash);
    let (mut cursor, mut seen) = (Cursor::new(), 0);
    while !cursor.is_done() {
        index.visit(&mut cursor, &pin(), |thing| seen += u64::from(thing.2 % 10 == 0));
    }
    assert_eq!(seen, N / 10);
    // Segments that a reader of another thread has held back are freed by a collection.
    let (is_inside, may_leave) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _reader = pin();
            is_inside.wait();
            may_leave.wait();
        });
        is_inside.wait();
        handles.into_iter().flatten().for_each(|handle| remove(&index, handle));
        may_leave.wait();
    });
    index.collect();
    let collected = index.footprint();
    sweep(tree.root());
    index.collect();
    assert_eq!(collected, index.footprint(), "some replaced segments stayed");
    drop(index);
    sweep(tree.root());
    assert!(resident() < before + 3 * DIFFERENCE_MAX, "memory is kept after the index was dropped");
}
