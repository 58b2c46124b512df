//! The rows of quick_cache's `unsync::Cache`, for which lowwater's values must be `Clone`, `Send`
//! and `Sync`.

use lowwater::cache::Op;
use lowwater::ByteSize;

use crate::{letters, numbers, Outcome};

#[test]
fn borrowed_values() -> Outcome {
    // row: the methods of sync::Cache
    let cache = letters();
    assert_eq!(cache.remove("e").as_deref(), Some("e"));
    // row: get, peek (borrowed)
    let pinned = cache.pin();
    let (got, peeked): (&String, &String) = (pinned.get("a").ok_or("absent")?, pinned.peek("b").ok_or("absent")?);
    cache.remove("a");
    assert_eq!((got.as_str(), peeked.as_str(), pinned.get("a")), ("a", "b", None), "readable until the pin ends");
    drop(pinned);
    // row: get_mut, peek_mut: RefMut
    let cache = numbers(ByteSize::mib(1));
    cache.insert(1, 1)?;
    cache.entry(1).and_compute(|there| there.map_or(Op::Keep, |there| Op::Update(there.value() + 1)))?;
    assert_eq!(cache.get(&1), Some(2));
    // row: get_ref_or_guard: Guard::insert
    assert_eq!((cache.get_or_insert_with(2, || 2), cache.get(&2)), (2, Some(2)));
    // row: get_mut_or_guard, get_mut_or_insert_with
    cache.entry(3).and_compute(|there| Op::Put(there.map_or(0, |there| *there.value()) + 1))?;
    cache.entry(3).and_compute(|there| Op::Put(there.map_or(0, |there| *there.value()) + 1))?;
    assert_eq!(cache.get(&3), Some(2));
    Ok(())
}
