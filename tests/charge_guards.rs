//! Charge guards: bytes that are charged to a group until the guard is dropped, also by values of
//! which the cache does not know that they hold one (`src/runtime/charge_guard.rs`).
//!
//! A change must ensure that the bytes are 0 when the last guard is dropped.
#![forbid(unsafe_code)]

#[path = "common/wait.rs"]
mod wait;

use lowwater::runtime::ChargeError;
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Charge, Memcg, Runtime};
use std::sync::Arc;
use wait::until;

const BUDGET: ByteSize = ByteSize::mib(16);
const VALUE_SIZE: ByteSize = ByteSize::kib(64);

fn runtime() -> Runtime {
    Runtime::builder().budget(BUDGET).topology(Arc::new(Fixed::new(1))).build().unwrap()
}

/// The usage without the stock.
fn usage(runtime: &Runtime, group: &Memcg) -> ByteSize {
    runtime.tree().drain_stock();
    group.usage()
}

#[test]
fn a_charge_of_another_runtimes_group_is_refused() {
    let (ours, theirs) = (runtime(), runtime());
    let stranger = theirs.group("a").unwrap();
    let refused = ours.charge_guard(&stranger, ByteSize::new(1)).unwrap_err();
    assert_eq!(refused, ChargeError::ForeignGroup { group: "/a".into() });
    assert!(refused.to_string().contains("not of this runtime"));
    let mut charge = theirs.charge_guard(&stranger, ByteSize::kib(1)).unwrap();
    assert!(matches!(charge.grow(&ours, ByteSize::new(1)), Err(ChargeError::ForeignGroup { .. })));
    assert!(matches!(charge.resize(&ours, ByteSize::mib(1)), Err(ChargeError::ForeignGroup { .. })));
    assert_eq!((charge.bytes(), charge.group()), (ByteSize::kib(1), &stranger));
    // A reduction needs nothing of the runtime.
    charge.resize(&ours, ByteSize::ZERO).unwrap();
    drop(charge);
    assert_eq!(usage(&theirs, &stranger), ByteSize::ZERO);
}

#[test]
fn extreme_charges_neither_wrap_nor_panic() {
    let unbounded = Runtime::builder().unlimited().build().unwrap();
    for runtime in [runtime(), unbounded] {
        let root = runtime.root();
        let mut charge = runtime.charge_guard(root, ByteSize::ZERO).unwrap();
        assert!(charge.split(ByteSize::new(1)).is_none());
        charge.grow(&runtime, ByteSize::kib(8)).unwrap();
        for more in [ByteSize::MAX, ByteSize::MAX.saturating_sub(ByteSize::kib(4))] {
            assert!(matches!(charge.grow(&runtime, more), Err(ChargeError::OverLimit(over)) if over.requested == more));
        }
        assert_eq!(charge.bytes(), ByteSize::kib(8));
        let part = charge.split(ByteSize::kib(8)).unwrap();
        assert_eq!((charge.bytes(), charge.shrink(ByteSize::MAX)), (ByteSize::ZERO, ByteSize::ZERO));
        drop(charge);
        assert_eq!(usage(&runtime, root), ByteSize::kib(8));
        let mut part = part;
        assert_eq!(part.shrink(ByteSize::MAX), ByteSize::kib(8));
        drop(part);
        assert_eq!(usage(&runtime, root), ByteSize::ZERO);
    }
}

/// A value with a charge that the cache does not know.
struct Paid {
    bytes: Vec<u8>,
    _charge: Charge,
}

#[test]
fn charges_inside_of_values_come_back_before_a_charge_is_refused() {
    let runtime = runtime();
    let cache = Cache::<u64, Arc<Paid>>::builder(&runtime).weigher(|_, _| 64_u64).build().unwrap();
    let paid = |bytes| Paid { bytes: vec![7], _charge: runtime.charge_guard(runtime.root(), bytes).unwrap() };
    // So few that no bag of retired entries is full.
    for key in 0..10 {
        cache.insert(key, Arc::new(paid(VALUE_SIZE))).unwrap();
        assert_eq!(cache.remove(&key).unwrap().bytes, [7]);
    }
    assert!(usage(&runtime, runtime.root()) > ByteSize::ZERO, "the removed entries are in memory");
    // Readers of other tests may hold the entries back.
    until("there is room", || runtime.charge_guard(runtime.root(), BUDGET).is_ok());
}

#[test]
fn an_insert_of_a_tenant_holds_back_no_value_that_it_evicts() {
    let runtime = runtime();
    let [a, b] = ["a", "b"].map(|name| runtime.group(name).unwrap());
    let weigher = |_: &u64, paid: &Arc<Paid>| paid.bytes.capacity();
    let cache = Cache::<u64, Arc<Paid>>::builder(&runtime).weigher(weigher).build().unwrap();
    let paid = |len, bytes| {
        let charge = runtime.charge_guard(&a, bytes);
        charge.ok().map(|_charge| Arc::new(Paid { bytes: vec![7; len], _charge }))
    };
    let insert = |key, paid| cache.entry(key).group(&a).insert(paid).is_ok();
    // Repeated: readers of other tests may hold the values of the last round back.
    until("the charges of evicted values make room", || {
        let is_full = (0..10).all(|key| paid(1, BUDGET / 16).is_some_and(|paid| insert(key, paid)));
        let large = paid(8 << 20, ByteSize::ZERO).expect("no bytes are charged");
        let inserted = cache.entry(99).group(&b).insert(large).is_ok();
        cache.clear();
        cache.collect();
        is_full && inserted
    });
}

#[test]
fn a_dropped_group_can_be_charged_after_its_end() {
    let runtime = runtime();
    let group = runtime.group("tenant").unwrap();
    let kib = ByteSize::kib(1);
    let mut charge = runtime.charge_guard(&group, kib).unwrap();
    runtime.drop_group(&group).unwrap();
    until("the group ends", || runtime.find_group("tenant").is_none());
    // Its `max` of 0 is raised just after the end.
    until("the guard grows", || charge.grow(&runtime, kib).is_ok());
    assert_eq!(usage(&runtime, runtime.root()), kib * 2);
    drop((charge, runtime.charge_guard(&group, kib).unwrap()));
    assert_eq!(usage(&runtime, runtime.root()), ByteSize::ZERO);
}

#[test]
fn charges_are_sent_and_shared() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Charge>();
    is_send_and_sync::<ChargeError>();
}
