//! Model checks of the index: loom runs all interleavings of two or three threads, with at most
//! three preemptions (`ci/loom.sh`).
//!
//! The first segment is one bucket with two ways here. So a third object splits the segment, or, if
//! all hashes are equal, enlarges it to two buckets. A way holds a tag, 8 bits of the object's
//! hash, and the object's slot number; the order in which the two are stored and loaded is the
//! subject of most checks (`bucket.rs`).
//!
//! Most checks are a function that runs one race, such as `a_reader_beside_a_put`, and two kinds of
//! tests that call it. One test calls it as the code is, and must pass. A test
//! `…_fails_with_MUTANT` calls it with a mutant, the code with one ordering weakened or one step
//! left out, and must fail: otherwise the check would not detect the error.
//!
//! A change must ensure that each mutant of the index that docs/ORDERINGS.md lists has a test that
//! fails with it.

use super::*;
use crate::sync::{model, with_mutant};
use ::loom::thread;
use alloc::boxed::Box;
use alloc::vec::Vec;
use lowwater_rcu::pin;

/// Leaked until [`end`]: a failed model is not cleaned up, because loom must not be called while it
/// unwinds.
fn index() -> &'static ExtendibleIndex<Entry> {
    Box::leak(Box::new(ExtendibleIndex::new()))
}

fn end(index: &'static ExtendibleIndex<Entry>, handles: Vec<Slot<Entry>>) {
    index.assert_valid(&|entry: &Entry| hash(entry.key));
    // SAFETY: the reference came from `Box::leak`; the model's other threads are joined, and the
    // index is not used afterwards.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(index).cast_mut()) });
    drop(handles);
}

/// A hash with which the keys 1 to 5 have distinct tags.
fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn insert(index: &'static ExtendibleIndex<Entry>, key: u64, value: u64) -> Slot<Entry> {
    put(index, key, value, &hash, &pin(), |slot, _| slot).1
}

fn find(index: &'static ExtendibleIndex<Entry>, key: u64) -> Option<u64> {
    get(index, key, &hash, &pin())
}

/// A reader beside the first insertion of its key finds either nothing or the initialized entry,
/// and from then on always the entry.
fn a_reader_beside_a_put() {
    let index = index();
    let handles = Vec::from([insert(index, 1, 10)]);
    let reader = thread::spawn(move || {
        let first = find(index, 2);
        assert!(matches!(first, None | Some(20)), "{first:?}");
        assert!(first.is_none() || find(index, 2).is_some(), "a found object stays live");
        assert_eq!(find(index, 1), Some(10), "a key that is never removed is found");
    });
    let mut handles = handles;
    handles.push(insert(index, 2, 20));
    reader.join().unwrap();
    end(index, handles);
}

#[test]
fn a_reader_finds_nothing_or_the_initialized_entry_during_an_insert() {
    model(a_reader_beside_a_put);
}

/// A reader beside a replacement finds either the old or the new entry, both initialized.
fn a_reader_beside_a_replacement() {
    let index = index();
    let first = insert(index, 1, 10);
    let reader = thread::spawn(move || {
        let found = find(index, 1);
        assert!(matches!(found, Some(10 | 11)), "{found:?}");
    });
    let second = insert(index, 1, 11);
    reader.join().unwrap();
    end(index, Vec::from([first, second]));
}

#[test]
fn a_reader_finds_one_of_both_entries_during_an_inserting_replacement() {
    model(a_reader_beside_a_replacement);
}

/// A replacement by `replace`, which replaces nothing if another thread has removed the entry.
fn a_removal_beside_a_replacement() {
    let index = index();
    let first = insert(index, 1, 10);
    let remover = thread::spawn(move || {
        let removed = remove(index, 1, &hash, &pin());
        assert!(matches!(removed, Some(10 | 11)), "{removed:?}");
    });
    let replaced = replace(index, 1, 11, &hash, &pin(), |slot| slot);
    let found = find(index, 1);
    assert!(found.is_none() || replaced.is_some() && found == Some(11), "{found:?}");
    remover.join().unwrap();
    assert_eq!(find(index, 1), None, "the key was removed once");
    end(index, [first].into_iter().chain(replaced.map(|(_, slot)| slot)).collect());
}

#[test]
fn a_replacement_and_a_removal_of_one_entry_are_serialized() {
    model(a_removal_beside_a_replacement);
}

/// A reader beside a replacement by `replace` finds one of the two entries, initialized.
fn a_reader_beside_a_replacement_in_place() {
    let index = index();
    let first = insert(index, 1, 10);
    let reader = thread::spawn(move || {
        let found = find(index, 1);
        assert!(matches!(found, Some(10 | 11)), "{found:?}");
    });
    let second = replace(index, 1, 11, &hash, &pin(), |slot| slot);
    reader.join().unwrap();
    end(index, [first].into_iter().chain(second.map(|(_, slot)| slot)).collect());
}

#[test]
fn a_reader_finds_one_of_both_entries_during_a_replacement_in_place() {
    model(a_reader_beside_a_replacement_in_place);
}

#[test]
#[should_panic]
fn a_replacement_in_place_fails_with_number_relaxed() {
    with_mutant("number_relaxed", || model(a_reader_beside_a_replacement_in_place));
}

#[test]
#[should_panic]
fn an_inserting_replacement_fails_with_number_relaxed() {
    with_mutant("number_relaxed", || model(a_reader_beside_a_replacement));
}

/// Inserts an entry that was allocated before, with the hash 7.
fn insert_slot(index: &'static ExtendibleIndex<Entry>, slot: Slot<Entry>) -> Slot<Entry> {
    let (guard, hasher) = (pin(), |_: &Entry| 7);
    match index.insert(slot, 7, &guard, |a, b| a.key == b.key, &hasher, |slot, _| Ok(slot)) {
        Ok((_, slot)) => slot,
        Err(_) => panic!("nothing refuses"),
    }
}

/// An entry is removed, and another one with the same tag takes its way: a reader that sees the new
/// tag must not use the old slot number, whose slot is free.
fn a_reader_beside_a_reused_way() {
    let index = index();
    let same = |_: u64| 7;
    let first = put(index, 1, 10, &same, &pin(), |slot, _| slot).1;
    let reader = thread::spawn(move || {
        let found = get(index, 2, &same, &pin());
        assert!(matches!(found, None | Some(20)), "{found:?}");
    });
    let second = entry(index, 2, 20);
    remove(index, 1, &same, &pin());
    drop(first);
    index.slab().collect();
    let second = insert_slot(index, second);
    reader.join().unwrap();
    // SAFETY: the reference came from `Box::leak`, the other thread was joined above, and the index
    // is not used afterwards.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(index).cast_mut()) });
    drop(second);
}

#[test]
fn a_reader_uses_a_slot_number_only_with_its_own_tag() {
    model(a_reader_beside_a_reused_way);
}

#[test]
#[should_panic]
fn a_reused_way_fails_with_tag_relaxed() {
    with_mutant("tag_relaxed", || model(a_reader_beside_a_reused_way));
}

/// Three keys, of which only the first is in the lower half of the hashes: the third insertion
/// splits the segment that is full with the first two.
fn keys() -> [u64; 3] {
    let half = |key: &u64| lowwater_base::hash::mix(hash(*key)) >> 63;
    let of = |wanted| (1..).filter(move |key| half(key) == wanted);
    let (mut low, mut high) = (of(0), of(1));
    [low.next(), high.next(), high.next()].map(|key| key.expect("the sequence of keys has no end"))
}

/// A segment that splits, and a directory that doubles, hide no entry that is present throughout.
fn a_reader_beside_a_split() {
    let (index, [one, two, three]) = (index(), keys());
    let mut handles: Vec<_> = [insert(index, one, 10), insert(index, two, 20)].into();
    let reader = thread::spawn(move || {
        assert_eq!(find(index, one), Some(10), "a key that is never removed is found");
    });
    handles.push(insert(index, three, 30));
    reader.join().unwrap();
    assert_eq!([one, two, three].map(|key| find(index, key)), [Some(10), Some(20), Some(30)]);
    end(index, handles);
}

#[test]
fn a_reader_finds_present_entries_during_a_split() {
    model(a_reader_beside_a_split);
}

#[test]
#[should_panic]
fn a_split_fails_with_directory_relaxed() {
    with_mutant("directory_relaxed", || model(a_reader_beside_a_split));
}

/// Three keys with one hash: the segment grows, and the directory stays.
fn a_reader_beside_a_growth() {
    let index = index();
    let same = |_: u64| 7;
    let mut handles: Vec<_> = [1, 2].map(|key| put(index, key, key * 10, &same, &pin(), |slot, _| slot).1).into();
    let reader = thread::spawn(move || {
        assert_eq!(get(index, 1, &same, &pin()), Some(10), "a key that is never removed is found");
    });
    handles.push(put(index, 3, 30, &same, &pin(), |slot, _| slot).1);
    reader.join().unwrap();
    assert_eq!([1, 2, 3].map(|key| get(index, key, &same, &pin())), [Some(10), Some(20), Some(30)]);
    // SAFETY: the reference came from `Box::leak`, the other thread was joined above, and the index
    // is not used afterwards.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(index).cast_mut()) });
    drop(handles);
}

#[test]
fn a_reader_finds_present_entries_during_a_growth() {
    model(a_reader_beside_a_growth);
}

#[test]
#[should_panic]
fn a_growth_fails_with_segment_relaxed() {
    with_mutant("segment_relaxed", || model(a_reader_beside_a_growth));
}

#[test]
#[should_panic]
fn a_split_fails_with_free_without_waiting() {
    with_mutant("free_without_waiting", || model(a_reader_beside_a_split));
}

/// A segment that is moved by a copy hides no entry that is present throughout, nor one that is
/// inserted next.
fn a_reader_beside_a_move() {
    let index = index();
    let mut handles = Vec::from([insert(index, 1, 10)]);
    let reader = thread::spawn(move || {
        assert_eq!(find(index, 1), Some(10), "a key that is never removed is found");
    });
    let guard = pin();
    let mut segment = index.lock_if_any(lowwater_base::hash::mix(hash(1)), &guard).expect("the segment was created");
    index.move_out(&mut segment, None, &guard).expect("memory");
    drop(segment);
    drop(guard);
    handles.push(insert(index, 2, 20));
    reader.join().unwrap();
    assert_eq!([1, 2].map(|key| find(index, key)), [Some(10), Some(20)]);
    end(index, handles);
}

#[test]
fn a_reader_finds_present_entries_during_a_segment_move() {
    model(a_reader_beside_a_move);
}

#[test]
#[should_panic]
fn a_segment_move_fails_with_segment_relaxed() {
    with_mutant("segment_relaxed", || model(a_reader_beside_a_move));
}

#[test]
#[should_panic]
fn a_segment_move_fails_with_free_without_waiting() {
    with_mutant("free_without_waiting", || model(a_reader_beside_a_move));
}

/// An insertion waits for a segment that is being moved, and goes to the copy: nothing is lost.
#[test]
fn an_insert_during_a_segment_move_is_not_lost() {
    model(|| {
        let index = index();
        let mut handles = Vec::from([insert(index, 1, 10)]);
        let other = thread::spawn(move || insert(index, 2, 20));
        let guard = pin();
        let mut segment =
            index.lock_if_any(lowwater_base::hash::mix(hash(1)), &guard).expect("the segment was created");
        index.move_out(&mut segment, None, &guard).expect("memory");
        drop(segment);
        drop(guard);
        handles.push(other.join().unwrap());
        assert_eq!([1, 2].map(|key| find(index, key)), [Some(10), Some(20)]);
        end(index, handles);
    });
}

/// Of two insertions of one key, the later replaces the entry of the earlier, and is found.
#[test]
fn of_two_concurrent_inserts_of_one_key_one_replaces_the_other() {
    model(|| {
        let index = index();
        let other = thread::spawn(move || {
            let (replaced, slot) = put(index, 1, 11, &hash, &pin(), |slot, _| slot);
            (replaced, slot)
        });
        let (replaced, mine) = put(index, 1, 10, &hash, &pin(), |slot, _| slot);
        let (theirs_replaced, theirs) = other.join().unwrap();
        let there = find(index, 1);
        assert!(
            (replaced, theirs_replaced, there) == (None, Some(10), Some(11))
                || (replaced, theirs_replaced, there) == (Some(11), None, Some(10)),
            "{replaced:?} {theirs_replaced:?} {there:?}"
        );
        end(index, Vec::from([mine, theirs]));
    });
}

/// A key is removed, and another with the same tag takes its way: a reader that finds the new one
/// finds it again.
fn two_lookups_beside_a_reused_way() {
    let index = index();
    let same_tag = |_: u64| 7;
    let first = put(index, 1, 10, &same_tag, &pin(), |slot, _| slot).1;
    let reader = thread::spawn(move || {
        let found = get(index, 257, &same_tag, &pin());
        if found.is_some() {
            let again = get(index, 257, &same_tag, &pin());
            assert_eq!(again, Some(20), "a found object stays live");
        }
    });
    assert_eq!(remove(index, 1, &same_tag, &pin()), Some(10));
    let second = put(index, 257, 20, &same_tag, &pin(), |slot, _| slot).1;
    reader.join().unwrap();
    // SAFETY: the reference came from `Box::leak`, the other thread was joined above, and the index
    // is not used afterwards.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(index).cast_mut()) });
    drop([first, second]);
}

#[test]
fn an_entry_that_one_reader_found_is_found_by_the_next() {
    model(two_lookups_beside_a_reused_way);
}

#[test]
#[should_panic]
fn the_next_reader_fails_with_without_second_look() {
    with_mutant("without_second_look", || model(two_lookups_beside_a_reused_way));
}

/// A removal beside an insertion that splits the segment: the removed key is absent, and the
/// inserted one present.
#[test]
fn a_removal_during_a_split_removes_the_entry_once() {
    model(|| {
        let (index, [one, two, three]) = (index(), keys());
        let mut handles: Vec<_> = [insert(index, one, 10), insert(index, two, 20)].into();
        let other = thread::spawn(move || remove(index, one, &hash, &pin()));
        handles.push(insert(index, three, 30));
        assert_eq!(other.join().unwrap(), Some(10));
        assert_eq!([one, two, three].map(|key| find(index, key)), [None, Some(20), Some(30)]);
        end(index, handles);
    });
}

/// One thread removes an entry, and another drops the entry's handle if the entry is not indexed
/// any more: a reader that enters afterwards does not find the entry.
fn a_handle_dropped_after_a_removal() {
    let index = index();
    let handle = insert(index, 1, 10);
    let remover = thread::spawn(move || remove(index, 1, &hash, &pin()));
    let reader = thread::spawn(move || {
        let found = find(index, 1);
        assert!(matches!(found, None | Some(10)), "{found:?}");
    });
    let mut handles = Vec::new();
    if handle.state.is_indexed() {
        handles.push(handle);
    } else {
        drop(handle);
    }
    assert_eq!(remover.join().unwrap(), Some(10));
    reader.join().unwrap();
    end(index, handles);
}

#[test]
fn an_entry_that_is_not_indexed_is_not_found() {
    model(a_handle_dropped_after_a_removal);
}

#[test]
#[should_panic]
fn a_dropped_handle_fails_with_indexed_relaxed() {
    with_mutant("indexed_relaxed", || model(a_handle_dropped_after_a_removal));
}

/// One thread removes an entry while another drops the entry's handle: the entry is retired once,
/// after both.
fn a_handle_dropped_beside_a_removal() {
    let index = index();
    let handle = insert(index, 1, 10);
    let remover = thread::spawn(move || {
        assert_eq!(remove(index, 1, &hash, &pin()), Some(10));
        index.slab().collect();
    });
    assert_eq!(handle.value(), 10);
    drop(handle);
    remover.join().unwrap();
    index.slab().collect();
    let slab = index.slab();
    assert_eq!((slab.drop_panics(), slab.shared().unwrap().used()), (0, 0), "it was dropped in order");
    end(index, Vec::new());
}

#[test]
fn an_entry_is_retired_once_if_its_handle_is_dropped_during_its_removal() {
    model(a_handle_dropped_beside_a_removal);
}

#[test]
#[should_panic]
fn a_removal_fails_with_left_without_an_end() {
    with_mutant("left_without_an_end", || model(a_handle_dropped_beside_a_removal));
}

#[test]
#[should_panic]
fn a_removal_fails_with_abandon_relaxed() {
    with_mutant("abandon_relaxed", || model(a_handle_dropped_beside_a_removal));
}

/// A way gets a new entry as in `a_reader_beside_a_reused_way`, and then another part of
/// the same word changes: a neighbour's tag, or an overflow count. A reader that sees the new tag
/// through that store must not use the old slot number.
fn a_reader_beside_a_word_that_changes(then: fn(&'static ExtendibleIndex<Entry>) -> Option<Slot<Entry>>) {
    let index = index();
    let mut handles: Vec<_> = [1, 2, 3].map(|key| put(index, key, key * 10, &same, &pin(), |slot, _| slot).1).into();
    let reader = thread::spawn(move || {
        let found = get(index, 4, &same, &pin());
        assert!(matches!(found, None | Some(40)), "{found:?}");
    });
    let new = entry(index, 4, 40);
    remove(index, 2, &same, &pin());
    drop(handles.remove(1));
    index.slab().collect();
    handles.push(insert_slot(index, new));
    handles.extend(then(index));
    reader.join().unwrap();
    index.assert_valid(&|_| 7);
    // SAFETY: the reference came from `Box::leak`, the other thread was joined above, and the index
    // is not used afterwards.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(index).cast_mut()) });
    drop(handles);
}

fn same(_: u64) -> u64 {
    7
}

fn a_reader_beside_the_removal_of_a_neighbour() {
    a_reader_beside_a_word_that_changes(|index| {
        assert_eq!(remove(index, 1, &same, &pin()), Some(10));
        None
    });
}

fn a_reader_beside_an_overflowing_insert() {
    a_reader_beside_a_word_that_changes(|index| Some(put(index, 5, 50, &same, &pin(), |slot, _| slot).1));
}

fn a_reader_beside_the_removal_of_an_overflowed_entry() {
    a_reader_beside_a_word_that_changes(|index| {
        assert_eq!(remove(index, 3, &same, &pin()), Some(30));
        None
    });
}

#[test]
fn a_tag_is_published_by_every_store_of_its_word() {
    model(a_reader_beside_the_removal_of_a_neighbour);
    model(a_reader_beside_an_overflowing_insert);
    model(a_reader_beside_the_removal_of_an_overflowed_entry);
}

#[test]
#[should_panic]
fn a_tag_fails_with_take_relaxed() {
    with_mutant("take_relaxed", || model(a_reader_beside_the_removal_of_a_neighbour));
}

#[test]
#[should_panic]
fn a_tag_fails_with_pass_relaxed() {
    with_mutant("pass_relaxed", || model(a_reader_beside_an_overflowing_insert));
}

#[test]
#[should_panic]
fn a_tag_fails_with_unpass_relaxed() {
    with_mutant("unpass_relaxed", || model(a_reader_beside_the_removal_of_an_overflowed_entry));
}

/// A reader beside the very first insertion finds either nothing, or the entry in an initialized
/// directory and segment.
fn a_reader_beside_the_first_put() {
    let index = index();
    let reader = thread::spawn(move || {
        let found = find(index, 1);
        assert!(matches!(found, None | Some(10)), "{found:?}");
    });
    let handle = insert(index, 1, 10);
    reader.join().unwrap();
    end(index, Vec::from([handle]));
}

#[test]
fn a_reader_finds_nothing_or_the_initialized_entry_during_the_first_insert() {
    model(a_reader_beside_the_first_put);
}

#[test]
#[should_panic]
fn the_first_insert_fails_with_first_directory_relaxed() {
    with_mutant("first_directory_relaxed", || model(a_reader_beside_the_first_put));
}

/// A reader beside an insertion for which the slab adds a chunk: the reader finds entries in the
/// new chunk and in the earlier one.
fn a_reader_beside_a_new_chunk() {
    let index = index();
    let mut handles = Vec::from([insert(index, 1, 10)]);
    while index.slab().shared().unwrap().free() > 0 {
        handles.push(entry(index, 3, 30));
    }
    let reader = thread::spawn(move || {
        let found = find(index, 2);
        assert!(matches!(found, None | Some(20)), "{found:?}");
        assert_eq!(find(index, 1), Some(10), "a key that is never removed is found");
    });
    handles.push(insert(index, 2, 20));
    reader.join().unwrap();
    end(index, handles);
}

#[test]
fn a_reader_finds_present_entries_while_the_slab_adds_a_chunk() {
    model(a_reader_beside_a_new_chunk);
}

#[test]
#[should_panic]
fn a_new_chunk_fails_with_put_relaxed() {
    with_mutant("put_relaxed", || model(a_reader_beside_a_new_chunk));
}
