//! Names, errors, going offline, hooks, the drop of the tree.
//!
//! One test for each documented behaviour of creating, charging and ending a group.
//!
//! A new method of a group gets its test here.

use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;

use crate::memcg::{Charged, Memcg, MemcgError, MemcgId, MemcgState, MemcgTree, OfflineHook};
use crate::sync::{Arc, Mutex};
use crate::{Links, ListLru, NodeId};
use lowwater_base::ByteSize;

fn b(n: u64) -> ByteSize {
    ByteSize::new(n)
}

#[test]
fn names_and_paths() {
    let tree = MemcgTree::new(0);
    let root = tree.root();
    assert_eq!((root.path().as_str(), root.name(), root.depth(), root.parent()), ("/", "", 0, None));
    let a = root.create("a").unwrap();
    let ab = a.create("b").unwrap();
    assert_eq!((ab.path().as_str(), ab.name(), ab.depth(), ab.parent()), ("/a/b", "b", 2, Some(&a)));
    assert_eq!(alloc::format!("{ab:?}"), r#"Memcg("/a/b")"#);
    assert_eq!(a.child("b"), Some(ab.clone()));
    assert_eq!(root.child("b"), None);
    assert!(ab.is_descendant_of(root) && ab.is_descendant_of(&a) && ab.is_descendant_of(&ab));
    assert!(!a.is_descendant_of(&ab) && !root.is_descendant_of(&a));
    tree.assert_valid();
}

#[test]
fn malformed_names_are_refused() {
    let tree = MemcgTree::new(0);
    let long = "x".repeat(Memcg::NAME_MAX + 1);
    for name in ["", "a/b", "/", &long] {
        assert_eq!(tree.root().create(name), Err(MemcgError::BadName), "{name:?}");
    }
    assert!(tree.root().create(&long[1..]).is_ok());
    assert_eq!(tree.root().create(&long[1..]), Err(MemcgError::NameTaken));
    assert_eq!(tree.len(), 2);
    tree.assert_valid();
}

#[test]
fn a_name_is_free_as_soon_as_its_group_is_offline() {
    let tree = MemcgTree::new(0);
    let old = tree.root().create("a").unwrap();
    old.offline().unwrap();
    let new = tree.root().create("a").unwrap();
    assert_ne!(old, new);
    assert_eq!(tree.root().child("a"), Some(new.clone()));
    assert_eq!(new.id(), MemcgId::new(2), "the old group still has its id");
    tree.assert_valid();
}

#[test]
fn ids_and_depth_have_an_end() {
    let tree = MemcgTree::with_ids(0, 2);
    let a = tree.root().create("a").unwrap();
    assert_eq!(tree.root().create("b"), Err(MemcgError::OutOfIds));
    a.offline().unwrap();
    drop(a);
    assert_eq!(tree.root().create("b").unwrap().id(), MemcgId::new(1));

    let tree = MemcgTree::new(0);
    let deepest = (0..Memcg::DEPTH_MAX).fold(tree.root().clone(), |memcg, _| memcg.create("d").unwrap());
    assert_eq!(deepest.depth(), Memcg::DEPTH_MAX);
    assert_eq!(deepest.create("d"), Err(MemcgError::TooDeep));
    assert_eq!(tree.root().descendants().count(), Memcg::DEPTH_MAX + 1);
    tree.assert_valid();
}

#[test]
fn the_root_parents_and_dying_groups_cannot_go_offline() {
    let tree = MemcgTree::new(0);
    let a = tree.root().create("a").unwrap();
    let ab = a.create("b").unwrap();
    assert_eq!(tree.root().offline(), Err(MemcgError::Root));
    assert_eq!(a.offline(), Err(MemcgError::HasChildren));
    ab.offline().unwrap();
    assert_eq!(ab.offline(), Err(MemcgError::AlreadyDying));
    assert_eq!(ab.create("c"), Err(MemcgError::Dying));
    assert_eq!(a.offline(), Ok(()), "a dying child does not keep its parent");
    assert_eq!(ab.nearest_online(), *tree.root());
    assert_eq!(a.state(), MemcgState::Dying);
    tree.assert_valid();
}

/// Ids of a chain of dying groups, each of which keeps its parent alive.
#[test]
fn a_dying_id_is_its_nearest_online_ancestor_until_the_last_handle_is_gone() {
    let tree = MemcgTree::new(0);
    let [a, ab, abc] = {
        let a = tree.root().create("a").unwrap();
        let ab = a.create("b").unwrap();
        let abc = ab.create("c").unwrap();
        [a, ab, abc]
    };
    let ids = [a.id(), ab.id(), abc.id()];
    abc.offline().unwrap();
    assert_eq!(tree.get(ids[2]), Some(ab.clone()));
    ab.offline().unwrap();
    assert_eq!(tree.get(ids[2]), Some(a.clone()));
    a.offline().unwrap();
    drop([a, ab]);
    assert_eq!(ids.map(|id| tree.get(id)), [(); 3].map(|()| Some(tree.root().clone())), "/a/b/c keeps all three");
    drop(abc);
    assert_eq!(ids.map(|id| tree.get(id)), [None, None, None]);
    assert_eq!(tree.get(MemcgId::new(u32::MAX)), None);
    tree.assert_valid();
}

#[test]
fn an_online_group_needs_no_handle() {
    let tree = MemcgTree::new(0);
    let id = tree.root().create("a").unwrap().id();
    assert_eq!(tree.get(id).unwrap().name(), "a");
    assert_eq!(tree.root().children(), [tree.get(id).unwrap()]);
}

#[test]
fn a_group_that_was_charged_from_stock_leaves_with_its_last_handle() {
    let tree = MemcgTree::new(2);
    let a = tree.root().create("a").unwrap();
    for _ in 0..100 {
        assert!(a.try_charge(b(10)).is_ok());
    }
    assert!(tree.root().usage() > b(1_000), "some is in stock");
    a.offline().unwrap();
    assert_eq!(tree.root().usage(), b(1_000));
    let _ = a.try_charge(b(10)).unwrap();
    let _ = a.try_charge(b(10)).unwrap();
    assert_eq!(tree.root().usage(), b(1_020), "a dying group gets no stock");
    a.uncharge(b(1_020));
    let id = a.id();
    drop(a);
    assert_eq!(tree.get(id), None);
    assert_eq!(tree.root().usage(), b(0));
}

struct Recorder(Mutex<Vec<(&'static str, Memcg, Memcg, bool)>>, &'static str);

impl OfflineHook for Recorder {
    fn offline(&self, dying: &Memcg, parent: &Memcg) {
        // A hook may query and change the tree.
        let refused = parent.offline();
        assert_eq!(refused, Err(MemcgError::HasChildren), "the parent waits for its child's hooks");
        let sibling = parent.create("made by a hook").is_ok();
        self.0.lock().push((self.1, dying.clone(), parent.clone(), sibling));
    }
}

#[test]
fn hooks_are_called_in_order_while_the_parent_is_online() {
    let tree = MemcgTree::new(0);
    let [first, second] = ["first", "second"].map(|name| Arc::new(Recorder(Mutex::new(Vec::new()), name)));
    let first_id = tree.add_hook(first.clone());
    tree.add_hook(second.clone());
    let a = tree.root().create("a").unwrap();
    let ab = a.create("b").unwrap();
    ab.offline().unwrap();
    assert_eq!(*first.0.lock(), [("first", ab.clone(), a.clone(), true)]);
    assert_eq!(*second.0.lock(), [("second", ab.clone(), a.clone(), false)]);

    tree.remove_hook(first_id);
    tree.remove_hook(first_id);
    a.child("made by a hook").unwrap().offline().unwrap();
    assert_eq!((first.0.lock().len(), second.0.lock().len()), (1, 2));
}

/// The allocator may give a tree the memory of a dropped one.
#[test]
fn an_id_of_a_dropped_tree_removes_nothing() {
    for _ in 0..100 {
        let old = MemcgTree::new(0);
        let stale = old.add_hook(Arc::new(Recorder(Mutex::new(Vec::new()), "old")));
        drop(old);
        let tree = MemcgTree::new(0);
        let hook = Arc::new(Recorder(Mutex::new(Vec::new()), "new"));
        assert_ne!(tree.add_hook(hook.clone()), stale);
        tree.remove_hook(stale);
        tree.root().create("a").unwrap().create("b").unwrap().offline().unwrap();
        assert_eq!(hook.0.lock().len(), 1);
    }
}

#[test]
#[cfg(feature = "std")]
fn a_hook_that_panics_does_not_keep_the_parent() {
    struct Panics;
    impl OfflineHook for Panics {
        fn offline(&self, _: &Memcg, _: &Memcg) {
            panic!("a hook of another owner");
        }
    }
    let tree = MemcgTree::new(0);
    tree.add_hook(Arc::new(Panics));
    let a = tree.root().create("a").unwrap();
    let ab = a.create("b").unwrap();
    let offline = |memcg: &Memcg| {
        std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| memcg.offline())).expect_err("the hook panics")
    };
    offline(&ab);
    assert_eq!(ab.state(), MemcgState::Dying);
    offline(&a);
    assert_eq!(a.state(), MemcgState::Dying, "it had no child in the way");
    tree.assert_valid();
}

#[test]
fn handles_outlive_the_tree_and_count() {
    let tree = MemcgTree::new(1);
    let a = tree.root().create("a").unwrap();
    let ab = a.create("b").unwrap();
    let mut walk = tree.root().clone().descendants();
    walk.next();
    for _ in 0..3 {
        let _ = ab.try_charge(b(10)).unwrap();
    }
    drop(tree);
    assert_eq!(ab.usage(), b(30), "the stock is drained");
    assert_eq!((walk.next(), a.child("b"), a.children()), (None, None, vec![]));
    assert_eq!(a.create("c"), Err(MemcgError::TreeGone));
    assert_eq!(ab.offline(), Err(MemcgError::TreeGone));
    ab.uncharge(b(30));
    assert_eq!(a.usage(), b(0));
    assert_eq!(a.try_charge(b(7)), Ok(Charged::Within));
    assert_eq!(a.parent().unwrap().usage(), b(7));
}

#[test]
fn memory_is_freed_when_groups_end() {
    let tree = MemcgTree::new(0);
    let _keep = tree.root().create("first").unwrap();
    let few = tree.footprint();
    for round in 0..3 {
        let groups: Vec<Memcg> = (0..1_000).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
        assert_eq!(groups.last().unwrap().id(), MemcgId::new(1_001));
        assert!(tree.footprint() > few);
        groups.iter().for_each(|memcg| memcg.offline().unwrap());
        drop(groups);
        let grown = tree.footprint().get() - few.get();
        // A table of up to `SHRINK_FROM` (64) slots is not shrunk, and a slot with its part of the
        // index takes less than 64 bytes.
        assert!(grown <= 64 * 64, "round {round}: {grown} bytes are left of 1,000 groups");
        tree.assert_valid();
    }
}

#[test]
fn the_table_shrinks_below_a_quarter_to_twice_its_length() {
    let tree = MemcgTree::new(0);
    let mut groups: Vec<Memcg> = (1..1_000).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    let slots = || tree.root().tree().table().read().slots();
    let (len, full) = slots();
    assert!(len == 1_000 && full >= 1_000);
    let mut end_last = || {
        let last = groups.pop().unwrap();
        last.offline().unwrap();
    };
    // More than a fourth of the memory is used: it is not shrunk.
    while (slots().0 - 1) * 4 > full {
        end_last();
        assert_eq!(slots().1, full, "{} slots are used", slots().0);
    }
    end_last();
    let (len, less) = slots();
    assert_eq!((len * 4 <= full, less), (true, 2 * len));
    tree.assert_valid();
}

#[test]
fn error_messages_name_the_cause() {
    let tree = MemcgTree::new(0);
    let a = tree.root().create("a").unwrap();
    a.set_max(b(100));
    let _ = a.try_charge(b(60)).unwrap();
    let refused = a.try_charge(b(50)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot charge 50 bytes: group /a uses 60 of at most 100 bytes; reclaim from it, or raise its limit"
    );
    a.offline().unwrap();
    assert_eq!(
        a.create("b").unwrap_err().to_string(),
        "the group or its parent is ending: try again later, or use an online ancestor"
    );
}

#[test]
fn a_charge_reports_the_nearest_group_above_high() {
    let tree = MemcgTree::new(1);
    let a = tree.root().create("a").unwrap();
    let ab = a.create("b").unwrap();
    tree.root().set_high(b(10));
    a.set_high(b(20));
    assert_eq!(ab.try_charge(b(10)), Ok(Charged::Within));
    assert_eq!(ab.try_charge(b(10)), Ok(Charged::AboveHigh(tree.root().clone())));
    assert_eq!(ab.try_charge(b(1)), Ok(Charged::AboveHigh(a)));
    assert_eq!(tree.in_stock(tree.root()), 0, "no stock is taken above a high");
}

/// Bytes that are uncharged above a `high` do not stay in stock, from which charges report nothing.
#[test]
fn a_group_that_stays_above_high_is_reported_again() {
    let tree = MemcgTree::new(1);
    let a = tree.root().create("a").unwrap();
    a.set_high(ByteSize::kib(64));
    while a.try_charge(ByteSize::kib(4)) == Ok(Charged::Within) {}
    assert_eq!(a.usage(), ByteSize::kib(68));
    let reports = (0..9).filter(|_| {
        a.uncharge(ByteSize::kib(4));
        a.try_charge(ByteSize::kib(4)) == Ok(Charged::AboveHigh(a.clone()))
    });
    assert!(reports.count() >= 8);
}

struct Item(Links);

crate::linked!(impl[] for Item { 0, handle: Arc<Item> });

/// Bytes in stock hide that more is uncharged than was charged, until the stock is drained.
#[test]
fn an_end_of_a_group_with_a_wrong_count_moves_its_lists_and_keeps_the_counts_of_others() {
    let tree = MemcgTree::new(1);
    let parent = tree.root().create("parent").unwrap();
    let [wrong, other] = ["wrong", "other"].map(|name| parent.create(name).unwrap());
    let lru = ListLru::<Item>::new();
    lru.add(Arc::new(Item(Links::new())), &wrong, NodeId::ZERO).unwrap();
    let _ = other.try_charge(b(1_000)).unwrap();
    for _ in 0..2 {
        let _ = wrong.try_charge(b(100)).unwrap();
    }
    (0..3).for_each(|_| wrong.uncharge(b(100)));
    assert!(wrong.usage() < wrong.in_stock(), "the slot has bytes that are not charged any more");
    wrong.offline().unwrap();
    assert_eq!((wrong.usage(), parent.usage()), (ByteSize::ZERO, b(1_000)));
    assert_eq!(lru.count_one(&parent, NodeId::ZERO), 1);
}

/// The root's `max` is the sum of all charges that must succeed: that of 32 KiB fits only if the
/// batch that the first group stocked is drained.
#[test]
fn no_charge_fails_for_bytes_in_stock() {
    let tree = MemcgTree::new(1);
    let [a, c] = ["a", "c"].map(|name| tree.root().create(name).unwrap());
    tree.root().set_max(ByteSize::kib(33));
    for _ in 0..2 {
        let _ = a.try_charge(ByteSize::new(512)).unwrap();
    }
    assert_eq!(tree.root().usage(), b(512 + (32 << 10)));
    assert_eq!(c.try_charge(ByteSize::kib(32)), Ok(Charged::Within));
    assert_eq!(tree.root().usage(), ByteSize::kib(33));
    assert_eq!(c.try_charge(b(1)).unwrap_err().memcg, *tree.root());
    assert_eq!(c.usage(), ByteSize::kib(32), "a refused charge leaves nothing behind");
}

#[test]
fn uncharged_bytes_return_to_stock_after_a_refused_charge() {
    let tree = MemcgTree::new(1);
    let a = tree.root().create("a").unwrap();
    tree.root().set_max(ByteSize::kib(33));
    let full = ByteSize::kib(33).get();
    for _ in 0..full / 512 {
        let _ = a.try_charge(b(512)).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(a.try_charge(b(1)).unwrap_err().memcg, *tree.root());
        assert_eq!((a.in_stock(), tree.root().usage()), (ByteSize::ZERO, b(full)), "it found nothing");
        a.uncharge(b(512));
        assert_eq!(
            (a.in_stock(), tree.root().usage()),
            (b(512), b(full)),
            "the next charge need not go up to the root"
        );
        assert!(a.try_charge_from_stock(b(512)));
    }
}

#[test]
fn stock_serves_only_its_own_group_and_only_whole_charges() {
    let tree = MemcgTree::new(1);
    let a = tree.root().create("a").unwrap();
    let (ab, c) = (a.create("b").unwrap(), tree.root().create("c").unwrap());
    assert!(!ab.try_charge_from_stock(b(1)), "there is none");
    for _ in 0..2 {
        let _ = ab.try_charge(b(512)).unwrap();
    }
    let full = (32 << 10) - 512;
    let in_stock = || [tree.root(), &a, &ab, &c].map(|memcg| memcg.in_stock().get());
    assert_eq!(in_stock(), [full, full, full, 0]);
    let usage = tree.root().usage();

    assert!(!a.try_charge_from_stock(b(1)) && !c.try_charge_from_stock(b(1)), "it is not theirs");
    assert!(!ab.try_charge_from_stock(b(full + 1)), "it is not enough");
    assert_eq!((in_stock(), tree.root().usage()), ([full, full, full, 0], usage), "and nothing has changed");
    assert!(ab.try_charge_from_stock(b(1_000)));
    assert_eq!(in_stock(), [full - 1_000, full - 1_000, full - 1_000, 0]);
    assert_eq!(tree.root().usage(), usage, "it was charged before");

    // A group that charges twice in a row by `try_charge` would get a batch.
    for times in 1..=3 {
        assert_eq!(c.try_charge_exactly(b(10)), Ok(Charged::Within));
        assert_eq!((c.usage(), c.in_stock()), (b(times * 10), ByteSize::ZERO));
    }
    assert_eq!(ab.in_stock(), b(full - 1_000), "another group's stock is not taken");
    a.set_max(a.usage());
    assert_eq!(ab.try_charge_exactly(b(full - 1_000)), Ok(Charged::Within), "bytes in stock make no charge fail");
    assert_eq!((ab.in_stock(), ab.try_charge_exactly(b(1)).unwrap_err().memcg), (ByteSize::ZERO, a));
}

#[test]
fn a_charge_takes_at_most_the_given_stock() {
    assert_eq!(MemcgTree::new(2).stock_slots(), 2);
    // One slot: each charge must use the same one, even if the thread changes its processor.
    let tree = MemcgTree::new(1);
    let (a, other) = (tree.root().create("a").unwrap(), tree.root().create("other").unwrap());
    a.set_max(b(1_000));
    let charge = |memcg: &Memcg, stock| memcg.try_charge_with_stock(b(100), b(stock));
    assert_eq!(charge(&a, 300), Ok(Charged::Within));
    assert_eq!((a.usage(), a.in_stock()), (b(100), ByteSize::ZERO), "a group that charged once stocks nothing");
    assert_eq!(charge(&a, 300), Ok(Charged::Within));
    assert_eq!((a.usage(), a.in_stock()), (b(500), b(300)));
    for left in [200, 100, 0] {
        assert_eq!(charge(&a, 300), Ok(Charged::Within));
        assert_eq!((a.usage(), a.in_stock()), (b(500), b(left)), "it comes from stock");
    }
    assert_eq!(charge(&a, 5_000), Ok(Charged::Within));
    assert_eq!((a.usage(), a.in_stock()), (b(600), ByteSize::ZERO), "such a stock has no room");
    assert_eq!(charge(&a, 300), Ok(Charged::Within));
    assert_eq!((a.usage(), a.in_stock()), (b(1_000), b(300)), "up to max");
    (0..3).for_each(|_| assert_eq!(charge(&other, 0), Ok(Charged::Within)));
    assert_eq!((other.usage(), a.in_stock()), (b(300), b(300)), "without a stock the slot stays with the other group");
    (0..3).for_each(|_| assert_eq!(charge(&a, 300), Ok(Charged::Within)));
    assert_eq!(charge(&a, 300).unwrap_err().memcg, a);
    other.set_high(b(450));
    assert_eq!(charge(&other, 200), Ok(Charged::Within));
    assert_eq!((other.usage(), other.in_stock()), (b(400), ByteSize::ZERO), "no stock is taken above `high`");
    assert_eq!(charge(&other, 200), Ok(Charged::AboveHigh(other.clone())));
    let large = tree.root().create("large").unwrap();
    (0..2).for_each(|_| assert_eq!(large.try_charge_with_stock(b(100_000), ByteSize::MAX), Ok(Charged::Within)));
    assert_eq!((large.usage(), large.in_stock()), (b(200_000), ByteSize::ZERO), "no stock is so large");
}

#[test]
fn a_charge_that_drains_another_groups_stock_may_take_stock_itself() {
    let tree = MemcgTree::new(1);
    let (a, other) = (tree.root().create("a").unwrap(), tree.root().create("other").unwrap());
    tree.root().set_max(b(1_000));
    (0..2).for_each(|_| assert_eq!(other.try_charge_with_stock(b(100), b(700)), Ok(Charged::Within)));
    assert_eq!((other.usage(), other.in_stock()), (b(900), b(700)));
    let charge = || a.try_charge_with_stock(b(100), b(300));
    assert_eq!(charge(), Ok(Charged::Within));
    assert_eq!((a.usage(), other.in_stock(), tree.root().usage()), (b(100), b(700), b(1_000)), "all is used");
    assert_eq!(charge(), Ok(Charged::Within));
    assert_eq!((other.usage(), other.in_stock()), (b(200), ByteSize::ZERO), "the stock was drained");
    assert_eq!((a.usage(), a.in_stock()), (b(500), b(300)));
}

#[test]
fn lowering_max_drains_the_stock() {
    let tree = MemcgTree::new(2);
    let a = tree.root().create("a").unwrap();
    let ab = a.create("b").unwrap();
    let fill = || (0..100).for_each(|_| drop(ab.try_charge(b(10)).unwrap()));
    fill();
    assert!(tree.in_stock(&a) > 0, "some is in stock");
    a.set_max(b(500));
    assert_eq!((tree.in_stock(&a), a.usage()), (0, b(1_000)));
    assert_eq!(ab.try_charge(b(1)).unwrap_err().memcg, a);
    ab.uncharge(b(300));
    assert_eq!((tree.in_stock(&a), a.usage()), (0, b(700)), "uncharged bytes are not put into stock");
    assert!(!ab.try_charge_from_stock(b(1)));
    a.set_max(ByteSize::MAX);
    fill();
    assert!(tree.in_stock(&a) > 0, "and is again");
}

#[test]
fn a_charge_may_be_huge() {
    let tree = MemcgTree::new(1);
    let _ = tree.root().try_charge(b(1)).unwrap();
    assert!(tree.root().try_charge(ByteSize::MAX).is_err(), "the sum does not fit");
    assert_eq!(tree.root().usage(), b(1));
}

/// Records the groups whose limits were lowered, with their usage.
struct Lowered(Mutex<Vec<(Memcg, ByteSize)>>);

impl OfflineHook for Lowered {
    fn offline(&self, _: &Memcg, _: &Memcg) {}

    fn limit_lowered(&self, memcg: &Memcg) {
        self.0.lock().push((memcg.clone(), memcg.usage()));
    }
}

/// Panics for each lowered limit.
struct Panics;

impl OfflineHook for Panics {
    fn offline(&self, _: &Memcg, _: &Memcg) {}

    fn limit_lowered(&self, _: &Memcg) {
        panic!("a hook's");
    }
}

#[test]
fn a_limit_that_is_lowered_below_the_usage_is_reported() {
    let tree = MemcgTree::new(1);
    let hook = Arc::new(Lowered(Mutex::new(Vec::new())));
    let id = tree.root().try_add_hook(hook.clone()).unwrap();
    for (name, set) in [("max", Memcg::set_max as fn(&Memcg, ByteSize)), ("high", Memcg::set_high)] {
        let a = tree.root().create(name).unwrap();
        // The first charge only takes the slot.
        (0..2).for_each(|_| assert_eq!(a.try_charge(b(50)), Ok(Charged::Within)));
        assert!(tree.in_stock(&a) > 0);
        set(&a, b(100));
        assert_eq!((hook.0.lock().len(), tree.in_stock(&a)), (0, 0), "stock is drained first, and is no reason");
        for bytes in [99, 99, 98, 99] {
            set(&a, b(bytes));
        }
        let reports = core::mem::take(&mut *hook.0.lock());
        assert_eq!(reports, [(a.clone(), b(100)), (a.clone(), b(100))], "only a lower limit is reported");
        set(&a, ByteSize::MAX);
        a.set_max_unreported(b(1));
        assert_eq!((a.max(), a.reclaim_max(), hook.0.lock().len()), (b(1), b(1), 0));
        a.begin_drop();
        assert_eq!((a.max(), a.reclaim_max(), hook.0.lock().len()), (b(0), ByteSize::MAX, 0));
    }
    tree.remove_hook(id);
    tree.root().set_max(b(1));
    assert_eq!(*hook.0.lock(), []);
}

#[test]
#[cfg_attr(panic = "abort", ignore = "it catches a panic")]
fn a_hook_of_a_lowered_limit_that_panics_does_not_keep_others_from_it() {
    let tree = MemcgTree::new(0);
    let root = tree.root();
    let hooks = [(); 2].map(|()| Arc::new(Lowered(Mutex::new(Vec::new()))));
    let first = root.try_add_hook(hooks[0].clone()).unwrap();
    let panics = root.try_add_hook(Arc::new(Panics)).unwrap();
    let last = root.try_add_hook(hooks[1].clone()).unwrap();
    assert_eq!(root.try_charge(b(2)), Ok(Charged::Within));
    assert!(std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| root.set_max(b(1)))).is_err());
    assert_eq!(hooks.map(|hook| hook.0.lock().len()), [1, 1]);
    [first, panics, last].into_iter().for_each(|id| tree.remove_hook(id));
}
