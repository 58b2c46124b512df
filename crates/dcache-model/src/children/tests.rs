//! `Children` by itself, without a cache around it.
//!
//! The model tests of the cache cover the rest; these need states that a cache rarely reaches.
//!
//! A new operation is added to these tests.

use super::*;
use crate::dentry::Dentry;
use crate::qstr::{Name, QStr};
use lowwater_base::sync::Arc;
use lowwater_lru_core::{MemcgTree, NodeId};

/// Returns `n` dentries. Their names and inodes do not matter here.
fn dentries(n: usize) -> Vec<Arc<Dentry>> {
    let tree = MemcgTree::new(1);
    let qstr = QStr::new(1, 64, Name::checked(b"child"));
    (0..n).map(|_| Arc::new(Dentry::new(&qstr, None, 0, tree.root().clone(), NodeId::ZERO, 0))).collect()
}

#[test]
fn a_page_takes_new_children_again_when_it_is_half_empty() {
    let (mut children, child) = (Children::new(), &dentries(1)[0]);
    let insert = |children: &mut Children<Arc<Dentry>>| children.insert(Arc::clone(child));
    for place in 0..128 {
        assert_eq!(insert(&mut children), place);
    }
    for place in 0..31 {
        assert!(children.remove(place).is_some());
        assert!(children.remove(place).is_none(), "it went");
        children.assert_valid();
    }
    assert_eq!(insert(&mut children), 128, "the first page has 33 children, so a new one is begun");
    for place in [31, 32] {
        children.remove(place);
        children.assert_valid();
    }
    for place in (129..192).chain(0..33).chain([192]) {
        assert_eq!(insert(&mut children), place, "the page that is being filled, the half empty one, a new one");
        children.assert_valid();
    }
    assert_eq!((children.len(), children.positives(), children.negatives()), (193, 0, 193));
    for place in 0..50 {
        children.set_positive(place, true);
    }
    children.remove(0);
    assert_eq!((children.len(), children.positives(), children.negatives()), (192, 49, 143));
    children.assert_valid();
}

#[test]
fn the_clocks_hand_meets_every_negative_once_a_round() {
    let (mut children, dentries) = (Children::new(), dentries(150));
    for (place, child) in (0..).zip(&dentries) {
        children.insert(Arc::clone(child));
        children.set_positive(place, place % 3 == 0);
    }
    children.remove(4);
    let negatives: Vec<_> = (0..150).filter(|place| place % 3 != 0 && *place != 4).collect();
    for &place in negatives.iter().chain(&negatives) {
        assert!(Arc::ptr_eq(children.next_negative().unwrap(), &dentries[place]), "{place} is next");
    }
    for place in 0..150 {
        children.remove(place);
    }
    assert!(children.next_negative().is_none());
}

#[test]
fn the_footprint_is_what_was_allocated() {
    let (mut children, child) = (Children::new(), &dentries(1)[0]);
    let mut allocated = 0;
    let mut step = |children: &mut Children<Arc<Dentry>>, change: &dyn Fn(&mut Children<Arc<Dentry>>)| {
        allocated += allocation_counter::measure(|| change(children)).bytes_current;
        assert_eq!(children.footprint() as i64, allocated);
        allocated
    };
    assert_eq!(step(&mut children, &|_| ()), 0);
    // More than 64 pages, so that the bitmaps of pages have two levels.
    for _ in 0..5000 {
        step(&mut children, &|children| {
            children.insert(Arc::clone(child));
        });
    }
    for place in (0..5000).step_by(100) {
        step(&mut children, &|children| children.set_positive(place, true));
    }
    let full = step(&mut children, &|_| ());
    for place in 0..5000 {
        step(&mut children, &|children| drop(children.remove(place)));
    }
    assert!(step(&mut children, &|_| ()) < full / 4, "an empty page has no places");
}

/// One child with a low index stays.
#[test]
fn the_table_shrinks_with_its_children() {
    const CHILDREN: u32 = 100_000;
    let (mut children, child) = (Children::new(), &dentries(1)[0]);
    children.insert(Arc::clone(child));
    let order = |forward: bool| (1..CHILDREN + 64).map(move |n| if forward { n } else { CHILDREN + 64 - n });
    for forward in [true, false, true] {
        (1..CHILDREN).for_each(|_| _ = children.insert(Arc::clone(child)));
        (0..CHILDREN).step_by(700).for_each(|place| children.set_positive(place, true));
        children.assert_valid();
        let full = children.footprint();
        let removal = allocation_counter::measure(|| order(forward).for_each(|place| drop(children.remove(place))));
        children.assert_valid();
        assert_eq!(children.len(), 1);
        let left = children.footprint();
        assert!(left < full / 100, "{left} of {full} bytes");
        assert!(removal.count_total < 100, "{} allocations", removal.count_total);
    }
}
