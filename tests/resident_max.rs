//! A maximum of the resident memory: the caches give way to memory that is not charged.
//!
//! A change must ensure that no other test in this file uses much memory: they share the process.

#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use lowwater::pressure::{resident_memory, CgroupLimit};
use lowwater::{ByteSize, Cache, Runtime};

#[test]
fn caches_yield_memory_to_the_rest_of_the_process() {
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        return println!("skipped: a sanitizer has memory of its own");
    }
    let max = resident_memory().unwrap() + ByteSize::mib(64);
    let runtime = Runtime::builder().budget(ByteSize::mib(256)).resident_max(max).build().unwrap();
    let cache = Cache::builder(&runtime).weigher(|_, value: &Vec<u8>| value.capacity()).build().unwrap();
    // Values of many sizes leave gaps in the heap, which the allocator keeps. The pauses let the
    // monitor follow, which reads the resident memory ten times a second.
    let mut next = 0_u64;
    let mut pour_for = |time: Duration| {
        let (begun, mut most) = (Instant::now(), ByteSize::ZERO);
        while begun.elapsed() < time {
            for _ in 0..50 {
                next += 1;
                let bytes = 200 + (next.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize;
                // While the ceiling falls, an insert may be refused.
                let _ = cache.insert(next, vec![1; bytes]);
            }
            std::thread::sleep(Duration::from_millis(5));
            most = most.max(resident_memory().unwrap());
        }
        most
    };
    let lowered = || runtime.stats().pressure.unwrap().resident.unwrap().lowered;
    // 8 MiB above the maximum: allocated before the monitor reads the resident memory again.
    let (bound, patience) = (max + ByteSize::mib(8), Duration::from_secs(180));
    let begun = Instant::now();
    let full = loop {
        let (most, full) = (pour_for(Duration::from_secs(3)), cache.stats().bytes);
        if most <= bound && full >= ByteSize::mib(24) && lowered() >= 1 {
            break full;
        }
        assert!(begun.elapsed() < patience, "{most:#} resident, of at most {max:#}, {full:#} of it cached");
    };

    // Memory that is not charged takes the place of cached values: at least of half its size.
    let other = vec![1_u8; 24 << 20];
    let begun = Instant::now();
    loop {
        let (most, left) = (pour_for(Duration::from_secs(3)), cache.stats().bytes);
        if most <= bound && left + ByteSize::mib(12) <= full {
            break;
        }
        let other = other.len();
        assert!(
            begun.elapsed() < patience,
            "{most:#} resident beside {other} bytes; {full:#} cached before, {left:#} now"
        );
    }
}

#[test]
fn a_maximum_of_zero_is_refused() {
    let refused = Runtime::builder().budget(ByteSize::mib(1)).resident_max(ByteSize::ZERO).build().unwrap_err();
    assert!(refused.to_string().contains("0 bytes for the resident memory"), "{refused}");
}

#[test]
fn the_budget_is_at_most_the_maximum() {
    let max = ByteSize::gib(1);
    let left = CgroupLimit::own().read().unwrap().unwrap_or(ByteSize::MAX).min(max);
    let builders = [Runtime::builder(), Runtime::builder().budget(ByteSize::gib(256)), Runtime::builder().unlimited()];
    let budgets = builders.map(|builder| builder.resident_max(max).build().unwrap().stats().budget);
    assert_eq!(budgets, [left, max, max]);
}
