//! Leaked objects cost their memory, and block no other operation.
//!
//! `mem::forget` is safe code, so no guarantee may depend on a drop.
//!
//! A change must ensure that the cache is used after the leak, and not only before it.
//! docs/HAZARDS.md names the tests.

use crate::common::{in_a_process, within};
use crate::{assert_whole, cache, filled, runtime, Numbers};
use lowwater::cache::{Op, TenantKey};
use lowwater::pressure::{MonitoredReclaimer, Watermarks};
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Charged, Reclaimer, Runtime};
use std::mem::forget;
use std::sync::Arc;

#[test]
fn leaked_parts_of_a_cache_block_no_other_code() {
    in_a_process("leaks::leaked_parts_of_a_cache_block_no_other_code", || {
        within("use beside leaks", || {
            let runtime = runtime(ByteSize::mib(4));
            let tenant = runtime.group("tenant").unwrap();
            let named = Cache::<String, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
            let ours = cache(&runtime);
            let tenants = Cache::<TenantKey<u64>, Charged<u64>>::builder(&runtime).weigher(|_, _| ByteSize::kib(1));
            let tenants = tenants.charge_held_values().build().unwrap();
            for n in 0..10 {
                forget(Runtime::builder().budget(ByteSize::mib(1)));
                forget(Cache::<u64, u64>::builder(&runtime));
                forget(runtime.stats());
                forget(named.entry("a key".into()).group(&tenant));
                forget(ours.clone());
                forget(ours.insert(n, vec![1; 1 << 23]).unwrap_err());
                let computed = ours.entry(n).and_compute(|current| {
                    assert!(current.is_none());
                    forget(current);
                    Op::Put(vec![1; 10])
                });
                forget(computed);
                let computed = ours.entry(n).and_compute(|current| {
                    assert_eq!(current.as_ref().unwrap().group(), runtime.root());
                    forget(current);
                    forget(Op::Put(vec![2; 10]));
                    Op::Remove
                });
                forget(computed);
                let view = tenants.tenant(&tenant).unwrap();
                forget((view, view.key(n), view.key_ref(&n), view.entry(n)));
                view.insert(n, n.into()).unwrap();
                forget(view.get(&n));
                forget(view.remove(&n));
                forget(runtime.charge_guard(&tenant, ByteSize::kib(1)));
                let table = runtime.tenant_groups("table").count_max(3);
                let table = table.setup(|_, group| group.set_high(ByteSize::mib(1))).build().unwrap();
                assert_eq!(table.get("one").unwrap().path(), "/table/one", "of a leaked table");
                forget((table, runtime.tenant_groups("table"), lowwater::runtime::ManualClock::new()));
                let topology = Arc::new(Fixed::new(1));
                let reclaimer = Reclaimer::start(runtime.registry(), topology, Watermarks::RELATIVE).unwrap();
                forget(MonitoredReclaimer::from(Arc::new(reclaimer)));
            }
            assert!(ours.is_empty() && tenants.is_empty());
            // Ten leaked charges of a kibibyte, and ten values of a kibibyte that leaked clones
            // hold. The rest may be stock.
            assert!(tenant.usage() >= ByteSize::kib(20) && tenant.usage() <= ByteSize::kib(20 + 64));
            // A cache that cannot be dropped any more still gives memory to other caches.
            forget(filled(&runtime, 10_000));
            for n in 0..30_000 {
                ours.insert(n, vec![1; 200]).unwrap();
            }
            assert!(runtime.root().usage() <= ByteSize::mib(4) && ours.len() > 5_000);
            // Repeated, as entries that the reclaimer has isolated are on no list.
            while !ours.is_empty() {
                runtime.drop_caches();
            }
            tenant.offline().unwrap();
            runtime.end_group(&runtime.group("table/one").unwrap()).unwrap();
        });
    });
}

#[test]
fn a_leaked_runtime_blocks_no_other_runtime() {
    in_a_process("leaks::a_leaked_runtime_blocks_no_other_runtime", || {
        within("runtimes", || {
            let leaked = runtime(ByteSize::mib(4));
            forget(filled(&leaked, 100));
            forget(leaked);
            let ours = runtime(ByteSize::mib(4));
            let cache: Numbers = filled(&ours, 100);
            assert_whole(&ours, &cache);
            drop((cache, ours));
        });
    });
}
