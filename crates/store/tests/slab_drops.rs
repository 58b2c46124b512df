//! Objects of a slab with a `Drop`, or a weigher, that uses the slab: no lock is held, and the
//! stack stays small.
//!
//! Nested drops are deferred to the outermost call (`slab/nest.rs`); a stack of 256 KiB shows that
//! the depth is bounded.
//!
//! A change must ensure that the small stack stays: a deeper one would hide a recursion.
#![forbid(unsafe_code)]

use lowwater_lru_core::NodeId;
use lowwater_rcu::pin;
use lowwater_store::slab::{Slab, Slot, SlotState};
use lowwater_store::{slotted, CompressedLinks};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Far more than the stack frames that the small stack has room for. Fewer in a debug build, which
/// is slow and has larger frames.
#[cfg(debug_assertions)]
const OBJECTS: u64 = 200_000;
#[cfg(not(debug_assertions))]
const OBJECTS: u64 = 1_000_000;

/// An object that calls a function when it is weighed, and when it is dropped. Objects with another
/// `KIND` have another type.
struct Object<const KIND: usize> {
    links: CompressedLinks,
    state: SlotState,
    weigh: fn() -> u64,
    on_drop: Option<Box<dyn FnOnce() + Send + Sync>>,
}
slotted!(impl[const KIND: usize] for Object<KIND> { links, state, weight: |object| (object.weigh)() });

impl<const KIND: usize> Drop for Object<KIND> {
    fn drop(&mut self) {
        if let Some(call) = self.on_drop.take() {
            call();
        }
    }
}

fn weighing<const KIND: usize>(
    slab: &Slab<Object<KIND>>,
    weigh: fn() -> u64,
    on_drop: impl FnOnce() + Send + Sync + 'static,
) -> Slot<Object<KIND>> {
    let on_drop: Box<dyn FnOnce() + Send + Sync> = Box::new(on_drop);
    let object = Object { links: CompressedLinks::new(), state: SlotState::new(0), weigh, on_drop: Some(on_drop) };
    slab.alloc(object, NodeId::ZERO).map_err(|_| "no memory").unwrap()
}

fn object<const KIND: usize>(
    slab: &Slab<Object<KIND>>,
    on_drop: impl FnOnce() + Send + Sync + 'static,
) -> Slot<Object<KIND>> {
    weighing(slab, || 100, on_drop)
}

/// Handles for other objects to drop.
struct Handles<const KIND: usize>(Mutex<Vec<Slot<Object<KIND>>>>);

impl<const KIND: usize> Handles<KIND> {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Vec::new())))
    }

    fn drop_one(&self) -> bool {
        let slot = self.0.lock().unwrap().pop();
        slot.is_some()
    }
}

/// Runs `f` on a small stack in a separate process, because a stack overflow kills the process.
/// `test` must be the name of the calling test.
fn on_a_small_stack(test: &str, f: impl FnOnce() + Send + 'static) {
    // Not 0, with which a process ends that has run no test.
    const DONE: i32 = 77;
    if std::env::var("LOWWATER_ON_A_SMALL_STACK").is_ok_and(|of| of == test) {
        std::thread::Builder::new().stack_size(256 << 10).spawn(f).unwrap().join().unwrap();
        std::process::exit(DONE);
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("LOWWATER_ON_A_SMALL_STACK", test)
        .output()
        .unwrap();
    assert_eq!(child.status.code(), Some(DONE), "{}: {}", child.status, String::from_utf8_lossy(&child.stderr));
}

/// Adds the handles of `OBJECTS` objects to `handles`. Each object drops `each` handles of `next`
/// when it is dropped.
fn fill<const KIND: usize, const NEXT: usize>(
    slab: &Slab<Object<KIND>>,
    handles: &Arc<Handles<KIND>>,
    next: &Arc<Handles<NEXT>>,
    each: usize,
    dropped: &Arc<AtomicU64>,
) {
    for _ in 0..OBJECTS {
        let (next, dropped) = (Arc::downgrade(next), Arc::clone(dropped));
        let object = object(slab, move || {
            dropped.fetch_add(1, Ordering::Relaxed);
            if let Some(next) = next.upgrade() {
                (0..each).for_each(|_| _ = next.drop_one());
            }
        });
        handles.0.lock().unwrap().push(object);
    }
}

fn collect_until<const KIND: usize>(slab: &Slab<Object<KIND>>, dropped: &AtomicU64, all: u64) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while dropped.load(Ordering::Relaxed) < all {
        slab.collect();
        assert!(std::time::Instant::now() < deadline, "{dropped:?} of {all} objects were dropped");
    }
    assert_eq!(dropped.load(Ordering::Relaxed), all);
}

#[test]
fn nested_drops_need_little_stack() {
    on_a_small_stack("nested_drops_need_little_stack", || {
        let (slab, handles, dropped) = (Slab::<Object<0>>::new(), Handles::new(), Arc::default());
        fill(&slab, &handles, &handles, 1, &dropped);
        while handles.drop_one() {}
        collect_until(&slab, &dropped, OBJECTS);
        slab.assert_valid();
    });
}

/// The objects wait for a reader, and are dropped by a collection, or by the drop of the slab.
#[test]
fn nested_drops_that_waited_for_a_reader_need_little_stack() {
    on_a_small_stack("nested_drops_that_waited_for_a_reader_need_little_stack", || {
        for is_collected in [true, false] {
            let (slab, handles, dropped) = (Slab::<Object<0>>::new(), Handles::new(), Arc::default());
            fill(&slab, &handles, &handles, 3, &dropped);
            let guard = pin();
            (0..OBJECTS / 2).for_each(|_| assert!(handles.drop_one()));
            drop(guard);
            if is_collected {
                collect_until(&slab, &dropped, OBJECTS);
                slab.assert_valid();
            } else {
                drop(slab);
                assert_eq!(
                    dropped.load(Ordering::Relaxed),
                    OBJECTS,
                    "an object with a handle is dropped with the handle"
                );
            }
        }
    });
}

/// Each `Drop` calls `collect`.
#[test]
fn drops_that_collect_need_little_stack() {
    on_a_small_stack("drops_that_collect_need_little_stack", || {
        let (slab, dropped) = (Arc::new(Slab::<Object<0>>::new()), Arc::new(AtomicU64::new(0)));
        let guard = pin();
        for _ in 0..OBJECTS / 10 {
            let (slab_too, dropped) = (Arc::downgrade(&slab), Arc::clone(&dropped));
            drop(object(&slab, move || {
                dropped.fetch_add(1, Ordering::Relaxed);
                if let Some(slab) = slab_too.upgrade() {
                    slab.collect();
                }
            }));
        }
        drop(guard);
        collect_until(&slab, &dropped, OBJECTS / 10);
    });
}

#[test]
fn drops_across_two_slabs_need_little_stack() {
    fn of<const OTHER: usize>() {
        let (one, other) = (Slab::<Object<0>>::new(), Slab::<Object<OTHER>>::new());
        let (handles, others, dropped) = (Handles::new(), Handles::new(), Arc::default());
        fill(&one, &handles, &others, 1, &dropped);
        fill(&other, &others, &handles, 1, &dropped);
        while handles.drop_one() || others.drop_one() {}
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while dropped.load(Ordering::Relaxed) < 2 * OBJECTS {
            one.collect();
            other.collect();
            assert!(std::time::Instant::now() < deadline, "{dropped:?} of {} objects", 2 * OBJECTS);
        }
        one.assert_valid();
        other.assert_valid();
    }
    on_a_small_stack("drops_across_two_slabs_need_little_stack", || {
        of::<0>(); // Both slabs have objects of one type.
        of::<1>();
    });
}

/// Objects of a dropped slab are dropped with their handles, and drop further handles.
#[cfg(feature = "std")]
#[test]
fn drops_without_their_slab_need_little_stack() {
    on_a_small_stack("drops_without_their_slab_need_little_stack", || {
        let (slab, handles, dropped) = (Slab::<Object<0>>::new(), Handles::new(), Arc::default());
        fill(&slab, &handles, &handles, 1, &dropped);
        drop(slab);
        assert!(handles.drop_one());
        assert_eq!(dropped.load(Ordering::Relaxed), OBJECTS);
    });
}

/// A chain: each object owns the slab and the handle of the next object, like nested boxes.
#[cfg(feature = "std")]
#[test]
fn slabs_that_own_each_other_need_little_stack() {
    on_a_small_stack("slabs_that_own_each_other_need_little_stack", || {
        let dropped = Arc::new(AtomicU64::new(0));
        let mut row: Option<(Slot<Object<0>>, Slab<Object<0>>)> = None;
        const SLABS: u64 = 5_000;
        for _ in 0..SLABS {
            let slab = Slab::new();
            let (inner, dropped) = (row.take(), Arc::clone(&dropped));
            let slot = object(&slab, move || {
                dropped.fetch_add(1, Ordering::Relaxed);
                drop(inner);
            });
            row = Some((slot, slab));
        }
        drop(row);
        assert_eq!(dropped.load(Ordering::Relaxed), SLABS);
    });
}

/// Puts an object in the slab that puts another one there when it is dropped, and so on while
/// `is_on`.
fn put_returning(slab: &Arc<Slab<Object<9>>>, returned: &Arc<AtomicU64>, is_on: &'static AtomicBool, collects: bool) {
    let (again, of) = (Arc::downgrade(slab), Arc::clone(returned));
    let slot = object(slab, move || {
        of.fetch_add(1, Ordering::Relaxed);
        if let Some(slab) = again.upgrade().filter(|_| is_on.load(Ordering::Relaxed)) {
            put_returning(&slab, &of, is_on, collects);
            if collects {
                slab.collect();
            }
        }
    });
    drop(slot);
}

#[test]
fn objects_that_return_when_they_are_dropped_do_not_keep_their_thread() {
    static IS_ON: [AtomicBool; 2] = [const { AtomicBool::new(true) }; 2];
    for (collects, is_on) in [false, true].into_iter().zip(&IS_ON) {
        let (slab, returned) = (Arc::new(Slab::new()), Arc::new(AtomicU64::new(0)));
        let puts = 1_000;
        for n in 1..=puts {
            put_returning(&slab, &returned, is_on, collects);
            let returned = returned.load(Ordering::Relaxed);
            assert!(returned <= 200 * n, "{returned} objects were dropped by {n} calls");
        }
        is_on.store(false, Ordering::Relaxed);
        // One of each is waiting to be dropped.
        let all = returned.load(Ordering::Relaxed) + puts;
        collect_until(&slab, &returned, all);
    }
}

/// The slab stays usable if, while an object is dropped, the drop of another one panics.
#[cfg(feature = "std")]
#[test]
fn a_panic_inside_a_nested_drop_loses_nothing() {
    let (slab, handles, dropped) = (Slab::<Object<0>>::new(), Handles::<0>::new(), Arc::new(AtomicU64::new(0)));
    for n in 0..1_000 {
        let (handles_too, dropped) = (Arc::downgrade(&handles), Arc::clone(&dropped));
        let slot = object(&slab, move || {
            dropped.fetch_add(1, Ordering::Relaxed);
            let _ended = handles_too.upgrade().is_some_and(|handles| handles.drop_one());
            assert!(n % 7 != 0, "the object's own fault");
        });
        handles.0.lock().unwrap().push(slot);
    }
    while handles.drop_one() {}
    collect_until(&slab, &dropped, 1_000);
    assert_eq!(slab.drop_panics(), 143);
    slab.assert_valid();
}

/// A weigher that uses the slab is called without a lock.
#[test]
fn a_weight_may_use_the_slab() {
    static SLAB: Mutex<Option<Arc<Slab<Object<7>>>>> = Mutex::new(None);
    let slab = Arc::new(Slab::<Object<7>>::new());
    *SLAB.lock().unwrap() = Some(slab.clone());
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..100 {
            drop(weighing(
                &slab,
                || {
                    let slab = SLAB.lock().unwrap().clone().unwrap();
                    drop(object(&slab, || ()));
                    slab.collect();
                    100
                },
                || (),
            ));
        }
        slab.assert_valid();
        end.send(()).unwrap();
    });
    ended.recv_timeout(std::time::Duration::from_secs(60)).expect("the drop waits for its own lock");
    *SLAB.lock().unwrap() = None;
}

/// A weigher that panics, or returns the maximum, keeps no lock and no object.
#[cfg(feature = "std")]
#[test]
fn a_panicking_or_maximal_weight_keeps_no_object() {
    let (slab, dropped) = (Arc::new(Slab::<Object<0>>::new()), Arc::new(AtomicU64::new(0)));
    let (end, ended) = std::sync::mpsc::channel();
    let theirs = (slab.clone(), dropped.clone());
    std::thread::spawn(move || {
        let (slab, dropped) = theirs;
        for n in 0..300 {
            let dropped = dropped.clone();
            let weigh: fn() -> u64 = match n % 3 {
                0 => || panic!("the weigher's own fault"),
                1 => || u64::MAX,
                _ => || 0,
            };
            drop(weighing(&slab, weigh, move || _ = dropped.fetch_add(1, Ordering::Relaxed)));
        }
        end.send(()).unwrap();
    });
    ended.recv_timeout(std::time::Duration::from_secs(60)).expect("the lock was given back");
    collect_until(&slab, &dropped, 300);
    assert_eq!((slab.drop_panics(), slab.waiting().get()), (100, 0));
    slab.assert_valid();
}

/// The destructor of a thread-local drops handles, on a thread that uses the library only then. (On
/// a thread that used the library before: `hazards/late.rs`.)
#[test]
fn a_handle_may_be_dropped_by_a_late_thread_local() {
    type Late = (Vec<Slot<Object<0>>>, Arc<Slab<Object<0>>>);
    std::thread_local! { static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) }; }
    let (slab, handles, dropped) = (Arc::new(Slab::<Object<0>>::new()), Handles::<0>::new(), Arc::default());
    fill(&slab, &handles, &handles, 1, &dropped);
    let theirs = (core::mem::take(&mut *handles.0.lock().unwrap()), slab.clone());
    std::thread::spawn(move || LATE.with_borrow_mut(|late| *late = Some(theirs))).join().unwrap();
    collect_until(&slab, &dropped, OBJECTS);
    slab.assert_valid();
}

/// A leaked handle leaks its object with its chunk and the slab's shared part, and delays no other
/// object.
#[test]
fn a_leaked_handle_keeps_its_object() {
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        println!("skipped: a sanitizer would report the leak that this makes");
        return;
    }
    let dropped = Arc::new(AtomicU64::new(0));
    let slab = Slab::<Object<0>>::new();
    let theirs = dropped.clone();
    core::mem::forget(object(&slab, move || _ = theirs.fetch_add(1, Ordering::Relaxed)));
    let theirs = dropped.clone();
    drop(object(&slab, move || _ = theirs.fetch_add(1, Ordering::Relaxed)));
    collect_until(&slab, &dropped, 1);
    drop(slab);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

/// The largest node, and objects that are larger than a chunk, or aligned to more than a page.
#[test]
fn large_and_overaligned_objects_are_placed_correctly() {
    #[repr(align(16384))]
    struct Aligned {
        links: CompressedLinks,
        state: SlotState,
    }
    slotted!(impl[] for Aligned { links, state, weight: |_| 1 });
    struct Large {
        links: CompressedLinks,
        state: SlotState,
        last: [u8; 200_000],
    }
    slotted!(impl[] for Large { links, state, weight: |_| 1 });
    let (aligned, large) = (Slab::<Aligned>::new(), Slab::<Large>::new());
    let mut slots = Vec::new();
    for n in 0..40 {
        let node = NodeId::new(if n % 2 == 0 { u16::MAX } else { 0 });
        let links = || (CompressedLinks::new(), SlotState::new(0));
        let small = aligned.alloc(Aligned { links: links().0, state: links().1 }, node).ok().unwrap();
        assert!(core::ptr::from_ref(&*small).addr() % 16384 == 0 && small.node() == node);
        let last = [n; 200_000];
        slots.push((small, large.alloc(Large { links: links().0, state: links().1, last }, node).ok().unwrap()));
    }
    aligned.assert_valid();
    large.assert_valid();
    assert!(slots.iter().zip(0..).all(|((_, large), n)| large.last[0] == n && large.last[199_999] == n));
}
