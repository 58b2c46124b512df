//! Effective protection, by examples with small numbers, and by properties that hold for all
//! numbers (guarantee 7 of `tests.rs`).
//!
//! The formulae are those of `protection.rs`; an example states its arithmetic in a comment.
//!
//! A change of the formulae needs both: an example and a property.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use proptest::prelude::*;

use crate::memcg::protection::{share, Protection, ShareInputs};
use crate::memcg::{Memcg, MemcgTree};
use lowwater_base::ByteSize;

fn charged(parent: &Memcg, name: &str, low: u64, used: u64) -> Memcg {
    let memcg = parent.create(name).unwrap();
    memcg.set_low(ByteSize::new(low));
    let _ = memcg.try_charge(ByteSize::new(used)).unwrap();
    memcg
}

fn low(memcg: &Memcg, from: &Memcg) -> u64 {
    memcg.protection(from).low.get()
}

#[test]
fn the_effective_value_of_a_top_level_group_is_its_setting() {
    let tree = MemcgTree::new(0);
    let a = charged(tree.root(), "a", 50, 80);
    a.set_min(ByteSize::new(20));
    let expected = Protection { min: ByteSize::new(20), low: ByteSize::new(50) };
    assert_eq!(a.protection(tree.root()), expected);
    assert_eq!(a.protection(&a), Protection::default(), "nothing is protected from a reclaim that starts at itself");
    let b = charged(tree.root(), "b", 0, 0);
    assert_eq!(a.protection(&b), Protection::default(), "nor from one elsewhere");
    tree.assert_valid();
}

#[test]
fn overcommitted_claims_are_reduced_in_proportion() {
    let tree = MemcgTree::new(0);
    let a = tree.root().create("a").unwrap();
    a.set_low(ByteSize::new(60));
    // Claims: 60, 30 and 0. The parent's 60 is two thirds of 90.
    let heavy = charged(&a, "heavy", 60, 100);
    let light = charged(&a, "light", 40, 30);
    let none = charged(&a, "none", 0, 70);
    assert_eq!([&heavy, &light, &none].map(|g| low(g, tree.root())), [40, 20, 0]);
    assert_eq!([&heavy, &light, &none].map(|g| low(g, &a)), [60, 40, 0], "reclaim inside the parent: as set");
    tree.assert_valid();
}

/// Two changes of one child's claim may be added to the sum in the other order.
#[test]
fn a_sum_of_claims_below_zero_takes_no_protection_from_the_children() {
    let tree = MemcgTree::new(0);
    let a = tree.root().create("a").unwrap();
    a.set_low(ByteSize::new(60));
    let child = charged(&a, "child", 0, 60);
    a.limits().low.children.store(32_u64.wrapping_neg(), Ordering::Relaxed);
    assert_eq!(low(&child, tree.root()), 60);
}

#[test]
fn unclaimed_protection_goes_to_usage_beyond_the_claims() {
    let tree = MemcgTree::new(0);
    let a = tree.root().create("a").unwrap();
    a.set_low(ByteSize::new(100));
    // 40 of the 100 are claimed. Beyond their claims the two children use 60 and 120: the 60 that
    // are left are divided 1 to 2.
    let claims = charged(&a, "claims", 40, 100);
    let plain = charged(&a, "plain", 0, 120);
    assert_eq!([&claims, &plain].map(|g| low(g, tree.root())), [60, 40]);
    // One level further down, without any setting: a guarantee protects the whole subtree.
    let leaf = charged(&plain, "leaf", 0, 0);
    plain.uncharge(ByteSize::new(120));
    let _ = leaf.try_charge(ByteSize::new(120)).unwrap();
    assert_eq!(low(&leaf, tree.root()), 40);
    tree.assert_valid();
}

#[test]
fn an_unused_guarantee_takes_nothing_from_siblings() {
    let tree = MemcgTree::new(0);
    let a = tree.root().create("a").unwrap();
    a.set_low(ByteSize::new(50));
    // A claim is at most the usage: first 0 and 50, then 50 and 50, twice what the parent has.
    let idle = charged(&a, "idle", 1_000, 0);
    let busy = charged(&a, "busy", 50, 50);
    assert_eq!([&idle, &busy].map(|g| low(g, tree.root())), [0, 50]);
    let _ = idle.try_charge(ByteSize::new(50)).unwrap();
    assert_eq!([&idle, &busy].map(|g| low(g, tree.root())), [25, 25]);
    idle.uncharge(ByteSize::new(50));
    assert_eq!([&idle, &busy].map(|g| low(g, tree.root())), [0, 50]);
}

#[test]
fn a_guarantee_below_an_unprotected_parent_has_no_effect() {
    let tree = MemcgTree::new(0);
    let a = tree.root().create("a").unwrap();
    let ab = charged(&a, "b", 50, 50);
    assert_eq!(low(&ab, tree.root()), 0);
    assert_eq!(low(&ab, &a), 50, "but against its siblings it holds");
}

#[test]
fn a_dying_group_claims_nothing() {
    let tree = MemcgTree::new(0);
    let a = tree.root().create("a").unwrap();
    a.set_low(ByteSize::new(50));
    // Two claims of 50 share the parent's 50; once one is gone, the other gets all of it.
    let [dies, stays] = ["dies", "stays"].map(|name| charged(&a, name, 50, 50));
    assert_eq!(low(&stays, tree.root()), 25);
    dies.offline().unwrap();
    dies.set_low(ByteSize::new(70));
    assert_eq!([&dies, &stays].map(|g| low(g, tree.root())), [0, 50]);
    assert_eq!(low(&dies, &a), 0);
    tree.assert_valid();
}

proptest! {
    /// Any numbers, including combinations that never exist at one instant.
    #[test]
    fn a_share_never_exceeds_the_parents_protection(
        above: u64, parent_usage: u64, claims: u64, usage: u64, claim: u64,
    ) {
        let share = share(ShareInputs { above, parent_usage, claims, usage, claim });
        prop_assert!(share <= above);
    }

    /// The children of one parent, with consistent numbers.
    #[test]
    fn all_shares_together_never_exceed_the_parents_protection(
        above in 0..1_000_u64,
        children in prop::collection::vec((0..300_u64, 0..300_u64), 1..8),
    ) {
        let claims: Vec<u64> = children.iter().map(|(usage, setting)| *usage.min(setting)).collect();
        let inputs = children.iter().zip(&claims).map(|((usage, _), claim)| ShareInputs {
            above,
            parent_usage: children.iter().map(|(usage, _)| usage).sum(),
            claims: claims.iter().sum(),
            usage: *usage,
            claim: *claim,
        });
        let shares: Vec<u64> = inputs.map(share).collect();
        prop_assert!(shares.iter().sum::<u64>() <= above);
        let all_fit = claims.iter().sum::<u64>() <= above;
        for (share, claim) in shares.iter().zip(&claims) {
            prop_assert!(if all_fit { share >= claim } else { share <= claim }, "{shares:?} for {claims:?}");
        }
    }
}
