//! Room for the value of an `and_compute`: it is freed as for an insert, although the closure runs
//! in the read side, where the thread itself holds back what it evicts.
//!
//! A change must ensure that no call of `and_compute` is refused for memory that a plain insert of
//! the same value would get.
#![forbid(unsafe_code)]

#[path = "common/wait.rs"]
mod wait;

use lowwater::cache::{Computed, Op};
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Charge, Runtime};
use std::sync::Arc;
use wait::until;

const BUDGET: ByteSize = ByteSize::mib(16);

/// A value with a charge that the cache does not know: the bytes come back when the value is
/// dropped.
struct Paid {
    bytes: Vec<u8>,
    _charge: Charge,
}

#[test]
fn charges_inside_of_evicted_values_make_room_for_a_computed_value() {
    let runtime = Runtime::builder().budget(BUDGET).topology(Arc::new(Fixed::new(1))).build().unwrap();
    let weigher = |_: &u64, paid: &Arc<Paid>| paid.bytes.capacity();
    let cache = Cache::<u64, Arc<Paid>>::builder(&runtime).weigher(weigher).build().unwrap();
    let paid = |len, bytes| {
        let charge = runtime.charge_guard(runtime.root(), bytes);
        charge.ok().map(|_charge| Arc::new(Paid { bytes: vec![7; len], _charge }))
    };
    // Repeated: readers of other tests may hold the evicted values back, and the reclaimer, which
    // is outside the read side, may make the room before the second call.
    until("the charges of evicted values make room", || {
        let is_full = (0..10).all(|key| paid(1, BUDGET / 16).is_some_and(|paid| cache.insert(key, paid).is_ok()));
        let mut calls = 0;
        let computed = cache.entry(99).and_compute(|current| {
            assert!(current.is_none());
            calls += 1;
            Op::Put(paid(8 << 20, ByteSize::ZERO).expect("no bytes are charged"))
        });
        let is_inserted = is_full && matches!(computed, Ok(Computed::Inserted));
        assert!(calls <= 2, "{calls} calls");
        cache.clear();
        cache.collect();
        is_inserted && calls == 2
    });
    drop(cache);
    until("all bytes came back", || {
        runtime.tree().drain_stock();
        runtime.root().usage() == ByteSize::ZERO
    });
}

#[test]
fn a_computed_value_that_fits_after_evictions_calls_the_closure_once() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).topology(Arc::new(Fixed::new(1))).build().unwrap();
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity()).build().unwrap();
    for key in 0..4_000 {
        let mut calls = 0;
        let computed = cache.entry(key).and_compute(|_| {
            calls += 1;
            Op::Put(vec![0; 1_000])
        });
        assert!(matches!(computed, Ok(Computed::Inserted)), "{key}: {computed:?}");
        assert_eq!(calls, 1, "{key}");
        assert!(runtime.root().usage() <= runtime.root().max());
    }
}

#[test]
fn a_computed_value_that_never_fits_is_returned() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity()).build().unwrap();
    cache.insert(1, vec![1]).unwrap();
    let refused = cache.entry(1).and_compute(|_| Op::Put(vec![2; 2 << 20])).unwrap_err();
    assert_eq!(refused.value.len(), 2 << 20);
    assert_eq!(cache.get(&1), Some(vec![1]), "what never fits evicts nothing");
    drop(cache);
    until("all bytes came back", || {
        runtime.tree().drain_stock();
        runtime.root().usage() == ByteSize::ZERO
    });
}
