//! `MemcgTree::footprint` compared with an allocator that counts: exact to the byte, at every step
//! of a tree's life.
//!
//! A new field that allocates must be added to `footprint`, or this test fails.

#![cfg(all(feature = "std", not(lowwater_loom)))]

#[path = "../../base/tests/faulty/mod.rs"]
mod faulty;

use faulty::ALLOCATED;
use std::sync::Arc;

use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, OfflineHook};

struct Nothing;

impl OfflineHook for Nothing {
    fn offline(&self, _: &Memcg, _: &Memcg) {}
}

/// Returns the bytes allocated by this thread since `before`.
fn since(before: isize) -> ByteSize {
    ByteSize::new(u64::try_from(ALLOCATED.get() - before).expect("nothing was freed that was there before"))
}

#[test]
fn footprint_is_what_is_allocated() {
    // Anything that is allocated once per thread is not part of the tree.
    MemcgTree::new(0).root().create("first").and_then(|first| first.offline()).unwrap();
    let before = ALLOCATED.get();
    let tree = MemcgTree::new(3);
    assert_eq!(tree.footprint(), since(before), "a new tree");

    // The hook itself is the caller's; `footprint` has the list of hooks only.
    let hook: Arc<dyn OfflineHook> = Arc::new(Nothing);
    let hooked = since(before).get() - tree.footprint().get();
    tree.add_hook(hook);
    let rest = |tree: &MemcgTree| ByteSize::new(tree.footprint().get() + hooked);
    assert_eq!(rest(&tree), since(before), "with a hook");

    // Dropped at the end, after the last comparison.
    let mut groups = Vec::with_capacity(500);
    let vec = groups.capacity() as u64 * size_of::<Memcg>() as u64;
    let expected = |tree: &MemcgTree| ByteSize::new(rest(tree).get() + vec);
    for n in 0..500 {
        let parent: &Memcg = if n % 3 == 0 { tree.root() } else { &groups[n / 2] };
        groups.push(parent.create(&format!("group number {n}")).unwrap());
        assert_eq!(expected(&tree), since(before), "{n} groups");
        let _ = groups[n].try_charge(ByteSize::new(1_000)).unwrap();
    }
    assert_eq!(tree.root().descendants().count(), 501);
    assert_eq!(expected(&tree), since(before), "after charges and a walk");
    while let Some(group) = groups.pop() {
        group.uncharge(ByteSize::new(1_000));
        group.offline().unwrap();
        drop(group);
        assert_eq!(expected(&tree), since(before), "{} groups are left", groups.len());
    }
    drop((tree, groups));
    assert_eq!(since(before), ByteSize::ZERO);
}

/// A group is one allocation for itself and one for its name, plus its share of the tables. The
/// figure is that of the cost table in docs/DESIGN.md.
#[test]
fn a_group_costs_about_220_bytes() {
    let tree = MemcgTree::new(0);
    let before = tree.footprint().get();
    for n in 0..10_000 {
        tree.root().create(&format!("{n:06}")).unwrap();
    }
    let each = (tree.footprint().get() - before) / 10_000;
    println!("{each} bytes a group");
    assert!((190..=230).contains(&each), "{each} bytes");
}
