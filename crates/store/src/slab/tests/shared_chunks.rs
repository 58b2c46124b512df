//! Shared chunks: parts of several slabs in one chunk.
//!
//! Slabs of other tests have parts in the same chunks at the same time. A change must ensure that
//! no test assumes which chunk a part is in, unless it owns all shared chunks (`SharedChunks`).

use super::thing::{eventually, thing, thing_on, Thing};
use crate::slab::shared_chunks::{Part, SharedChunks, FIRST, LAYOUT, ORDERS, UNITS};
use crate::slab::{SharedSlab, Slab, Slot, SlotState};
use crate::CompressedLinks;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use lowwater_base::slots::chunk_header::OWNED_BYTES;
use lowwater_base::slots::{ChunkHeader, ChunkLayout, ChunkOwner};
use lowwater_base::NodeId;

/// An object of a given size.
struct Sized<const BYTES: usize> {
    links: CompressedLinks,
    state: SlotState,
    bytes: [u8; BYTES],
}

crate::slotted!(impl[const BYTES: usize] for Sized<BYTES> { links, state, weight: |_| 1 });

/// Allocates `nr` objects, whose bytes are `fill`.
fn sized<const BYTES: usize>(slab: &Slab<Sized<BYTES>>, nr: usize, fill: u8) -> Vec<Slot<Sized<BYTES>>> {
    let new = || Sized { links: CompressedLinks::new(), state: SlotState::new(0), bytes: [fill; BYTES] };
    (0..nr).map(|_| slab.alloc(new(), NodeId::ZERO).unwrap_or_else(|_| panic!("memory"))).collect()
}

fn is_intact<const BYTES: usize>(slab: &Slab<Sized<BYTES>>, all: &[Slot<Sized<BYTES>>], fill: u8) -> bool {
    slab.assert_valid();
    all.iter().all(|object| {
        // SAFETY: the object has its handle, so its slot is not free.
        let number = unsafe { SharedSlab::number(object.0) };
        // SAFETY: as above.
        let at = unsafe { SharedSlab::<Sized<BYTES>>::at(number) };
        slab.has(object) && at == object.0 && object.bytes == [fill; BYTES]
    })
}

#[test]
fn slabs_of_several_types_share_chunks() {
    for nr in [1, 3, 40, 700] {
        let slabs = (Slab::<Sized<3>>::new(), Slab::<Sized<40>>::new(), Slab::<Sized<200>>::new(), Slab::new());
        // Objects of which four do not fit in the smallest part, and those with larger chunks.
        let large = Slab::<Sized<5_000>>::new();
        let things = (sized(&slabs.0, nr, 1), sized(&slabs.1, nr, 2), sized(&slabs.2, nr, 3), sized(&slabs.3, nr, 4));
        let of_large: Vec<Slot<Sized<5_000>>> = sized(&large, nr.min(40), 5);
        let things_of_3: &Vec<Slot<Sized<900>>> = &things.3;
        assert!(is_intact(&slabs.0, &things.0, 1) && is_intact(&slabs.1, &things.1, 2));
        assert!(is_intact(&slabs.2, &things.2, 3) && is_intact(&slabs.3, things_of_3, 4));
        assert!(is_intact(&large, &of_large, 5));
        drop(things.1);
        assert!(is_intact(&slabs.0, &things.0, 1) && is_intact(&slabs.2, &things.2, 3));
        eventually(|| slabs.1.collect().get() == 0);
        assert!(is_intact(&slabs.1, &sized(&slabs.1, nr, 6), 6));
    }
}

#[test]
fn small_slabs_take_few_chunks() {
    let (dropped, slabs): (Arc<_>, Vec<_>) = (Arc::default(), (0..100).map(|_| Slab::new()).collect());
    let things: Vec<_> = slabs.iter().map(|slab| thing(slab, 1, &dropped)).collect();
    assert!(slabs.iter().all(|slab| slab.footprint().get() < 1_024), "{:?}", slabs[0].footprint());
    drop((things, slabs));
    assert_eq!(dropped.load(Ordering::Relaxed), 100);
    let mut chunks = SharedChunks::new();
    let nr: usize = if cfg!(miri) { 300 } else { 1_000 };
    let parts: Vec<_> = (0..nr).map(|_| chunks.take(0, NodeId::ZERO).expect("memory")).collect();
    assert_eq!(chunks.in_use(), nr.div_ceil(UNITS - FIRST));
    // SAFETY: the parts were taken from these chunks, and no slot in them was used.
    parts.iter().for_each(|part| unsafe { chunks.put(part) });
    chunks.give_back();
}

#[test]
fn a_part_is_on_the_node_of_its_objects() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let things: Vec<_> = (0..30).map(|number| thing_on(&slab, number, number as u16 % 3, &dropped)).collect();
    assert!(things.iter().all(|thing| thing.node() == NodeId::new(thing.number as u16 % 3)));
    slab.assert_valid();
}

#[test]
#[cfg(not(miri))]
fn threads_make_and_drop_small_slabs() {
    std::thread::scope(|s| {
        for thread in 0..4 {
            s.spawn(move || {
                let mut kept: Vec<(Slab<Sized<40>>, _)> = Vec::new();
                for round in 0..500_usize {
                    let slab = Slab::new();
                    let things = sized(&slab, 1 + (round * 7 + thread) % 60, round as u8);
                    kept.push((slab, things));
                    if round % 3 == 0 {
                        drop(kept.swap_remove((round * 5) % kept.len()));
                    }
                }
                assert!(kept.iter().all(|(slab, all)| is_intact(slab, all, all[0].bytes[0])));
            });
        }
    });
}

/// The parts of a private set of shared chunks never overlap, each lies behind the header and is
/// aligned to its size, and the chunks without a part are returned.
#[test]
fn parts_are_disjoint_and_return_their_chunks() {
    let mut chunks = SharedChunks::new();
    let mut parts: Vec<Part> = Vec::new();
    let mut random = 1_u32;
    for round in 0..if cfg!(miri) { 300 } else { 5_000 } {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (order, takes) = ((random >> 8) as usize % ORDERS, random >> 28);
        let is_shrinking = round % 1_000 > 600;
        if takes < if is_shrinking { 5 } else { 11 } {
            let part = chunks.take(order, NodeId::new(round as u16 % 2)).expect("memory");
            assert_eq!(part.bytes().len(), OWNED_BYTES << order);
            assert!(part.bytes().start >= FIRST * OWNED_BYTES && part.bytes().end <= LAYOUT.full);
            assert_eq!(part.bytes().start % part.bytes().len(), 0);
            let overlaps = |other: &&Part| {
                let (a, b) = (other.bytes(), part.bytes());
                other.chunk() == part.chunk() && a.start < b.end && b.start < a.end
            };
            assert!(!parts.iter().any(|other| overlaps(&other)), "in round {round}");
            parts.push(part);
        } else if !parts.is_empty() {
            let part = parts.swap_remove(random as usize / 7 % parts.len());
            // SAFETY: the part was taken from these chunks, and no slot in it was used.
            unsafe { chunks.put(&part) };
        }
    }
    // SAFETY: as above.
    parts.drain(..).for_each(|part| unsafe { chunks.put(&part) });
    assert_eq!(chunks.in_use(), 2, "one of each node stays");
    // A whole chunk can be had again as its two largest parts but one.
    let (large, half) =
        (chunks.take(ORDERS - 1, NodeId::ZERO).unwrap(), chunks.take(ORDERS - 2, NodeId::ZERO).unwrap());
    assert!(large.chunk() == half.chunk() && chunks.in_use() <= 2);
    // SAFETY: as above.
    [large, half].iter().for_each(|part| unsafe { chunks.put(part) });
    chunks.give_back();
}

/// A small slab that is made and dropped again and again maps no memory each time, although the
/// other chunks are full.
#[test]
fn an_empty_chunk_stays_beside_full_ones() {
    let mut chunks = SharedChunks::new();
    let mut take = |order| chunks.take(order, NodeId::ZERO).expect("memory");
    let full: Vec<_> = [7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0].map(&mut take).into();
    let small = take(0);
    let nr = chunks.in_use();
    for _ in 0..3 {
        // SAFETY: the part was taken from these chunks, and no slot in it was used.
        unsafe { chunks.put(&small) };
        assert_eq!(chunks.in_use(), nr);
        assert_eq!(chunks.take(0, NodeId::ZERO).expect("memory").bytes(), small.bytes());
    }
    // SAFETY: as above.
    full.iter().chain([&small]).for_each(|part| unsafe { chunks.put(part) });
    assert_eq!(chunks.in_use(), 1);
    chunks.give_back();
}

#[test]
fn each_unit_of_a_shared_chunk_has_an_owner_of_its_own() {
    const { assert!(FIRST * OWNED_BYTES >= ChunkHeader::shared_size(LAYOUT.full) && FIRST < UNITS) };
    let layout = ChunkLayout::of::<Sized<40>>();
    let get =
        |number| Part::get(1 << 10, &layout, NodeId::ZERO, || ChunkOwner::new(core::ptr::null(), number)).unwrap();
    let parts = [get(7), get(8)];
    for (part, number) in parts.iter().zip([7, 8]) {
        for offset in part.bytes().step_by(16) {
            // SAFETY: the part is in use, so its chunk has a header and owners.
            let owner = unsafe { ChunkHeader::owner_at(part.chunk(), offset) };
            // SAFETY: `Part::get` has initialized the owners of the part.
            assert_eq!(unsafe { owner.as_ref() }.number, number);
        }
    }
    // SAFETY: no slot of the parts was used.
    parts.into_iter().for_each(|part| unsafe { part.put() });
    // Too large, of a type whose chunks are larger, and of one whose slots' numbers have more bits.
    let owner = || ChunkOwner::new(core::ptr::null(), 0);
    assert!(Part::get(1 << 10, &ChunkLayout::of::<u64>(), NodeId::ZERO, owner).is_none());
    assert!(Part::get(LAYOUT.full, &layout, NodeId::ZERO, owner).is_none());
    assert!(Part::get(1 << 10, &ChunkLayout::of::<[u64; 1_000]>(), NodeId::ZERO, owner).is_none());
}

/// A process with more chunks than there are numbers for shares no more of them.
#[test]
fn chunks_are_shared_up_to_64_gib() {
    assert_eq!(u64::from(LAYOUT.numbers_end()) * LAYOUT.full as u64, 64 << 30);
    const { assert!(ChunkLayout::of::<Sized<0>>().bits <= LAYOUT.bits) };
}

/// The part is freed with its last object, after the slab.
#[test]
fn an_object_of_a_part_outlives_its_slab() {
    let (slab, dropped) = (Slab::<Thing>::new(), Arc::default());
    let kept = thing(&slab, 5, &dropped);
    drop(slab);
    let others: Vec<_> = (0..20).map(|_| Slab::new()).collect();
    let _things: Vec<_> = others.iter().map(|slab| thing(slab, 6, &dropped)).collect();
    assert_eq!((kept.number, dropped.load(Ordering::Relaxed)), (5, 0));
    drop(kept);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}
