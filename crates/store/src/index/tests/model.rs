//! Random histories, compared with a plain map.
//!
//! The histories run with four hash functions, three of them bad, since a wrong overflow count or a
//! wrong split shows only when many keys share a bucket. The other tests check promises that a map
//! does not make: first probes, memory, a refusing `add`, panics, objects of another slab.
//!
//! A change must ensure that bad hashes stay among the four: they reach the overflow counts.

use super::*;
use crate::index::{Cursor, FirstProbe};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use lowwater_rcu::pin;
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u64),
    PutMany(u64, u16),
    Get(u64),
    Replace(u64, u64),
    Remove(u64),
    RemoveSlot(u64),
    RemoveMany(u64, u16),
    Visit,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..2_000_u64;
    prop_oneof![
        4 => (key.clone(), any::<u64>()).prop_map(|(k, v)| Op::Put(k, v)),
        2 => (key.clone(), 0..600_u16).prop_map(|(k, n)| Op::PutMany(k, n)),
        4 => key.clone().prop_map(Op::Get),
        3 => (key.clone(), any::<u64>()).prop_map(|(k, v)| Op::Replace(k, v)),
        2 => key.clone().prop_map(Op::Remove),
        2 => key.clone().prop_map(Op::RemoveSlot),
        2 => (key, 0..600_u16).prop_map(|(k, n)| Op::RemoveMany(k, n)),
        1 => Just(Op::Visit),
    ]
}

/// The hash functions: a good one, the identity, one with few values, one with long runs of equal
/// values.
const HASHES: [fn(u64) -> u64; 4] =
    [|key| key.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29), |key| key, |key| key % 97, |key| key / 512];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_random_history_equals_a_map(ops in prop::collection::vec(op(), 1..40), hash in 0..HASHES.len()) {
        let hash = &HASHES[hash];
        let hasher = |entry: &Entry| hash(entry.key);
        // Declared before the index, so that the index is dropped first, and no indexed object is
        // left without its handle.
        let (mut map, mut handles) = (HashMap::<u64, u64>::new(), HashMap::new());
        let index = ExtendibleIndex::<Entry>::new();
        for op in ops {
            let mut put = |key, value, map: &mut HashMap<_, _>| {
                let (replaced, slot) = put(&index, key, value, hash, &pin(), |slot, _| slot);
                assert_eq!(replaced, map.insert(key, value));
                // The handle of the replaced entry is dropped here, after the call.
                handles.insert(key, slot);
            };
            match op {
                Op::Put(key, value) => put(key, value, &mut map),
                Op::PutMany(key, nr) => (0..u64::from(nr)).for_each(|n| put(key + n, n, &mut map)),
                Op::Get(key) => prop_assert_eq!(get(&index, key, hash, &pin()), map.get(&key).copied()),
                Op::Replace(key, value) => {
                    let guard = pin();
                    let replaced = replace(&index, key, value, hash, &guard, |slot| slot);
                    prop_assert_eq!(replaced.as_ref().map(|(old, _)| *old), map.get(&key).copied());
                    if let Some((_, slot)) = replaced {
                        map.insert(key, value);
                        handles.insert(key, slot);
                    }
                }
                Op::Remove(key) => {
                    prop_assert_eq!(remove(&index, key, hash, &pin()), map.remove(&key));
                    handles.remove(&key);
                }
                Op::RemoveSlot(key) => {
                    let slot = handles.remove(&key);
                    let removed = slot.is_some_and(|slot| {
                        index.remove_slot(&slot, hash(key), &pin(), &hasher, |bits| bits)
                    });
                    prop_assert_eq!(removed, map.remove(&key).is_some());
                }
                Op::RemoveMany(key, nr) => for key in key..key + u64::from(nr) {
                    prop_assert_eq!(remove(&index, key, hash, &pin()), map.remove(&key));
                    handles.remove(&key);
                },
                Op::Visit => {
                    let (mut cursor, mut seen) = (Cursor::new(), Vec::new());
                    while !cursor.is_done() {
                        index.visit(&mut cursor, &pin(), |entry| seen.push((entry.key, entry.value())));
                    }
                    seen.sort_unstable();
                    prop_assert_eq!(seen, map.iter().map(|(&k, &v)| (k, v)).collect::<BTreeMap<_, _>>().into_iter().collect::<Vec<_>>());
                }
            }
            index.assert_valid(&hasher);
        }
        let guard = pin();
        for (&key, &value) in &map {
            prop_assert_eq!(get(&index, key, hash, &guard), Some(value));
        }
    }
}

/// The result of a first probe for a key.
fn probe_first(index: &ExtendibleIndex<Entry>, key: u64, hash: &impl Fn(u64) -> u64) -> FirstProbe<u64> {
    match index.probe_first(hash(key), &pin(), |entry| entry.key == key) {
        FirstProbe::Found(entry) => FirstProbe::Found(entry.value()),
        FirstProbe::Absent => FirstProbe::Absent,
        FirstProbe::Undecided => FirstProbe::Undecided,
    }
}

/// An index with the keys below `n`, each with itself as its value, and the handles.
fn filled(n: u64, hash: &impl Fn(u64) -> u64) -> (ExtendibleIndex<Entry>, Vec<Slot<Entry>>) {
    let index = ExtendibleIndex::<Entry>::new();
    let handles = (0..n).map(|key| put(&index, key, key, hash, &pin(), |slot, _| slot).1).collect();
    (index, handles)
}

#[test]
fn a_first_probe_is_never_wrong() {
    assert_eq!(probe_first(&ExtendibleIndex::new(), 1, &|key| key), FirstProbe::Absent);
    for hash in &HASHES {
        let n = if cfg!(miri) { 40 } else { 3_000 };
        let (index, handles) = filled(n, hash);
        for key in 0..2 * n {
            match (probe_first(&index, key, hash), get(&index, key, hash, &pin())) {
                (FirstProbe::Found(value), found) => assert_eq!(Some(value), found),
                (FirstProbe::Absent, found) => assert_eq!(found, None),
                (FirstProbe::Undecided, _) => {}
            }
        }
        // The index is dropped first, so that no indexed object is left without its handle.
        drop(index);
        drop(handles);
    }
}

#[test]
fn the_first_probe_suffices_for_most_keys_with_any_hash() {
    let poor: [fn(u64) -> u64; 8] = [
        |key| key,
        |key| key << 3,
        |key| key << 20,
        |key| key << 32,
        |key| key << 48,
        u64::reverse_bits,
        |key| (key as f64).to_bits(),
        |key| key << 40 | key,
    ];
    for (which, hash) in poor.iter().enumerate() {
        let n = if cfg!(miri) { 40 } else { 20_000 };
        let (index, handles) = filled(n, hash);
        let found = (0..n).filter(|&key| probe_first(&index, key, hash) == FirstProbe::Found(key)).count() as u64;
        // About 5 % overflow, and for 2 % another object has the same tag.
        assert!(found > n / 100 * 90, "{found} of {n} for hash {which}");
        // The index is dropped first, so that no indexed object is left without its handle.
        drop(index);
        drop(handles);
    }
}

#[test]
fn a_large_index_uses_little_memory_and_shrinks() {
    let hash = &HASHES[0];
    let mut handles = Vec::new();
    let index = ExtendibleIndex::<Entry>::new();
    assert!(index.footprint().get() < 300);
    let n = 200_000;
    for key in 0..n {
        handles.push(put(&index, key, key, hash, &pin(), |slot, _| slot).1);
    }
    index.assert_valid(&|entry: &Entry| hash(entry.key));
    let full = settled(&index, n * 10);
    // A way takes 64 / 12 bytes: about half of the ways, at least, are in use.
    assert!(full / n <= 10, "{full} bytes for {n}");
    let value_of = |key| get(&index, key, hash, &pin());
    assert!((0..n).all(|key| value_of(key) == Some(key) && value_of(key + n).is_none()));
    for key in n / 10..n {
        assert_eq!(remove(&index, key, hash, &pin()), Some(key));
    }
    handles.truncate(n as usize / 10);
    index.assert_valid(&|entry: &Entry| hash(entry.key));
    let least = settled(&index, full / 3 - 1);
    assert!(least < full / 3, "{least} of {full}");
}

#[test]
fn an_insert_whose_add_refuses_changes_nothing() {
    let (hash, index) = (&HASHES[0], ExtendibleIndex::<Entry>::new());
    let guard = pin();
    let (_, first) = put(&index, 1, 10, hash, &guard, |slot, _| slot);
    let hasher = |entry: &Entry| hash(entry.key);
    let refused = index.insert(
        entry(&index, 1, 11),
        hash(1),
        &guard,
        |e, _| e.key == 1,
        &hasher,
        |slot, old| {
            assert_eq!(old.map(|(old, _)| old.value()), Some(10));
            Err::<(), _>(slot)
        },
    );
    let Err(InsertError::Refused(slot)) = refused else { panic!("it was refused") };
    assert_eq!(slot.into_inner().map(|entry| entry.value()).ok(), Some(11), "no reader saw it");
    assert_eq!(get(&index, 1, hash, &guard), Some(10));
    let again = index.insert(first, hash(1), &guard, |e, _| e.key == 1, &hasher, |slot, _| Ok(slot));
    let Err(InsertError::Indexed(first)) = again else { panic!("it is in the index") };
    assert!(remove(&index, 1, hash, &guard).is_some() && first.into_inner().is_err());
}

#[test]
#[cfg_attr(panic = "abort", ignore = "it catches a panic")]
#[cfg_attr(not(feature = "std"), ignore = "no panic can be caught")]
fn keys_whose_hash_panics_during_growth_are_hidden_and_no_others() {
    /// The payload of a panic; its drop looks a key up under the lock of the key's segment, and so
    /// would deadlock if that lock were still held.
    struct LooksUp(usize);
    impl Drop for LooksUp {
        fn drop(&mut self) {
            let index = core::ptr::with_exposed_provenance::<ExtendibleIndex<Entry>>(self.0);
            // SAFETY: the index outlives the insert whose growth panicked.
            unsafe { &*index }.with(HASHES[0](5), &pin(), |entry| entry.key == 5, |_| ());
        }
    }
    let mut handles = Vec::new();
    let index = ExtendibleIndex::<Entry>::new();
    let address = core::ptr::from_ref(&index).expose_provenance();
    let armed = core::cell::Cell::new(false);
    let fails = |key: u64| armed.get() && (key == 3 || key == 7);
    let hash = |key: u64| match fails(key) {
        true => std::panic::resume_unwind(alloc::boxed::Box::new(LooksUp(address))),
        false => HASHES[0](key),
    };
    for key in 0..10 {
        handles.push(put(&index, key, key, &hash, &pin(), |slot, _| slot).1);
    }
    armed.set(true);
    for key in 10..2_000 {
        handles.push(put(&index, key, key, &hash, &pin(), |slot, _| slot).1);
    }
    armed.set(false);
    let guard = pin();
    let found = |key: &u64| get(&index, *key, &hash, &guard) == Some(*key);
    assert_eq!((0..2_000).filter(found).count(), 1_998);
    let shown = || {
        let (mut at, mut shown) = (Cursor::new(), 0);
        while !at.is_done() {
            index.visit(&mut at, &guard, |_| shown += 1);
        }
        shown
    };
    assert_eq!(shown(), 2_000, "walks show the hidden ones, too");
    // They stay hidden when their hash works again, beside newer objects of their keys.
    for key in [3, 7].into_iter().chain(2_000..20_000) {
        handles.push(put(&index, key, key + 1, &hash, &guard, |slot, _| slot).1);
    }
    assert_eq!([3, 7].map(|key| get(&index, key, &hash, &guard)), [Some(4), Some(8)]);
    for key in [3, 7].into_iter().chain(2_000..20_000) {
        assert_eq!(remove(&index, key, &hash, &guard), Some(key + 1));
    }
    assert_eq!((get(&index, 3, &hash, &guard), shown()), (None, 2_000));
    index.assert_valid(&|entry: &Entry| hash(entry.key));
}

#[test]
#[should_panic = "an object can be inserted only into the index of its own slab"]
fn inserting_an_object_of_another_slab_panics() {
    let (index, other) = (ExtendibleIndex::<Entry>::new(), ExtendibleIndex::<Entry>::new());
    let hasher = |entry: &Entry| entry.key;
    let _ = index.insert(entry(&other, 1, 10), 1, &pin(), |_, _| false, &hasher, |slot, _| Ok(slot));
}

/// The result of a removal is dropped without the segment's lock, and the index stays usable, if
/// the hasher of another entry panics.
#[test]
#[cfg_attr(panic = "abort", ignore = "it catches a panic")]
fn a_removal_completes_if_the_hasher_panics_while_the_segment_shrinks() {
    /// The result of a removal; its drop looks the next key up, which would deadlock under the
    /// lock.
    struct LooksUpNext<'a>(&'a ExtendibleIndex<Entry>, u64);
    impl Drop for LooksUpNext<'_> {
        fn drop(&mut self) {
            let other = self.1 + 1;
            self.0.with(HASHES[0](other), &pin(), |entry| entry.key == other, |_| ());
        }
    }
    let mut handles = Vec::new();
    let index = ExtendibleIndex::<Entry>::new();
    (0..400).for_each(|key| handles.push(put(&index, key, key, &HASHES[0], &pin(), |slot, _| slot).1));
    let failed = core::cell::Cell::new(0);
    let fails = |_: &Entry| -> u64 {
        failed.set(failed.get() + 1);
        panic!("the hasher's own fault")
    };
    for key in 0..400 {
        let remove = core::panic::AssertUnwindSafe(|| {
            index
                .remove(HASHES[0](key), &pin(), |entry| entry.key == key, &fails, |_| LooksUpNext(&index, key))
                .expect("the key was inserted");
        });
        // Without `std` the panic cannot be caught, and reaches the caller after the removal.
        assert!(std::panic::catch_unwind(remove).is_ok() || cfg!(not(feature = "std")));
        assert_eq!(get(&index, key, &HASHES[0], &pin()), None);
    }
    assert!(failed.get() > 0, "it never became smaller: this test shows nothing");
    index.assert_valid(&|entry| HASHES[0](entry.key));
}

#[test]
fn remove_slot_removes_only_from_the_slots_own_index() {
    let hash = |key: u64| key;
    let hasher = |entry: &Entry| entry.key;
    let (index, other) = (ExtendibleIndex::<Entry>::new(), ExtendibleIndex::<Entry>::new());
    let own = |slot, _: Option<&Entry>| slot;
    // 40 entries share a hash, so the slot is looked for in more than its home bucket.
    let mut slots: Vec<_> = (0..40).map(|key| put(&index, key, key, &|_| 5, &pin(), own).1).collect();
    let foreign = put(&other, 1, 1, &hash, &pin(), own).1;
    let remove = |slot: &Slot<Entry>, hash| index.remove_slot(slot, hash, &pin(), &hasher, |bits| bits | 3);
    assert!(!remove(&foreign, 1), "another index has it");
    assert!(foreign.is_indexed());
    assert!(!remove(&slots[39], 6), "not under this hash");
    let slot = slots.pop().expect("40 slots were allocated");
    assert!(slot.is_indexed() && remove(&slot, 5));
    assert!(!slot.is_indexed(), "the handle shows that the object is no longer indexed");
    assert_eq!(slot.state.bits(), 3, "the change was stored");
    assert!(!remove(&slot, 5), "removed twice");
    assert_eq!(get(&index, 39, &|_| 5, &pin()), None);
    assert!((0..39).all(|key| get(&index, key, &|_| 5, &pin()) == Some(key)));
    index.assert_valid(&|_| 5);
    assert_eq!(get(&other, 1, &hash, &pin()), Some(1));
}

#[test]
#[cfg_attr(panic = "abort", ignore = "it catches a panic")]
fn a_change_that_panics_leaves_the_object_in_the_index() {
    let (index, mut handles) = filled(8, &|key| key);
    let slot = handles.pop().unwrap();
    let remove = |change: fn(u8) -> u8| index.remove_slot(&slot, 7, &pin(), &|entry: &Entry| entry.key, change);
    std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| remove(|_| panic!("no new bits")))).unwrap_err();
    assert!(slot.is_indexed());
    assert_eq!(seven(&index), Some(7));
    assert!(remove(|bits| bits) && seven(&index).is_none());
    assert!(slot.into_inner().is_err(), "readers may have seen it, so it is retired");
}

/// The value of key 7.
fn seven(index: &ExtendibleIndex<Entry>) -> Option<u64> {
    get(index, 7, &|key| key, &pin())
}

#[test]
fn a_replacement_whose_swap_refuses_changes_nothing() {
    let (index, mut handles) = filled(20, &|key| key);
    let guard = pin();
    let there = index.get(7, &guard, |entry| entry.key == 7).unwrap();
    let refused = index.replace::<()>(entry(&index, 7, 70), 7, &guard, there, |slot, node| {
        assert_eq!(node, NodeId::ZERO);
        Err(slot)
    });
    let Err(InsertError::Refused(slot)) = refused else { panic!("{:?}", refused.err()) };
    assert_eq!((seven(&index), slot.value()), (Some(7), 70));
    assert!(!slot.is_indexed() && slot.into_inner().is_ok(), "no reader has seen the new object");

    // An object that is in the index is not put there twice.
    let other = handles.pop().unwrap();
    let refused = index.replace(other, 7, &guard, there, |_, _| -> Result<(), _> { panic!("not called") });
    assert!(matches!(refused, Err(InsertError::Indexed(_))), "{:?}", refused.err());
    assert_eq!(seven(&index), Some(7));

    // Under another hash, and after it was removed or replaced, the object is not found.
    let absent = |hash| {
        let refused = index.replace(entry(&index, 7, 71), hash, &guard, there, |_, _| -> Result<(), _> { panic!() });
        assert!(matches!(refused, Err(InsertError::Refused(_))), "{:?}", refused.err());
    };
    absent(8);
    let (old, new) = replace(&index, 7, 72, &|key| key, &guard, |slot| slot).unwrap();
    absent(7);
    assert_eq!((old, seven(&index)), (7, Some(72)));
    assert_eq!(remove(&index, 7, &|key| key, &guard), Some(72));
    absent(7);
    index.assert_valid(&|entry: &Entry| entry.key);
    drop(new);
    // The index is empty, and has no segment.
    let empty = ExtendibleIndex::<Entry>::new();
    let refused = empty.replace(entry(&empty, 7, 7), 7, &guard, there, |_, _| -> Result<(), _> { panic!() });
    assert!(matches!(refused, Err(InsertError::Refused(_))), "{:?}", refused.err());
}

#[test]
#[cfg_attr(panic = "abort", ignore = "it catches a panic")]
fn a_replacement_that_panics_keeps_the_old_object() {
    let (index, _handles) = filled(20, &|key| key);
    let guard = pin();
    let there = index.get(7, &guard, |entry| entry.key == 7).unwrap();
    let slot = entry(&index, 7, 70);
    let replaced = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        index.replace(slot, 7, &guard, there, |_slot, _| -> Result<(), _> { panic!("the owner's own fault") })
    }));
    assert!(replaced.is_err());
    assert_eq!(seven(&index), Some(7));
    assert!((0..20).all(|key| get(&index, key, &|key| key, &guard) == Some(key)), "no lock is held");
    index.assert_valid(&|entry: &Entry| entry.key);
}

#[test]
#[should_panic(expected = "only into the index of its own slab")]
fn replacing_by_an_object_of_another_slab_panics() {
    let (index, _handles) = filled(1, &|key| key);
    let other = ExtendibleIndex::<Entry>::new();
    let guard = pin();
    let there = index.get(0, &guard, |_| true).unwrap();
    let _refused = index.replace(entry(&other, 0, 1), 0, &guard, there, |_, _| Ok(()));
}
