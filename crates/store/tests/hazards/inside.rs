//! Containers and read-side guards that are dropped inside callbacks, and items with a `Drop` that
//! uses lists.
//!
//! A drop inside a callback must not wait for that callback, and a guard of an outer scope may end
//! there.

use crate::common::{at_the_end_of_a_thread, within};
use crate::leaks::{entry, item, name, put, Entry, Item, Name};
use lowwater_base::compact_bytes::CompactBytes;
use lowwater_base::fallible::TryArc;
use lowwater_base::ZeroedAtomics;
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::{linked, AddError, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId, Occupancy};
use lowwater_rcu::{pin, Guard, RcuCell};
use lowwater_store::hash_chains::{HashChains, HashLink, Reader};
use lowwater_store::index::InsertError;
use lowwater_store::slab::SlotState;
use lowwater_store::{hash_node, slotted, CompressedLinks, ExtendibleIndex, Slab, Slot};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

const N0: NodeId = NodeId::ZERO;

type OnDrop = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// An object for every container, which calls a function when it is dropped.
struct Object {
    links: Links,
    link: HashLink<Object>,
    on_drop: OnDrop,
}
linked!(impl[] for Object { links, handle: Arc<Object> });
hash_node!(impl[] for Object { link });

struct InSlot {
    links: CompressedLinks,
    state: SlotState,
    on_drop: OnDrop,
}
slotted!(impl[] for InSlot { links, state, weight: |object| size_of_val(object) as u64 });

fn call(on_drop: &mut OnDrop) {
    if let Some(call) = on_drop.get_mut().unwrap().take() {
        call();
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        call(&mut self.on_drop);
    }
}

impl Drop for InSlot {
    fn drop(&mut self) {
        call(&mut self.on_drop);
    }
}

fn calls(f: impl FnOnce() + Send + 'static) -> OnDrop {
    Mutex::new(Some(Box::new(f)))
}

fn object(f: impl FnOnce() + Send + 'static) -> Arc<Object> {
    Arc::new(Object { links: Links::new(), link: HashLink::new(), on_drop: calls(f) })
}

fn in_slot(slab: &Slab<InSlot>, f: impl FnOnce() + Send + 'static) -> Slot<InSlot> {
    let object = InSlot { links: CompressedLinks::new(), state: SlotState::new(0), on_drop: calls(f) };
    slab.alloc(object, N0).ok().expect("memory")
}

/// Counts its drop.
struct Told(Arc<AtomicU32>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Calls `f` inside closures and trait methods that each container calls, and a result of `on_drop`
/// inside each `Drop` of their objects, which may run on any thread that uses the read side.
fn in_each_callback(f: fn(), on_drop: impl Fn() -> Box<dyn FnOnce() + Send>) {
    let (index, guard) = (ExtendibleIndex::<Entry>::new(), pin());
    let hash = |entry: &Entry| entry.2;
    let mut slots: Vec<_> = (0..50).map(|n| put(&index, n)).collect();
    // An object that replaces another, and a new one.
    for n in [7, 100] {
        let slot = index.slab().alloc(entry(n), N0).ok().expect("memory");
        let is = |there: &Entry, new: &Entry| {
            f();
            there.2 == new.2
        };
        let add = |slot, _: Option<(&Entry, NodeId)>| {
            f();
            Ok(slot)
        };
        slots.push(index.insert(slot, n, &guard, is, &hash, add).expect("memory").1);
    }
    let seven = |entry: &Entry| {
        f();
        entry.2 == 7
    };
    assert!(index.get(7, &guard, seven).is_some());
    assert!(index.with(7, &guard, seven, |_| f()).is_some());
    assert!(index.remove(7, &guard, seven, &hash, |_| f()).is_some());
    index.visit(&mut Default::default(), &guard, |_| f());
    index.assert_valid(&hash);
    drop(index);

    let table = HashChains::<Object>::new(1);
    let removed = object(on_drop());
    table.insert(0, removed.clone()).ok().unwrap();
    let reader = Reader::enter();
    let found = table.find(0, &reader, |_| {
        f();
        true
    });
    assert!(found.is_some() && table.remove(0, &removed));
    table.insert(0, object(on_drop())).ok().unwrap();
    drop((removed, reader));

    struct Tells(fn());
    impl Occupancy for Tells {
        fn occupied(&self, _: &Memcg, _: NodeId) {
            (self.0)();
        }
    }
    let tree = MemcgTree::new(0);
    let lists = ListLru::<Object>::with_occupancy(Arc::new(Tells(f)));
    (0..4).for_each(|_| lists.add(object(on_drop()), tree.root(), N0).map_err(drop).unwrap());
    let mut some = Isolated::new();
    let mut shown = 0;
    lists.walk_one(tree.root(), N0, &mut 4, |it| {
        f();
        shown += 1;
        match shown {
            1 => it.isolate(&mut some),
            2 => it.remove().1.retry(),
            _ => it.skip(),
        }
    });
    assert_eq!((shown, some.len()), (4, 1));

    let cell = RcuCell::new();
    let slab = Slab::new();
    for _ in 0..3 {
        assert!(cell.replace(cell.load(&guard), object(on_drop()), &guard));
        drop(in_slot(&slab, on_drop()));
    }
    cell.clear(&guard);
    drop((guard, table, lists, some, tree, cell, slots));
    slab.collect();
    slab.assert_valid();
}

thread_local! { static HELD: RefCell<Vec<(Guard, Reader)>> = const { RefCell::new(Vec::new()) }; }

fn hold(more: usize) {
    let held: Vec<_> = (0..more).map(|_| (pin(), Reader::enter())).collect();
    HELD.with_borrow_mut(|all| all.extend(held));
}

/// Drops a guard and a reader that were created outside the callback, if this thread has any.
fn drop_one_held() {
    let held = HELD.with_borrow_mut(Vec::pop);
    drop(held);
}

#[test]
fn guards_and_readers_may_be_dropped_in_any_callback() {
    within("guards", || {
        // The last number is larger than that of all callbacks: some guards outlive them.
        for held in [1, 10, 200] {
            hold(held);
            in_each_callback(drop_one_held, || Box::new(drop_one_held));
            while HELD.with_borrow(|held| !held.is_empty()) {
                drop_one_held();
            }
        }
        // No guard is left on this thread, so retired values are freed.
        let (cell, dropped) = (RcuCell::new(), Arc::new(AtomicU32::new(0)));
        assert!(cell.replace(None, Told(dropped.clone()), &pin()));
        cell.clear(&pin());
        until_dropped(&dropped, 1);
    });
}

/// Retires owners of slots, and then slots of the same slab. A slot that is retired seals a bag and
/// polls grace periods under a lock of the slab: no destructor of an owner may run there.
fn owners_of_slots_are_dropped(what: &str, retire: fn(Arc<Object>)) {
    within(what, move || {
        let (slab, dropped) = (Slab::new(), Arc::new(AtomicU32::new(0)));
        for _ in 0..20 {
            let owned = (in_slot(&slab, || ()), Told(dropped.clone()));
            retire(object(move || drop(owned)));
            (0..500).for_each(|_| drop(in_slot(&slab, || ())));
        }
        until_dropped(&dropped, 20);
        slab.assert_valid();
    });
}

#[test]
fn drops_across_cells_and_a_slab_return() {
    owners_of_slots_are_dropped("slots in cells", |owner| {
        let cell = RcuCell::new();
        assert!(cell.replace(None, owner, &pin()));
        cell.clear(&pin());
    });
}

#[test]
fn drops_across_chains_and_a_slab_return() {
    owners_of_slots_are_dropped("slots on chains", |owner| {
        let table = HashChains::new(1);
        table.insert(0, owner.clone()).ok().unwrap();
        assert!(table.remove(0, &owner));
        // Leaked, since its drop would flush.
        std::mem::forget(table);
    });
}

/// Uses each read side until all objects are dropped: a grace period ends only in a later call, and
/// readers of other tests may delay it.
fn until_dropped(dropped: &AtomicU32, all: u32) {
    let start = std::time::Instant::now();
    while dropped.load(Relaxed) != all {
        assert!(start.elapsed() < crate::common::PATIENCE / 2, "{dropped:?} of {all} were dropped");
        let cell = RcuCell::new();
        cell.replace(None, 1, &pin());
        cell.clear(&pin());
        drop(HashChains::<Name>::new(1));
        Slab::<Entry>::new().collect();
    }
}

/// One of everything that can be dropped, with contents.
fn world() -> Box<dyn Any + Send> {
    let (index, other) = (ExtendibleIndex::<Entry>::new(), ExtendibleIndex::<Entry>::new());
    let slots: Vec<_> = (0..200).map(|n| put(&index, n)).collect();
    let again = put(&other, 1);
    let hash = |entry: &Entry| entry.2;
    // A handle that is in the index already comes back with the error.
    let twice = other.insert(again, 1, &pin(), |_, _| true, &hash, |slot, _| Ok(slot)).map(|_| ());
    let Err(twice @ InsertError::Indexed(_)) = twice else { panic!("it is in already") };
    let table = HashChains::<Name>::new(4);
    (0..10).for_each(|n| table.insert(n << 60, name()).ok().unwrap());
    let (tree, lists) = (MemcgTree::new(0), ListLru::<Item>::new());
    (0..10).for_each(|n| lists.add(item(n), tree.root(), N0).unwrap());
    let mut some = Isolated::new();
    lists.walk_one(tree.root(), N0, &mut 5, |it| it.isolate(&mut some));
    let linked = some.pop().unwrap();
    lists.add(linked.clone(), tree.root(), N0).unwrap();
    let refused: AddError<_> = lists.add(linked, tree.root(), N0).unwrap_err();
    let slab = Slab::<Entry>::new();
    let slot = slab.alloc(entry(1), N0).ok().expect("memory");
    let cell = RcuCell::new();
    cell.replace(None, String::from("value"), &pin());
    let memory = (ZeroedAtomics::try_new(1_000), CompactBytes::share(Arc::new(String::from("shared")), 1));
    let values = (cell, memory, Fixed::with_current(2, || N0));
    Box::new((index, slots, (other, twice), table, (lists, some, refused, tree), (slab, slot), values))
}

#[test]
fn containers_may_be_dropped_in_any_callback_of_others() {
    within("containers", || {
        let dropped = Arc::new(AtomicU32::new(0));
        let made = Arc::new(AtomicU32::new(0));
        let (tell, count) = (dropped.clone(), made.clone());
        let on_drop = move || -> Box<dyn FnOnce() + Send> {
            count.fetch_add(1, Relaxed);
            let owned = (world(), Told(tell.clone()));
            Box::new(move || drop(owned))
        };
        for _ in 0..3 {
            in_each_callback(|| drop(world()), &on_drop);
        }
        until_dropped(&dropped, made.load(Relaxed));
    });
}

/// Items with a `Drop` that adds to, walks and counts the lists that they were on.
#[test]
fn items_may_use_their_lists_when_they_are_dropped() {
    #[derive(Default)]
    struct Lists {
        lists: OnceLock<(ListLru<Object>, MemcgTree)>,
        dropped: AtomicU32,
    }
    fn uses(lists: &Weak<Lists>, left: u32) -> Arc<Object> {
        let theirs = lists.clone();
        object(move || {
            let Some(all) = theirs.upgrade() else { return };
            all.dropped.fetch_add(1, Relaxed);
            let (lists, tree) = all.lists.get().unwrap();
            let root = tree.root();
            if left > 0 {
                lists.add(uses(&theirs, left - 1), root, N0).map_err(drop).unwrap();
            }
            // Another item is dropped inside this drop.
            let mut gone = Isolated::new();
            lists.walk_one(root, N0, &mut 1, |it| it.isolate(&mut gone));
            assert!(lists.count_one(root, N0) < 1_000);
        })
    }
    within("items that use lists", || {
        let all = Arc::new(Lists::default());
        assert!(all.lists.set((ListLru::new(), MemcgTree::new(0))).is_ok());
        let weak = Arc::downgrade(&all);
        let (lists, tree) = all.lists.get().unwrap();
        let (root, group) = (tree.root(), tree.root().create("group").unwrap());
        let fill = || {
            for n in 0..30 {
                lists.add(uses(&weak, n % 3), if n % 2 == 0 { root } else { &group }, N0).map_err(drop).unwrap();
            }
        };
        // Dropped by the owner of the isolated items, one by one and all at once,
        fill();
        let mut gone = Isolated::new();
        lists.walk_one(&group, N0, &mut 9, |it| it.isolate(&mut gone));
        drop(gone.pop());
        drop(gone);
        // in a walk that has released its lock,
        lists.walk_one(&group, N0, &mut 100, |it| {
            let (handle, unlocked) = it.remove();
            drop(handle);
            unlocked.retry()
        });
        // with the error of an `add`,
        fill();
        let twice = uses(&weak, 2);
        lists.add(twice.clone(), &group, N0).map_err(drop).unwrap();
        let error = lists.add(twice.clone(), &group, N0).unwrap_err();
        assert!(lists.del(&twice).is_some());
        drop(twice);
        drop(error);
        // and after a replacement.
        let (old, new) = (uses(&weak, 1), uses(&weak, 1));
        lists.add(old.clone(), root, N0).map_err(drop).unwrap();
        drop(lists.replace(&old, new));
        drop(old);
        group.offline().unwrap();
        lists.assert_valid();
        while lists.count_one(root, N0) > 0 {
            let mut gone = Isolated::new();
            lists.walk_one(root, N0, &mut 7, |it| it.isolate(&mut gone));
        }
        assert!(all.dropped.load(Relaxed) > 60);
        fill();
        drop((group, all));
    });
}

/// A shared value that panics, and creates and drops others, when it is dropped.
#[test]
fn a_counted_value_may_do_anything_when_it_is_dropped() {
    struct Value {
        dropped: Arc<AtomicU32>,
        left: u32,
        next: Option<TryArc<Value>>,
    }
    impl Drop for Value {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Relaxed);
            if self.left > 0 {
                let (dropped, next) = (self.dropped.clone(), self.next.take());
                let other = TryArc::try_new(Value { dropped, left: self.left - 1, next }).expect("memory");
                drop(other.clone());
                drop(other);
            }
            assert!(self.left != 1, "the value's own fault");
        }
    }
    within("counted values", || {
        let dropped = Arc::new(AtomicU32::new(0));
        let new = |left, next| TryArc::try_new(Value { dropped: dropped.clone(), left, next }).expect("memory");
        let first = new(3, Some(new(0, None)));
        let second = first.clone();
        assert!(TryArc::ptr_eq(&first, &second) && !TryArc::ptr_eq(&first, &new(0, None)));
        drop(first);
        assert_eq!(dropped.load(Relaxed), 1, "the other one's");
        assert!(catch_unwind(AssertUnwindSafe(|| drop(second))).is_err());
        assert_eq!((dropped.load(Relaxed), Arc::strong_count(&dropped)), (6, 1));
    });
    at_the_end_of_a_thread("counted values", || {
        let value = TryArc::try_new(Box::new(7)).expect("memory");
        Box::new(move || {
            let late = TryArc::try_new(value.clone()).expect("memory");
            drop(value);
            assert_eq!(***late, 7);
        })
    });
}
