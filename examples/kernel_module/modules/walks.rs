// SPDX-License-Identifier: GPL-2.0

//! Every verdict of a walk, every refusal of a list, and the removal of all objects.
//!
//! A test: C visits a rotated object again until the walk's visits are used up, and `kernel_lru`
//! must not. The other checks fail the load of the module. A change must keep the texts, which
//! `guest.sh` searches for.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kernel::{c_str, new_mutex, prelude::*, sync::Mutex};
use kernel_lru::{
    AddError, Isolate, Isolated, ListLru, LruArc, LruStatus, NodeId, Prepared, ShrinkerBuilder,
};

#[path = "../kernel_lru/mod.rs"]
mod kernel_lru;

module! {
    type: Walks,
    name: "walks",
    author: "lowwater",
    description: "Walks with each verdict",
    license: "GPL",
}

/// The objects: more than `ListLru::clear` removes at a time, and not a multiple of that.
/// `ci/rust-kernel.sh` expects this number of visits.
const OBJECTS: usize = 2500;
/// More visits than there are objects.
const VISITS: u64 = 20_000;

/// The objects that were created and not dropped.
static ALIVE: AtomicU64 = AtomicU64::new(0);

struct Object {
    number: usize,
    visits: AtomicU64,
}

impl Object {
    fn new(number: usize) -> Self {
        ALIVE.fetch_add(1, Relaxed);
        Self {
            number,
            visits: AtomicU64::new(0),
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Relaxed);
    }
}

/// Returns an error, with a line in the log, if a check failed.
fn ensure(is_right: bool, check: &str) -> Result {
    if is_right {
        return Ok(());
    }
    pr_err!("{check}: failed\n");
    Err(EINVAL)
}

/// Creates lists with `OBJECTS` objects.
fn filled(prepared: &Prepared) -> Result<ListLru<Object>> {
    let lru = ListLru::try_with_occupancy(prepared.occupancy())?;
    for number in 0..OBJECTS {
        let object = lru.alloc(Object::new(number), GFP_KERNEL)?;
        lru.add_obj(object).map_err(|_| EEXIST)?;
    }
    Ok(lru)
}

/// Walks the lists of each node, of which only those of one group have objects, and reports the
/// visits: all of them, and those of the object that was visited most.
fn walk<F>(name: &str, lru: &ListLru<Object>, verdict: F) -> Result
where
    F: for<'a> Fn(Isolate<'a, Object>) -> LruStatus<'a>,
{
    let mut visits = KVVec::with_capacity(OBJECTS, GFP_KERNEL)?;
    for _ in 0..OBJECTS {
        visits.push(0_u32, GFP_KERNEL)?;
    }
    let mut used = 0;
    for node in NodeId::all() {
        let mut left = VISITS;
        lru.walk_node(node, &mut left, |it| {
            if let Some(of_it) = visits.get_mut(it.item().number) {
                *of_it += 1;
            }
            verdict(it)
        });
        used += VISITS - left;
    }
    let most = visits.iter().max().copied().unwrap_or(0);
    pr_info!("{name} {used} visits of {OBJECTS}, at most {most} of one\n");
    Ok(())
}

/// Walks a node's list with a verdict, and returns the visits and the removed objects.
fn walk_node<F>(lru: &ListLru<Object>, node: NodeId, verdict: F) -> (u64, u64)
where
    F: for<'a> Fn(Isolate<'a, Object>) -> LruStatus<'a>,
{
    let mut left = VISITS;
    let removed = lru.walk_node(node, &mut left, |it| {
        it.item().visits.fetch_add(1, Relaxed);
        verdict(it)
    });
    (VISITS - left, removed)
}

/// Returns the largest number of visits of one object of a node since the last call, and the number
/// of objects that were visited.
fn most_visits(lru: &ListLru<Object>, node: NodeId) -> (u64, u64) {
    let (mut most, mut visited) = (0, 0);
    lru.walk_node(node, &mut VISITS.clone(), |it| {
        let of_it = it.item().visits.swap(0, Relaxed);
        most = most.max(of_it);
        visited += u64::from(of_it > 0);
        it.skip()
    });
    (most, visited)
}

/// Checks each verdict that releases the lock, and leaves the lists empty.
fn check_unlocked(lru: &ListLru<Object>) -> Result {
    ensure(lru.count() == OBJECTS as u64, "filled")?;
    for node in NodeId::all() {
        let present = lru.count_node(node);
        if present == 0 {
            continue;
        }
        most_visits(lru, node);

        // Each object is removed and added again, as the youngest.
        let done = walk_node(lru, node, |it| {
            let (object, unlocked) = it.remove();
            // The count after the walk shows a refusal.
            let _ = lru.add_obj(object);
            unlocked.retry()
        });
        ensure(done == (present, present), "remove, add, retry")?;
        ensure(most_visits(lru, node) == (1, present), "one visit of each")?;
        ensure(lru.count_node(node) == present, "count after add")?;

        // The walk begins again at the same object.
        let done = walk_node(lru, node, |it| it.unlock().retry());
        ensure(done == (present, 0), "unlock, retry")?;
        ensure(most_visits(lru, node) == (present, 1), "visits of one")?;

        let done = walk_node(lru, node, |it| it.unlock().stop());
        ensure(done == (1, 0), "unlock, stop")?;
        ensure(lru.count_node(node) == present, "count after stop")?;

        let alive = ALIVE.load(Relaxed);
        let done = walk_node(lru, node, |it| it.remove().1.stop());
        ensure(done == (1, 1), "remove, stop")?;
        ensure(lru.count_node(node) == present - 1, "count after remove")?;
        ensure(ALIVE.load(Relaxed) == alive - 1, "drop after remove")?;

        // Another removal than the walk's: the walk must not touch the object again.
        let done = walk_node(lru, node, |it| {
            let (object, unlocked) = (it.arc(), it.unlock());
            drop(lru.del(&object));
            unlocked.retry()
        });
        ensure(done == (present - 1, 0), "unlock, del, retry")?;
        ensure(lru.count_node(node) == 0, "count after each del")?;
        ensure(ALIVE.load(Relaxed) == alive - present, "drop after del")?;
    }
    ensure(lru.count() == 0, "emptied")
}

/// Returns whether the lists refuse an object because it is linked.
fn is_refused(lru: &ListLru<Object>, object: &LruArc<Object>) -> bool {
    match lru.add_obj(object.clone()) {
        Err(AddError::Linked(handle)) => LruArc::ptr_eq(&handle, object),
        _ => false,
    }
}

/// Checks what empty lists refuse: objects of other lists, on a list, and isolated ones.
fn check_refusals(lru: &ListLru<Object>, other: &ListLru<Object>) -> Result {
    let object = lru.alloc(Object::new(0), GFP_KERNEL)?;
    ensure(lru.del(&object).is_none(), "del of an unlinked object")?;
    let added = other.add_obj(object.clone());
    ensure(
        matches!(&added, Err(AddError::Foreign(_))),
        "add to other lists",
    )?;
    let handle = added.map_or_else(AddError::into_handle, |()| object.clone());
    ensure(lru.add_obj(handle).is_ok(), "add")?;
    ensure(is_refused(lru, &object), "second add")?;
    ensure(other.del(&object).is_none(), "del from other lists")?;
    ensure((lru.count(), other.count()) == (1, 0), "count of one")?;

    let mut old = Isolated::new();
    for node in NodeId::all() {
        lru.walk_node(node, &mut VISITS.clone(), |it| it.isolate(&mut old));
    }
    ensure((lru.count(), old.len()) == (0, 1), "isolate")?;
    ensure(lru.del(&object).is_none(), "del of an isolated object")?;
    ensure(is_refused(lru, &object), "add of an isolated object")?;
    drop(old);
    ensure(lru.add_obj(object.clone()).is_ok(), "add after a walk")?;
    let owned = lru.del(&object);
    ensure(
        owned.is_some_and(|owned| LruArc::ptr_eq(&owned, &object)),
        "del after a walk",
    )?;
    ensure(lru.add_obj(object.clone()).is_ok(), "add after del")?;
    ensure(lru.del(&object).is_some(), "second del")?;
    ensure(lru.count() == 0, "count after del")
}

/// Checks that a handle is usable after its list was dropped with the object on it.
fn check_handle_outlives(prepared: &Prepared) -> Result {
    let alive = ALIVE.load(Relaxed);
    let lru = ListLru::try_with_occupancy(prepared.occupancy())?;
    let object = lru.alloc(Object::new(7), GFP_KERNEL)?;
    lru.add_obj(object.clone()).map_err(|_| EEXIST)?;
    drop(lru);
    ensure(
        (object.number, ALIVE.load(Relaxed)) == (7, alive + 1),
        "a handle without its lists",
    )?;
    let again = object.clone();
    drop(object);
    ensure(again.number == 7, "a second handle without its lists")?;
    drop(again);
    ensure(ALIVE.load(Relaxed) == alive, "drop without the lists")
}

/// An object that must not move.
#[pin_data]
struct Pinned {
    #[pin]
    number: Mutex<usize>,
    object: Object,
}

/// Checks objects that are initialized in place, and a callback that sleeps after it has unlocked.
fn check_pinned(prepared: &Prepared) -> Result {
    let alive = ALIVE.load(Relaxed);
    let lru = ListLru::try_with_occupancy(prepared.occupancy())?;
    let failed = lru.try_pin_init(
        try_pin_init!(Pinned {
            object: Object::new(0),
            number <- new_mutex!(Err::<usize, Error>(EAGAIN)?),
        }? Error),
        GFP_KERNEL,
    );
    ensure(
        matches!(failed, Err(error) if error == EAGAIN),
        "an initializer that fails",
    )?;
    ensure(ALIVE.load(Relaxed) == alive, "drop of its first fields")?;
    let pinned = lru.pin_init(
        pin_init!(Pinned {
            object: Object::new(0),
            number <- new_mutex!(1),
        }),
        GFP_KERNEL,
    )?;
    lru.add_obj(pinned.clone()).map_err(|_| EEXIST)?;
    for node in NodeId::all() {
        lru.walk_node(node, &mut VISITS.clone(), |it| {
            let (pinned, unlocked) = it.remove();
            *pinned.number.lock() += 1;
            unlocked.retry()
        });
    }
    ensure(*pinned.number.lock() == 2, "a lock of a pinned object")?;
    drop(pinned);
    ensure(ALIVE.load(Relaxed) == alive, "drop of a pinned object")
}

struct Walks;

impl kernel::Module for Walks {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // The shrinker is never registered, so that reclaim removes none of the objects.
        let prepared = ShrinkerBuilder::new(c_str!("walks"))
            .batch(64)
            .seeks(1)
            .alloc()?;
        let lru = filled(&prepared)?;
        walk("rotate", &lru, |it| it.rotate())?;
        walk("skip", &lru, |it| it.skip())?;
        lru.clear();
        pr_info!("{} objects after clear\n", lru.count());
        drop(lru);

        // Without a list for each group, too.
        let unaware = ShrinkerBuilder::new(c_str!("walks_unaware"))
            .memcg_aware(false)
            .alloc()?;
        ensure(unaware.id().is_none(), "an id without groups")?;
        let (lru, other) = (filled(&prepared)?, filled(&unaware)?);
        check_unlocked(&lru)?;
        check_unlocked(&other)?;
        check_refusals(&lru, &other)?;
        check_refusals(&other, &lru)?;
        for prepared in [&prepared, &unaware] {
            check_handle_outlives(prepared)?;
            check_pinned(prepared)?;
        }
        drop((lru, other));
        ensure(ALIVE.load(Relaxed) == 0, "all objects dropped")?;
        Ok(Self)
    }
}
