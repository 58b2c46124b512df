//! A changed budget is filled as far as one that was set from the start, and the reclaimer's
//! watermarks follow it.
//!
//! The default watermarks are fractions of a limit. If they were computed once from the first
//! budget, a raised one would stay partly unused, and a lowered one would be reclaimed too late.

#![forbid(unsafe_code)]

#[path = "common/wait.rs"]
mod wait;

use lowwater::cache::RejectReason;
use lowwater::pressure::{Level, PressureConfig};
use lowwater::runtime::RuntimeBuilder;
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Memcg, Runtime, Watermarks};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::{until, PATIENCE};

/// The usage of a full cache, in parts of the budget: the reclaimer keeps it between 15/16 and
/// 31/32, and inserts evict at 63/64 if the reclaimer falls behind. Watermarks of another budget
/// would give a usage outside of this range.
const FILLED: std::ops::RangeInclusive<f64> = 0.93..=0.99;

type Values = Cache<u64, Vec<u8>>;

/// Builds a runtime with inserts that are not refused, even if evicted entries are held back for a
/// while on a busy machine.
fn runtime(builder: RuntimeBuilder) -> Runtime {
    builder.topology(Arc::new(Fixed::new(1))).direct_time_max(PATIENCE).build().unwrap()
}

fn cache_in(runtime: &Runtime) -> Values {
    Cache::builder(runtime).weigher(|_, value: &Vec<u8>| ByteSize::new(value.capacity() as u64)).build().unwrap()
}

/// Inserts more than fits, and returns the mean fraction of the budget that is in use then.
fn fill(cache: &Values, keys: &mut std::ops::RangeFrom<u64>) -> f64 {
    let runtime = cache.runtime();
    let budget = runtime.root().max();
    let began = Instant::now();
    while runtime.root().usage() > budget {
        assert!(began.elapsed() < PATIENCE, "usage stays above the budget");
        std::thread::sleep(Duration::from_millis(1));
    }
    let entry = Values::ENTRY_BYTES.get() + 200;
    let mut used = 0.0;
    // Twice as many entries as fit; the mean of the last quarter is used.
    let nr = 2 * budget.get() / entry;
    let mut samples = 0;
    for n in 0..nr {
        cache.insert(keys.next().unwrap(), vec![0; 200]).unwrap();
        assert!(runtime.root().usage() <= budget);
        if n > nr / 4 * 3 && n % 64 == 0 {
            used += runtime.root().usage().get() as f64 / budget.get() as f64;
            samples += 1;
        }
    }
    used / f64::from(samples)
}

#[test]
fn a_changed_budget_is_filled_like_an_initial_one() {
    const BUDGET: ByteSize = ByteSize::mib(16);
    let half = ByteSize::new(BUDGET.get() / 2);
    let mut keys = 0_u64..;
    let built = fill(&cache_in(&runtime(Runtime::builder().budget(half))), &mut keys);
    assert!(FILLED.contains(&built), "{built}");
    let changed = runtime(Runtime::builder().budget(BUDGET));
    let cache = cache_in(&changed);
    for parts in [1, 2, 4, 2, 16, 1, 2] {
        let budget = ByteSize::new(BUDGET.get() / parts);
        changed.set_budget(budget);
        assert_eq!(changed.stats().budget, budget);
        let used = fill(&cache, &mut keys);
        assert!(FILLED.contains(&used), "{used} of a {parts}th of the budget, {built} where it was built so");
    }
}

#[test]
fn a_budget_set_later_is_filled_like_an_initial_one() {
    let built = fill(&cache_in(&runtime(Runtime::builder().budget(ByteSize::mib(8)))), &mut (0..));
    let later = runtime(Runtime::builder().unlimited());
    later.set_budget(ByteSize::mib(8));
    let used = fill(&cache_in(&later), &mut (0..));
    assert!(FILLED.contains(&used), "{used}, and {built} where it was built so");
}

#[test]
fn a_ceiling_under_pressure_is_filled_like_a_budget() {
    let built = fill(&cache_in(&runtime(Runtime::builder().budget(ByteSize::mib(8)))), &mut (0..));
    let config = PressureConfig { critical_percent: 50, quiet: Duration::from_secs(600), ..PressureConfig::default() };
    let pressed = runtime(Runtime::builder().budget(ByteSize::mib(16)).pressure(config));
    let cache = cache_in(&pressed);
    fill(&cache, &mut (0..));
    let monitor = pressed.pressure().unwrap();
    monitor.raise(Level::Critical);
    let ceiling = monitor.stats().ceiling;
    assert!(ceiling < ByteSize::mib(9));
    let began = Instant::now();
    while pressed.root().max() > ceiling {
        assert!(began.elapsed() < PATIENCE, "the limit stays above the ceiling");
        std::thread::sleep(Duration::from_millis(5));
    }
    let used = fill(&cache, &mut (1 << 32..));
    assert!(FILLED.contains(&used), "{used}, and {built} where it was built so");
}

#[test]
fn chosen_watermarks_do_not_follow_the_budget() {
    let marks = Watermarks { low_gap: ByteSize::kib(64), high_gap: ByteSize::kib(128) };
    let runtime = runtime(Runtime::builder().budget(ByteSize::mib(16)).watermarks(marks));
    runtime.set_budget(ByteSize::mib(8));
    assert_eq!(runtime.reclaimer().watermarks(), marks);
    let used = fill(&cache_in(&runtime), &mut (0..));
    assert!(used > 0.975, "{used} of the budget, less 64 to 128 KiB of 8 MiB");
}

/// The group itself would have room for the value: its `max` stays above the lowered budget.
#[test]
fn a_value_above_a_lowered_budget_is_refused_and_evicts_nothing() {
    let runtime = runtime(Runtime::builder().budget(ByteSize::mib(64)));
    let tenant = runtime.group("tenant").unwrap();
    tenant.set_max(ByteSize::mib(16));
    let cache = cache_in(&runtime);
    runtime.set_budget(ByteSize::mib(8));
    for key in 0..7_000 {
        cache.entry(key).group(&tenant).insert(vec![0; 900]).unwrap();
    }
    let len = cache.len();
    let error = cache.entry(7_000).group(&tenant).insert(vec![0; 15 << 20]).unwrap_err();
    assert!(matches!(&error.reason, RejectReason::TooLarge { group, .. } if group == "/"), "{:?}", error.reason);
    let over = runtime.charge(&tenant, ByteSize::mib(9)).unwrap_err();
    assert_eq!((&over.memcg, over.requested), (runtime.root(), ByteSize::mib(9)));
    assert_eq!((cache.len(), cache.stats().evictions), (len, 0));
    // Of several groups that refuse, the nearest is named.
    let over = runtime.charge(&tenant, ByteSize::mib(17)).unwrap_err();
    assert_eq!(over.memcg, tenant);
}

/// The group is not charged again: a cache of an idle tenant shrinks as well.
#[test]
fn a_groups_lowered_limit_is_reached_without_a_charge() {
    let runtime = runtime(Runtime::builder().budget(ByteSize::mib(64)));
    let cache = cache_in(&runtime);
    let mut keys = 0_u64..;
    for (name, set) in [("max", Memcg::set_max as fn(&Memcg, ByteSize)), ("high", Memcg::set_high)] {
        let tenant = runtime.group(name).unwrap();
        while tenant.usage() < ByteSize::mib(8) {
            cache.entry(keys.next().unwrap()).group(&tenant).insert(vec![0; 1_000]).unwrap();
        }
        set(&tenant, ByteSize::mib(1));
        until("the tenant is within its new limit", || tenant.usage() <= ByteSize::mib(1));
    }
}
