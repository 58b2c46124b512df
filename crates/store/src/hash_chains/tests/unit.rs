//! The properties of `tests.rs`: 1 and 2 on one thread, 3 with real threads.
//!
//! The last test compares random histories with one stack per bucket. A change must keep this model
//! exact: the order of a chain is promised, too.

use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

/// A hash with high bits that distribute the keys over two chains.
fn hash(key: u64) -> u64 {
    key << 63
}

fn keys(table: &HashChains<Item>, bucket: usize) -> Vec<u64> {
    let reader = Reader::enter();
    table.chain_at(bucket, &reader).map(|item| item.key).collect()
}

#[test]
fn a_chain_is_youngest_first_and_without_removed_objects() {
    let table = HashChains::<Item>::new(2);
    let items: Vec<_> = (0..6).map(item).collect();
    for item in &items {
        table.insert(hash(item.key), item.clone()).ok().unwrap();
    }
    assert_eq!((keys(&table, 0), keys(&table, 1)), ([4, 2, 0].into(), [5, 3, 1].into()));
    assert!(table.remove(hash(2), &items[2]));
    assert!(!table.remove(hash(2), &items[2]), "it is gone already");
    assert!(!table.remove(hash(1), &items[0]), "it is on the other chain");
    assert_eq!(keys(&table, 0), [4, 0]);
}

#[test]
fn an_object_is_on_one_chain() {
    let (a, b) = (HashChains::<Item>::new(1), HashChains::<Item>::new(1));
    let x = item(1);
    a.insert(0, x.clone()).ok().unwrap();
    assert!(a.insert(0, x.clone()).is_err());
    assert!(b.insert(0, x.clone()).is_err());
    assert!(!b.remove(0, &x) && x.link.is_linked());
    assert!(a.remove(0, &x) && !x.link.is_linked());
    b.insert(0, x.clone()).ok().unwrap();
    drop(b);
    assert!(!x.link.is_linked(), "a table's end sets its objects free");
}

#[test]
fn the_table_releases_its_reference_counts() {
    let x = item(1);
    let table = HashChains::<Item>::new(1);
    table.insert(0, x.clone()).ok().unwrap();
    {
        let reader = Reader::enter();
        let found = table.find(0, &reader, |item| item.key == 1).unwrap().to_arc();
        assert!(Arc::ptr_eq(&found, &x) && Arc::strong_count(&x) == 3);
    }
    assert_eq!(Arc::strong_count(&x), 2);
    drop(table);
    assert!(!x.link.is_linked());
    // Readers of other tests may delay the drop.
    while Arc::strong_count(&x) != 1 {
        drop(Reader::enter());
    }
}

#[test]
fn readers_of_a_churning_chain_see_whole_objects() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };
    let table = HashChains::<Item>::new(1);
    std::thread::scope(|scope| {
        for base in [0, 1 << 32] {
            let table = &table;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let x = item(base | round);
                    table.insert(0, x.clone()).ok().unwrap();
                    assert!(table.remove(0, &x));
                }
            });
        }
        for _ in 0..ROUNDS {
            let reader = Reader::enter();
            assert!(table.chain(0, &reader).all(|item| (item.key as u32) < ROUNDS as u32));
        }
    });
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(usize),
    Remove(usize),
}

proptest! {
    #[test]
    fn is_a_stack_of_each_bucket(ops in prop::collection::vec(
        prop_oneof![(0..8_usize).prop_map(Op::Insert), (0..8_usize).prop_map(Op::Remove)], 0..64)) {
        let table = HashChains::<Item>::new(2);
        let items: Vec<_> = (0..8).map(item).collect();
        let mut model = [Vec::new(), Vec::new()];
        for op in ops {
            match op {
                Op::Insert(n) => {
                    let chain: &mut Vec<u64> = &mut model[n % 2];
                    let new = !chain.contains(&(n as u64));
                    prop_assert_eq!(table.insert(hash(n as u64), items[n].clone()).is_ok(), new);
                    if new {
                        chain.insert(0, n as u64);
                    }
                }
                Op::Remove(n) => {
                    let chain: &mut Vec<u64> = &mut model[n % 2];
                    let at = chain.iter().position(|&key| key == n as u64);
                    prop_assert_eq!(table.remove(hash(n as u64), &items[n]), at.is_some());
                    at.map(|at| chain.remove(at));
                }
            }
            prop_assert_eq!([keys(&table, 0), keys(&table, 1)], model.clone());
        }
    }
}
