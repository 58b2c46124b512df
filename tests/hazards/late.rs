//! Caches and runtimes that are dropped, and used, after a thread's locals are destroyed.
//!
//! The library's thread-locals are gone then, so every access to them must have a fallback.
//! docs/HAZARDS.md names the tests.

use crate::common::at_the_end_of_a_thread;
use crate::{assert_whole, cache, filled, runtime};
use lowwater::cache::{Op, TenantKey, Visit};
use lowwater::pressure::{BackgroundReclaim, MonitoredReclaimer, Watermarks};
use lowwater::{ByteSize, Cache, Charged, Reclaimer};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_refresh_may_be_used_and_dropped_late_on_a_thread() {
    at_the_end_of_a_thread("reloads", || {
        let clock = lowwater::runtime::ManualClock::new();
        let runtime = lowwater::Runtime::builder().budget(ByteSize::mib(4)).clock(&clock).build().unwrap();
        let cache = Cache::<u64, Vec<u8>>::builder(&runtime)
            .weigher(|_, value| value.capacity())
            .time_to_live(Duration::from_secs(10))
            .refresh_ahead(Duration::from_secs(3))
            .build()
            .unwrap();
        (0..3).for_each(|key| drop(cache.insert(key, vec![1]).unwrap()));
        clock.advance(Duration::from_secs(8));
        let reload = |key| cache.get_or_refresh(&key).and_then(|hit| hit.refresh).expect("the entry is due");
        let (used, dropped) = (reload(0), reload(1));
        Box::new(move || {
            assert_eq!(used.load_with(|| vec![2]), [2]);
            drop(dropped);
            assert_eq!(cache.entry(2).refresh().or_insert_with(|| vec![3]), [3]);
            assert_eq!([0, 1, 2].map(|key| cache.get(&key)), [2, 1, 3].map(|value| Some(vec![value])));
        })
    });
}

#[test]
fn caches_and_runtimes_may_be_dropped_late_on_a_thread() {
    at_the_end_of_a_thread("a cache that is used and dropped", || {
        let runtime = runtime(ByteSize::mib(4));
        let cache = filled(&runtime, 1000);
        let tenant = runtime.group("tenant").unwrap();
        Box::new(move || {
            assert!(cache.get(&1).is_some() && cache.pin().get(&2).is_some() && cache.pin().iter().count() == 1000);
            cache.entry(5000).group(&tenant).time_to_live(Duration::from_secs(9)).insert(vec![1]).unwrap();
            assert_eq!(cache.get_or_insert_with(5001, || vec![2]), [2]);
            cache.entry(5001).and_compute(|_| Op::Remove).unwrap();
            cache.visit(&mut Visit::new(), |_, _| ());
            cache.retain(|key, _| key % 2 == 0);
            runtime.reclaim(runtime.root(), ByteSize::kib(10));
            runtime.drop_group(&tenant).unwrap();
            cache.collect();
            for n in 0..40_000 {
                cache.insert(n, vec![1; 200]).unwrap();
            }
            drop((cache, tenant));
            drop(runtime);
        })
    });
    at_the_end_of_a_thread("caches that are only dropped", || {
        let heard = Arc::new(AtomicU64::new(0));
        let runtime = runtime(ByteSize::mib(4));
        let hears = heard.clone();
        let listens = Cache::<u64, Vec<u8>>::builder(&runtime)
            .weigher(|_, _| ByteSize::ZERO)
            .eviction_listener(move |_, _, _| _ = hears.fetch_add(1, Relaxed))
            .build()
            .unwrap();
        let builders = (lowwater::Runtime::builder(), Cache::<u64, u64>::builder(&runtime));
        let refused = cache(&runtime).insert(1, vec![0; 1 << 23]).unwrap_err();
        Box::new(move || {
            listens.insert(1, vec![]).unwrap();
            listens.insert(1, vec![]).unwrap();
            assert_eq!(heard.load(Relaxed), 1);
            drop((listens, builders, refused, runtime));
        })
    });
    at_the_end_of_a_thread("name spaces, charges and held values", || {
        let runtime = runtime(ByteSize::mib(4));
        let tenant = runtime.group("tenant").unwrap();
        let cache = Cache::<TenantKey<u64>, Charged<u64>>::builder(&runtime).weigher(|_, _| ByteSize::kib(1));
        let cache = cache.charge_held_values().build().unwrap();
        cache.tenant(&tenant).unwrap().insert(1, 1.into()).unwrap();
        let charge = runtime.charge_guard(&tenant, ByteSize::kib(3)).unwrap();
        let key = cache.tenant(&tenant).unwrap().key(1);
        let held = cache.get(&key).unwrap();
        Box::new(move || {
            let view = cache.tenant(&tenant).unwrap();
            assert_eq!(*view.get_or_insert_with(2, || 2.into()), 2);
            assert!(Charged::ptr_eq(&held, &view.remove(&1).unwrap()));
            assert_eq!(Charged::held_bytes(&held), ByteSize::kib(1));
            let own = Charged::new(5, runtime.charge_guard(&tenant, ByteSize::kib(3)).unwrap());
            drop((cache, runtime));
            drop((own.clone(), held, charge, key, own, tenant));
        })
    });
    at_the_end_of_a_thread("clocks, tables of groups, reclaimers", || {
        let clock = lowwater::runtime::ManualClock::new();
        let runtime = lowwater::Runtime::builder().budget(ByteSize::mib(4)).clock(&clock).build().unwrap();
        let cache = cache(&runtime);
        cache.entry(1).time_to_live(Duration::from_secs(1)).insert(vec![1]).unwrap();
        let owned = Arc::new(());
        let owns = owned.clone();
        let tenants = || runtime.tenant_groups("tenants").idle_time(Duration::ZERO);
        let tenants =
            (tenants().setup(move |_, _| assert_eq!(Arc::strong_count(&owns), 2)).build().unwrap(), tenants());
        tenants.0.get("early").unwrap();
        let reclaimer = || {
            let nodes = runtime.registry().nodes();
            let topology = Arc::new(lowwater::topology::Fixed::new(nodes));
            Arc::new(Reclaimer::start(runtime.registry(), topology, Watermarks::RELATIVE).unwrap())
        };
        let monitored = MonitoredReclaimer::from(reclaimer());
        Box::new(move || {
            clock.advance(Duration::from_secs(2));
            assert!(cache.is_empty());
            assert_eq!(tenants.0.get("late").unwrap().path(), "/tenants/late");
            assert_eq!(tenants.1.build().unwrap().parent(), tenants.0.parent());
            monitored.reclaim_to(runtime.root(), ByteSize::ZERO);
            monitored.run_thread(&mut || assert!(!monitored.can_join()));
            assert!(monitored.can_join());
            drop((clock, tenants.0, monitored, cache, runtime));
            assert_eq!(Arc::strong_count(&owned), 1);
        })
    });
    at_the_end_of_a_thread("everything made anew", || {
        Box::new(|| {
            let runtime = runtime(ByteSize::mib(4));
            let cache = filled(&runtime, 100);
            assert_whole(&runtime, &cache);
        })
    });
}
