//! A large index uses its memory well, while it grows and after it shrank. In a separate process:
//! resident memory is per process, and readers of other tests would hold segments back.

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

struct Thing(CompressedLinks, SlotState, u64);

slotted!(impl[] for Thing { 0, 1, weight: |thing| size_of_val(thing) as u64 });

fn hash(thing: &Thing) -> u64 {
    thing.2.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29)
}

fn resident() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

fn put(index: &ExtendibleIndex<Thing>, key: u64) -> Slot<Thing> {
    let thing = Thing(CompressedLinks::new(), SlotState::new(0), key);
    let (slot, guard) = (index.slab().alloc(thing, NodeId::ZERO).ok().expect("memory"), pin());
    let of = hash(&slot);
    index.insert(slot, of, &guard, |there, new| there.2 == new.2, &hash, |slot, _| Ok(slot)).expect("memory").1
}

fn take_out(index: &ExtendibleIndex<Thing>, handle: Slot<Thing>) {
    let is = |thing: &Thing| thing.2 == handle.2;
    assert!(index.remove(hash(&handle), &pin(), is, &hash, |_| ()).is_some());
}

/// The allowed difference between resident and reported memory, at any size: outgrown segments from
/// before the pool, which the allocator keeps, and chunks that were not touched yet.
const BESIDES: u64 = 1_000_000;

#[test]
fn what_is_resident_is_what_is_used() {
    const N: u64 = 1_050_000;
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        return println!("skipped: a sanitizer has memory of its own");
    }
    // A huge page is resident as soon as a part of it is used.
    rustix::thread::disable_transparent_huge_pages(true).expect("a process may do with small pages");
    let tree = MemcgTree::new(0);
    // Written, so that it is resident from the beginning: an optimized build would use zeroed
    // memory.
    let mut handles: Vec<_> = (0..N).map(|_| black_box(None)).collect();
    let before = resident();
    let index = ExtendibleIndex::<Thing>::new();
    let mut most = 0.0_f64;
    for key in 0..N {
        handles[key as usize] = Some(put(&index, key));
        if key > N / 2 && key % 50_000 == 0 {
            // As a cache does in the background.
            sweep(tree.root());
            let (slab, has) = (index.slab().footprint().get(), index.footprint().get());
            let is = resident() - before;
            assert!(is.abs_diff(slab + has) < BESIDES, "{is} bytes are resident; the footprints are {slab} and {has}");
            most = most.max(has as f64 / key as f64);
        }
    }
    assert!(most <= 10.0, "{most} bytes of the index for each entry");
    let full = index.footprint().get();

    // One entry of ten remains.
    for key in 0..N {
        if key % 10 != 0 {
            take_out(&index, handles[key as usize].take().expect("each once"));
        }
    }
    sweep(tree.root());
    while index.collect().get() != 0 {}
    let (slab, has) = (index.slab().footprint().get(), index.footprint().get());
    assert!(has * 3 < full, "{has} of {full} bytes");
    let is = resident() - before;
    assert!(is.abs_diff(slab + has) < 2 * BESIDES, "{is} bytes are resident; the footprints are {slab} and {has}");
    index.assert_valid(&hash);
    let (mut cursor, mut seen) = (Cursor::new(), 0);
    while !cursor.is_done() {
        index.visit(&mut cursor, &pin(), |thing| seen += u64::from(thing.2 % 10 == 0));
    }
    assert_eq!(seen, N / 10);
    handles.into_iter().flatten().for_each(|handle| take_out(&index, handle));
    drop(index);
    sweep(tree.root());
    assert!(resident() < before + 3 * BESIDES, "everything went back");
}
