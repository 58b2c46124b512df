//! Every interleaving of two threads, with at most three preemptions (`ci/loom.sh`), over one small
//! tree: a root with one or two groups, and at most one stock slot. Each lock-free pairing has a
//! mutant, which must fail.

use loom::thread;

use crate::memcg::{Memcg, MemcgTree};
use crate::sync::{with_mutant, Arc};
use lowwater_base::ByteSize;

fn b(n: u64) -> ByteSize {
    ByteSize::new(n)
}

// === concurrent charges ===

fn charges_meet_at_max() {
    crate::sync::model(|| {
        let tree = MemcgTree::new(0);
        let a = tree.root().create("a").unwrap();
        a.set_max(b(100));
        let charge = |memcg: &Memcg| {
            let ok = memcg.try_charge(b(60)).is_ok();
            assert!(memcg.usage() <= b(100), "usage is above max");
            ok
        };
        let other = thread::spawn({
            let a = a.clone();
            move || charge(&a)
        });
        let mine = charge(&a);
        let theirs = other.join().unwrap();
        assert!(mine != theirs, "one of the two fits");
        assert_eq!((a.usage(), tree.root().usage()), (b(60), b(60)));
    });
}

#[test]
fn usage_is_never_above_max() {
    charges_meet_at_max();
}

#[test]
#[should_panic(expected = "one of the two fits")]
fn usage_is_never_above_max_fails_without_the_exchange() {
    with_mutant("charge without exchange", charges_meet_at_max);
}

/// The limit is one level up, so a refused charge must be subtracted again.
#[test]
fn a_refused_charge_leaves_nothing() {
    crate::sync::model(|| {
        let tree = MemcgTree::new(0);
        let [x, y] = ["x", "y"].map(|name| tree.root().create(name).unwrap());
        tree.root().set_max(b(100));
        let charge = |memcg: &Memcg| if memcg.try_charge(b(60)).is_ok() { b(60) } else { b(0) };
        let other = thread::spawn({
            let y = y.clone();
            move || charge(&y)
        });
        let mine = charge(&x);
        let theirs = other.join().unwrap();
        assert_eq!((x.usage(), y.usage()), (mine, theirs));
        assert_eq!(tree.root().usage(), b(60));
    });
}

// === claims: the sums of `protection.rs` ===

fn charge_meets_setting() {
    crate::sync::model(|| {
        let tree = MemcgTree::new(0);
        let a = tree.root().create("a").unwrap();
        let other = thread::spawn({
            let a = a.clone();
            move || {
                let _ = a.try_charge(b(10)).unwrap();
            }
        });
        a.set_low(b(7));
        other.join().unwrap();
        tree.assert_valid();
    });
}

#[test]
fn a_claim_is_not_lost_between_charge_and_setting() {
    charge_meets_setting();
}

#[test]
#[should_panic(expected = "counts other claims than its children have")]
fn a_claim_is_not_lost_between_charge_and_setting_fails_without_the_fence() {
    with_mutant("refresh without fence", charge_meets_setting);
}

fn refreshes_meet() {
    crate::sync::model(|| {
        let tree = MemcgTree::new(0);
        let a = tree.root().create("a").unwrap();
        a.set_low(b(100));
        let other = thread::spawn({
            let a = a.clone();
            move || {
                let _ = a.try_charge(b(10)).unwrap();
            }
        });
        let _ = a.try_charge(b(20)).unwrap();
        other.join().unwrap();
        tree.assert_valid();
    });
}

#[test]
fn two_concurrent_refreshes_keep_the_newer_claim() {
    refreshes_meet();
}

#[test]
#[should_panic(expected = "counts other claims than its children have")]
fn two_concurrent_refreshes_fail_without_the_second_read() {
    with_mutant("refresh once", refreshes_meet);
}

#[test]
#[should_panic(expected = "counts other claims than its children have")]
fn two_concurrent_refreshes_fail_with_a_relaxed_swap() {
    with_mutant("claim swap relaxed", refreshes_meet);
}

#[test]
fn a_dying_group_keeps_no_claim() {
    crate::sync::model(|| {
        let tree = MemcgTree::new(0);
        let a = tree.root().create("a").unwrap();
        let other = thread::spawn({
            let a = a.clone();
            move || a.offline().unwrap()
        });
        a.set_low(b(7));
        let _ = a.try_charge(b(10)).unwrap();
        other.join().unwrap();
        tree.assert_valid();
    });
}

// === stock ===

fn stock_meets_offline() {
    crate::sync::model(|| {
        let tree = MemcgTree::new(1);
        let a = tree.root().create("a").unwrap();
        // The second charge in a row takes stock.
        let _ = a.try_charge(b(1)).unwrap();
        let other = thread::spawn({
            let a = a.clone();
            move || a.offline().unwrap()
        });
        let _ = a.try_charge(b(1)).unwrap();
        other.join().unwrap();
        assert_eq!(tree.root().usage(), b(2), "stock of a dying group is left");
        let id = a.id();
        drop(a);
        assert_eq!(tree.get(id), None, "a slot still holds the group");
    });
}

#[test]
fn no_stock_outlives_its_group() {
    stock_meets_offline();
}

#[test]
#[should_panic(expected = "stock of a dying group is left")]
fn no_stock_outlives_its_group_fails_without_the_check_under_the_lock() {
    with_mutant("put for a dying group", stock_meets_offline);
}

fn stock_meets_a_lower_max() {
    crate::sync::model(|| {
        let tree = MemcgTree::new(1);
        let a = tree.root().create("a").unwrap();
        // The second charge in a row takes stock.
        let _ = a.try_charge(b(1)).unwrap();
        let other = thread::spawn({
            let a = a.clone();
            move || a.set_max(b(0))
        });
        // The charge may be refused.
        let bytes = if a.try_charge(b(1)).is_ok() { b(2) } else { b(1) };
        other.join().unwrap();
        assert_eq!(tree.root().usage(), bytes, "stock is left above a max");
        assert!(!a.try_charge_from_stock(b(1)));
        a.uncharge(bytes);
        assert_eq!(a.usage(), b(0), "uncharged bytes went into stock");
    });
}

#[test]
fn no_stock_is_left_above_a_max_that_is_lowered() {
    stock_meets_a_lower_max();
}

#[test]
#[should_panic(expected = "stock is left above a max")]
fn no_stock_is_left_above_a_max_that_is_lowered_fails_without_the_check_under_the_lock() {
    with_mutant("put above a lowered max", stock_meets_a_lower_max);
}

// === a `max` that is raised after the group's end ===

fn end_meets_lookup_of_max() {
    crate::sync::model(|| {
        let tree = MemcgTree::new(0);
        let a = tree.root().create("a").unwrap();
        a.set_max(b(0));
        let other = thread::spawn({
            let a = a.clone();
            move || {
                a.offline().unwrap();
                a.set_max(ByteSize::MAX);
            }
        });
        let is_raised = a.max() > b(0);
        assert!(!is_raised || !a.is_online(), "the end is not seen");
        other.join().unwrap();
    });
}

#[test]
fn a_max_that_is_raised_after_the_end_shows_the_end() {
    end_meets_lookup_of_max();
}

#[test]
#[should_panic(expected = "the end is not seen")]
fn a_max_that_is_raised_after_the_end_shows_the_end_fails_with_a_relaxed_swap() {
    with_mutant("max swap relaxed", end_meets_lookup_of_max);
}

// === the `max` of a dropped group ===

fn drop_meets_reclaim() {
    crate::sync::model(|| {
        let tree = MemcgTree::new(0);
        let a = tree.root().create("a").unwrap();
        let other = thread::spawn({
            let a = a.clone();
            move || a.begin_drop()
        });
        assert_eq!(a.reclaim_max(), ByteSize::MAX, "a reclaimer reads the 0 of a drop");
        other.join().unwrap();
    });
}

#[test]
fn a_reclaimer_never_reads_the_max_of_a_dropped_group() {
    drop_meets_reclaim();
}

#[test]
#[should_panic(expected = "a reclaimer reads the 0 of a drop")]
fn a_reclaimer_never_reads_the_max_of_a_dropped_group_fails_with_a_relaxed_swap() {
    with_mutant("max swap relaxed", drop_meets_reclaim);
}

// === ids ===

/// One thread takes a group offline, the other looks it up and creates a new one.
#[test]
fn no_id_names_two_groups() {
    crate::sync::model(|| {
        let tree = Arc::new(MemcgTree::new(0));
        let a = tree.root().create("a").unwrap();
        let id = a.id();
        let other = thread::spawn(move || {
            a.offline().unwrap();
            drop(a);
        });
        let found = tree.get(id);
        let new = tree.root().create("b").unwrap();
        assert_eq!(tree.get(new.id()), Some(new.clone()));
        if let Some(found) = &found {
            assert!(found.id() != new.id(), "two groups have id {id}");
            assert!(found.id() == id || found == tree.root(), "a dying id means its nearest online ancestor");
        }
        other.join().unwrap();
        assert_ne!(tree.get(id).map(|memcg| memcg.path()).as_deref(), Some("/a"));
        drop(found);
        tree.assert_valid();
    });
}

/// Of creating a child and taking its parent offline only one can succeed.
#[test]
fn no_child_is_created_below_a_dying_group() {
    crate::sync::model(|| {
        let tree = MemcgTree::new(0);
        let a = tree.root().create("a").unwrap();
        let other = thread::spawn({
            let a = a.clone();
            move || a.create("b").map(drop)
        });
        let offline = a.offline();
        let made = other.join().unwrap();
        assert!(offline.is_ok() != made.is_ok(), "offline: {offline:?}, create: {made:?}");
        tree.assert_valid();
    });
}
