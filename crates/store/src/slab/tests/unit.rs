//! Unit tests: one property per test.
//!
//! Objects count their drops, so a test sees when they are dropped. Other tests run at the same
//! time in this process and may delay a grace period; conditions that depend on one are awaited
//! with `eventually`.
//!
//! A change must ensure that no test relies on the moment at which a grace period ends.

use super::thing::{eventually, shared, thing, Thing};
use crate::slab::bag::Weight;
use crate::slab::thread_cache::ThreadCache;
use crate::slab::{RetiredBytes, Slab, Slot, SlotState};
use crate::sync::Mutex;
use crate::CompressedLinks;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use lowwater_base::NodeId;
use lowwater_lru_core::list::Linked;
use lowwater_rcu::pin;

#[test]
fn an_empty_slab_and_one_with_an_object_take_little_memory() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    assert_eq!(slab.footprint().get(), 0);
    assert!(slab.collect() == slab.waiting() && slab.begin_compaction() == 0, "there is nothing");
    slab.end_compaction();
    let _thing = thing(&slab, 1, &dropped);
    // The allowance: 500 bytes for the shared part, 256 for the first chunk, and 144 for the tables
    // of chunks and nodes.
    assert!(slab.footprint().get() < 900, "{:?}", slab.footprint());
}

#[test]
fn each_object_is_dropped_once_and_its_memory_returned() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let mut things: Vec<_> = (0..20_000).map(|number| thing(&slab, number, &dropped)).collect();
    slab.assert_valid();
    assert!(things.iter().enumerate().all(|(number, thing)| thing.number == number && thing.node() == NodeId::ZERO));
    let full = slab.footprint();
    things.truncate(2_000);
    eventually(|| slab.collect().get() == 0);
    assert_eq!(dropped.load(Ordering::Relaxed), 18_000);
    slab.assert_valid();
    assert!(slab.footprint().get() * 4 < full.get(), "{:?} of {full:?}", slab.footprint());
    things.extend((2_000..20_000).map(|number| thing(&slab, number, &dropped)));
    assert!(slab.footprint().get() <= full.get() + (2 << 20));
    drop(things);
    eventually(|| slab.collect().get() == 0);
    assert_eq!(dropped.load(Ordering::Relaxed), 38_000);
    assert_eq!(shared(&slab).used(), 0);
    slab.assert_valid();
}

/// About two objects per 2 MiB remain in the second half, so that no span is released as a whole.
#[test]
#[cfg(all(target_os = "linux", feature = "std", not(miri)))]
fn a_bounded_number_of_empty_chunks_is_kept() {
    const CHUNK: u64 = 64 << 10;
    let (slab, dropped) = (Slab::new(), Arc::default());
    let mut things: Vec<_> = (0..400_000).map(|number| thing(&slab, number, &dropped)).collect();
    let full = slab.footprint().get();
    let mut number = 0;
    things.retain(|_| {
        number += 1;
        number < 200_000 || number % 30_000 == 0
    });
    eventually(|| slab.collect_some(usize::MAX).get() == 0);
    let spared = slab.footprint().get();
    eventually(|| slab.collect().get() == 0);
    let spare = spared - slab.footprint().get();
    // At most 32 chunks (2 MiB), and at most one in 16 of all mapped chunks: the last span is
    // mapped as a whole, also if only a part of it is in use.
    let most = (2 << 20).min(full / 16 + (2 << 20) / 16);
    assert!(spare >= CHUNK && spare <= most, "{spare} of {full} bytes are spare");
    assert!(slab.footprint().get() < full * 6 / 10, "{:?} of {full}", slab.footprint());
    // More chunks become spare. When there are too many, at least half of the maximum is kept.
    // Objects that find no room in other chunks are put into spare chunks first, so these suffice.
    number = 0;
    things.retain(|_| {
        number += 1;
        number < 150_000 || number % 10_000 == 0
    });
    eventually(|| slab.collect_some(usize::MAX).get() == 0);
    let before = slab.footprint().get();
    things.extend((0..12_000).map(|number| thing(&slab, number, &dropped)));
    assert!(slab.footprint().get() <= before, "{:?} after {before}", slab.footprint());
    slab.assert_valid();
}

#[test]
fn no_object_is_dropped_while_a_reader_is_inside() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let things: Vec<_> = (0..5_000).map(|number| thing(&slab, number, &dropped)).collect();
    let guard = pin();
    drop(things);
    assert!(slab.collect().get() > 0 && slab.waiting().get() > 0);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    drop(guard);
    eventually(|| slab.collect().get() == 0);
    assert_eq!((dropped.load(Ordering::Relaxed), slab.waiting().get()), (5_000, 0));
}

/// An object with a large weight, so that few of them fill a bag.
struct Large {
    links: CompressedLinks,
    state: SlotState,
    dropped: Arc<AtomicUsize>,
}

crate::slotted!(impl[] for Large { links, state, weight: |_| 8 << 10 });

impl Drop for Large {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn objects_that_a_reader_held_back_are_dropped_after_it_left() {
    let (slab, dropped) = (Slab::new(), Arc::new(AtomicUsize::new(0)));
    let large = || {
        let large = Large { links: CompressedLinks::new(), state: SlotState::new(0), dropped: Arc::clone(&dropped) };
        slab.alloc(large, NodeId::ZERO).unwrap_or_else(|_| panic!("memory"))
    };
    // So many slots that a bag may have hundreds of objects: its bytes limit it to 16.
    let kept: Vec<_> = (0..20_000).map(|_| large()).collect();
    let mut retired = 2_000;
    {
        let _reader = pin();
        (0..retired).for_each(|_| drop(large()));
    }
    let started = std::time::Instant::now();
    // At most eight bags may wait, of 16 objects of 8 KiB (128 KiB) each: an open, a sealed and a
    // few ready ones.
    while retired - dropped.load(Ordering::Relaxed) > 128 {
        drop(large());
        retired += 1;
        assert!(started.elapsed().as_secs() < 60, "{} of {retired} wait", retired - dropped.load(Ordering::Relaxed));
    }
    drop(kept);
}

#[test]
fn a_bounded_collection_drops_at_most_that_many() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let things: Vec<_> = (0..5_000).map(|number| thing(&slab, number, &dropped)).collect();
    let guard = pin();
    drop(things);
    drop(guard);
    let count = || dropped.load(Ordering::Relaxed);
    let stays = |count: usize| ((5_000 - count) * size_of::<Thing>()) as u64;
    // Readers of other tests may hold some bags back, so one call may drop fewer objects.
    eventually(|| {
        slab.collect_some(100 - count());
        count() >= 100
    });
    assert_eq!(count(), 100);
    let mut waiting = 0;
    eventually(|| {
        waiting = slab.collect_some(200 - count()).get();
        count() >= 200
    });
    assert_eq!((waiting, count()), (stays(200), 200), "all other objects are still waiting");
    // As for a caller that goes over several slabs.
    slab.seal();
    let mut more = 0;
    eventually(|| {
        more += slab.drop_some(300 - more);
        more == 300
    });
    assert_eq!((count(), slab.waiting().get()), (500, stays(500)));
    eventually(|| slab.collect().get() == 0);
    assert_eq!(dropped.load(Ordering::Relaxed), 5_000);
}

#[test]
fn slabs_add_their_retired_bytes_to_a_shared_counter() {
    let (total, dropped) = (Arc::new(RetiredBytes::new()), Arc::default());
    let slabs = [0, 1].map(|_| Slab::with_retired(Arc::clone(&total)));
    let of = |number: usize| (number * size_of::<Thing>()) as u64;
    // The thread cache of each slab may hold back 4 KiB from the counter; one such step more as a
    // margin.
    let near = |bytes: u64| total.get().get().abs_diff(bytes) <= 3 * (4 << 10);
    let guard = pin();
    for slab in &slabs {
        drop((0..3_000).map(|number| thing(slab, number, &dropped)).collect::<Vec<_>>());
    }
    assert!(near(of(6_000)), "{total:?}, and {} were retired", of(6_000));
    for slab in &slabs {
        // Sealed, counted exactly, and held back by the reader.
        assert_eq!(slab.collect().get(), of(3_000));
    }
    assert_eq!(total.get().get(), of(6_000));
    let [first, second] = slabs;
    drop(first);
    assert_eq!(
        (total.get().get(), dropped.load(Ordering::Relaxed)),
        (of(3_000), 3_000),
        "a dropped slab drops its own retired objects only"
    );
    drop(guard);
    let kept = thing(&second, 0, &dropped);
    eventually(|| second.collect().get() == 0);
    assert_eq!(total.get().get(), 0);
    drop(second);
    drop(kept);
    assert_eq!((total.get().get(), dropped.load(Ordering::Relaxed)), (0, 6_001));
}

#[test]
fn only_small_negative_sums_count_as_none() {
    let retired = RetiredBytes::new();
    for bytes in [1 << 20, 1 << 63, u64::MAX - (1 << 56)] {
        retired.add(bytes as i64);
        assert_eq!(retired.get().get(), bytes);
        retired.add((bytes as i64).wrapping_neg());
    }
    retired.add(-(1 << 20));
    assert_eq!(retired.get().get(), 0, "{retired:?}");
}

#[test]
fn an_object_that_was_never_indexed_can_be_moved_out() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let inner = thing(&slab, 7, &dropped).into_inner().ok().expect("no reader saw it");
    assert_eq!((inner.number, dropped.load(Ordering::Relaxed)), (7, 0));
    let seen = thing(&slab, 8, &dropped);
    // As if it had been inserted into an index and removed from it.
    seen.state.enter();
    assert!(!seen.state.leave());
    assert!(seen.into_inner().is_err());
}

#[test]
fn handles_outlive_the_slab() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let things: Vec<_> = (0..3_000).map(|number| thing(&slab, number, &dropped)).collect();
    drop((0..10).map(|number| thing(&slab, number, &dropped)).collect::<Vec<_>>());
    drop(slab);
    assert_eq!(dropped.load(Ordering::Relaxed), 10);
    assert_eq!(things[2_999].number, 2_999);
    drop(things);
    assert_eq!(dropped.load(Ordering::Relaxed), 3_010, "there are no readers to wait for");
}

/// The first one that is dropped drops the slab that contains it.
struct Owner {
    links: CompressedLinks,
    state: SlotState,
    slab: Arc<Mutex<Option<Slab<Owner>>>>,
}

crate::slotted!(impl[] for Owner { links, state, weight: |owner| size_of_val(owner) as u64 });

impl Drop for Owner {
    fn drop(&mut self) {
        let slab = self.slab.lock().take();
        drop(slab);
    }
}

#[test]
fn a_slab_may_be_dropped_by_the_drop_of_its_object() {
    let (slab, place) = (Slab::new(), Arc::default());
    let owner = |_| {
        let owner = Owner { links: CompressedLinks::new(), state: SlotState::new(0), slab: Arc::clone(&place) };
        slab.alloc(owner, NodeId::ZERO).unwrap_or_else(|_| panic!("memory"))
    };
    let mut owners: Vec<_> = (0..super::super::shared::OPEN_MIN + 2).map(owner).collect();
    let last = owners.pop();
    drop(owners);
    let pass = || {
        shared(&slab).thread_caches.all().any(|thread_cache| {
            let mut thread_cache = thread_cache.lock();
            shared(&slab).advance(&mut thread_cache, true);
            thread_cache.ready.len() >= 2
        })
    };
    eventually(pass);
    *place.lock() = Some(slab);
    // This retires `last` and drops a ready object, whose drop drops the slab, and with it all
    // other objects, `last` included. The shared part must exist until the last slot is free.
    drop(last);
    assert_eq!(Arc::strong_count(&place), 1, "everything was dropped");
}

#[test]
fn objects_are_prefetched_in_the_order_of_their_drops() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let things: Vec<_> = (0..3 * super::super::shared::OPEN_MIN).map(|number| thing(&slab, number, &dropped)).collect();
    drop(things);
    let advance = || {
        let mut thread_cache = shared(&slab).thread_caches.local().lock();
        shared(&slab).advance(&mut thread_cache, true);
        thread_cache.ready.len() >= 4
    };
    eventually(advance);
    let layout = Thing::LAYOUT;
    // The slot allocation prefetches the first object.
    let given = thing(&slab, 0, &dropped);
    let mut thread_cache = shared(&slab).thread_caches.local().lock();
    let [second, third] = core::array::from_fn(|_| thread_cache.ready.prefetch_next(layout).unwrap());
    let pop = |thread_cache: &mut ThreadCache| {
        let links = thread_cache.ready.pop(layout).unwrap();
        // SAFETY: the links came from a bag, and return to one.
        unsafe { thread_cache.open.push(layout, links, Weight::pack(0)) };
        links
    };
    let _first = pop(&mut thread_cache);
    assert_eq!(pop(&mut thread_cache), second);
    let fourth = thread_cache.ready.prefetch_next(layout).unwrap();
    assert_eq!(
        [pop(&mut thread_cache), pop(&mut thread_cache)],
        [third, fourth],
        "removed objects do not move the cursor"
    );
    let left = thread_cache.ready.len();
    for _ in 0..2 {
        // The object at the cursor was popped, so prefetching begins at the first object; after the
        // last one it begins again.
        let asked = core::iter::from_fn(|| thread_cache.ready.prefetch_next(layout)).count();
        assert_eq!(asked, left as usize);
    }
    drop(thread_cache);
    drop(given);
}

#[test]
fn handles_of_several_slabs_are_dropped_in_one_call() {
    let (slabs, dropped) = ([Slab::new(), Slab::new(), Slab::new()], Arc::default());
    // Runs shorter than, equal to and longer than a batch of 8 (`RETIRE_MAX`).
    let runs = [(0, 1), (1, 20), (0, 3), (2, 8), (1, 1)];
    let handles = runs.iter().flat_map(|&(slab, len)| (0..len).map(move |n| (slab, n)));
    let handles: Vec<_> = handles.map(|(slab, n)| thing(&slabs[slab], n, &dropped)).collect();
    Slot::drop_all(handles);
    Slot::<Thing>::drop_all([]);
    slabs.iter().for_each(|slab| eventually(|| slab.collect().get() == 0));
    assert_eq!(dropped.load(Ordering::Relaxed), 33);
    for slab in &slabs {
        slab.assert_valid();
        assert_eq!(shared(slab).used(), 0, "each slot went back to its own slab");
    }
}

#[test]
fn a_batch_of_handles_waits_for_readers_as_one_does() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let things: Vec<_> = (0..100).map(|number| thing(&slab, number, &dropped)).collect();
    let guard = pin();
    Slot::drop_all(things);
    assert_eq!(slab.collect().get(), (100 * size_of::<Thing>()) as u64);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    drop(guard);
    eventually(|| slab.collect().get() == 0);
    assert_eq!(dropped.load(Ordering::Relaxed), 100);
}

#[test]
fn a_batch_may_be_dropped_after_its_slab() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let things: Vec<_> = (0..20).map(|number| thing(&slab, number, &dropped)).collect();
    drop(slab);
    Slot::drop_all(things);
    assert_eq!(dropped.load(Ordering::Relaxed), 20, "at once: the slab has no readers");
}

// Without `std` the panic cannot be caught.
#[cfg(feature = "std")]
#[test]
fn a_panic_of_the_iterator_drops_the_handles_before_it() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    let things: Vec<_> = (0..20).map(|number| thing(&slab, number, &dropped)).collect();
    let mut left = 5;
    let fails = things.into_iter().inspect(|_| {
        left -= 1;
        assert!(left > 0, "the iterator's own fault");
    });
    let drop_all = core::panic::AssertUnwindSafe(|| Slot::drop_all(fails));
    assert!(std::panic::catch_unwind(drop_all).is_err());
    eventually(|| slab.collect().get() == 0);
    assert_eq!(dropped.load(Ordering::Relaxed), 20);
    slab.assert_valid();
}

#[cfg(feature = "std")]
#[test]
fn a_panicking_drop_is_counted_and_frees_the_slot() {
    use super::thing::PANICS;
    let (slab, dropped) = (Slab::new(), Arc::default());
    (0..100).for_each(|n| drop(thing(&slab, if n % 10 == 0 { PANICS } else { n }, &dropped)));
    eventually(|| slab.collect().get() == 0);
    assert_eq!((dropped.load(Ordering::Relaxed), slab.drop_panics()), (100, 10));
    slab.assert_valid();
}

#[test]
fn slots_are_allocated_on_the_requested_node() {
    let (slab, dropped) = (Slab::<Thing>::new(), Arc::<AtomicUsize>::default());
    let node = |n: usize| NodeId::new((n % 3) as u16);
    for round in 0..4 {
        let things: Vec<_> = (0..1_000)
            .map(|number| {
                let dropped = Arc::clone(&dropped);
                let thing = Thing { links: CompressedLinks::new(), state: SlotState::new(0), number, dropped };
                slab.alloc(thing, node(number)).unwrap_or_else(|_| panic!("memory"))
            })
            .collect();
        assert!(things.iter().all(|thing| thing.node() == node(thing.number)), "in round {round}");
        slab.assert_valid();
    }
    eventually(|| slab.collect().get() == 0);
    assert_eq!(shared(&slab).used(), 0);
}

#[test]
fn threads_that_allocate_and_retire_leak_no_object() {
    let (slab, dropped) = (Slab::new(), Arc::default());
    std::thread::scope(|s| {
        for t in 0..4 {
            let (slab, dropped) = (&slab, &dropped);
            s.spawn(move || {
                let mut mine = Vec::new();
                for step in 0..20_000 {
                    mine.push(thing(slab, t << 24 | step, dropped));
                    if step % 3 != 0 {
                        let at = (step * 7_919) % mine.len();
                        let gone = mine.swap_remove(at);
                        assert_eq!(gone.number >> 24, t);
                    }
                }
            });
        }
    });
    eventually(|| slab.collect().get() == 0);
    assert_eq!((dropped.load(Ordering::Relaxed), shared(&slab).used()), (80_000, 0));
    slab.assert_valid();
}
