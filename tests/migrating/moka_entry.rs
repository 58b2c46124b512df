//! The rows of moka's `entry(k)`.

use lowwater::cache::{Computed, Op};
use lowwater::{ByteSize, RemovalCause};

use crate::{numbers, texts, Outcome};

#[test]
fn inserts_of_absent_values() -> Outcome {
    let cache = numbers(ByteSize::mib(1));
    // row: or_insert_with(f), or_try_insert_with(f)
    assert_eq!((cache.entry(1).or_insert_with(|| 1), cache.entry(1).or_insert_with(|| 2)), (1, 1));
    assert_eq!(cache.entry(2).or_try_insert_with(|| Err("no")), Err("no"));
    assert_eq!(cache.entry(1).or_try_insert_with(|| Err("no")), Ok(1));
    let v = 3;
    assert_eq!((cache.entry(3).or_insert_with(|| v), cache.get(&3)), (3, Some(3)));
    // row: or_optionally_insert_with(f)
    let f = |found: Option<u64>| move || found;
    let optional = |key, f: &dyn Fn() -> Option<u64>| cache.entry(key).or_try_insert_with(|| f().ok_or(())).ok();
    assert_eq!((optional(4, &f(None)), optional(4, &f(Some(4))), cache.get(&4)), (None, Some(4), Some(4)));
    // row: Entry::{value, into_value, key}
    let k = String::from("key");
    let value: u64 = texts().entry(k.clone()).or_insert_with(|| "12".into()).parse()?;
    assert_eq!((k.as_str(), value), ("key", 12));
    // row: Entry::is_fresh
    let is_fresh = |key: u64| {
        let mut is_fresh = false;
        cache.entry(key).or_insert_with(|| {
            is_fresh = true;
            key
        });
        is_fresh
    };
    assert_eq!([is_fresh(5), is_fresh(5)], [true, false]);
    Ok(())
}

#[test]
fn computations() -> Outcome {
    let cache = numbers(ByteSize::mib(1));
    // row: and_compute_with(f)
    let add = |key| cache.entry(key).and_compute(|there| Op::Put(there.map_or(0, |there| *there.value()) + 1));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| assert!(add(1).is_ok())));
        }
    });
    assert_eq!(cache.get(&1), Some(4000));
    // row: and_try_compute_with(f)
    let parse = |text: &str| {
        let mut error = None;
        let computed = cache.entry(2).and_compute(|_| {
            error = None;
            text.parse().map_or_else(
                |failed: std::num::ParseIntError| {
                    error = Some(failed);
                    Op::Keep
                },
                Op::Put,
            )
        });
        (computed.unwrap(), error.is_some())
    };
    assert_eq!((parse("x"), parse("7"), cache.get(&2)), ((Computed::Kept, true), (Computed::Inserted, false), Some(7)));
    // row: and_upsert_with(f)
    assert_eq!(
        cache.entry(2).and_compute(|there| Op::Put(there.map_or(0, |it| it.value() * 2)))?,
        Computed::Replaced(7)
    );
    // row: Op::{Nop, Put, Remove}
    let mut left = None;
    cache.entry(3).time_to_live(std::time::Duration::from_secs(100)).insert(1)?;
    cache.entry(3).and_compute(|_| Op::Update(2))?;
    cache.entry(3).and_compute(|there| {
        left = there.and_then(|there| there.time_left());
        Op::Keep
    })?;
    assert!(left.is_some(), "`Update` keeps the time that is left");
    // row: CompResult::{Inserted, ReplacedWith, Removed, Unchanged, StillNone}
    assert_eq!(cache.entry(4).and_compute(|_| Op::Keep)?, Computed::Kept, "`StillNone`");
    assert_eq!(cache.entry(4).and_compute(|_| Op::Put(1))?, Computed::Inserted);
    assert_eq!(cache.entry(4).and_compute(|_| Op::Put(2))?, Computed::Replaced(1));
    assert_eq!(cache.entry(4).and_compute(|_| Op::Keep)?, Computed::Kept, "`Unchanged`");
    assert_eq!(cache.entry(4).and_compute(|_| Op::Remove)?, Computed::Removed(2));
    // row: RemovalCause::was_evicted
    let was_evicted = |cause| matches!(cause, RemovalCause::Expired | RemovalCause::Size);
    let causes = [RemovalCause::Expired, RemovalCause::Size, RemovalCause::Explicit, RemovalCause::Replaced];
    assert_eq!(causes.map(was_evicted), [true, true, false, false]);
    Ok(())
}
