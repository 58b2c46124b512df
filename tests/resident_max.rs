//! A maximum of the resident memory: the caches give way to memory that is not charged.
//!
//! A change must leave this the only test here that uses memory.

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
    // Values of many sizes leave gaps, which the allocator keeps.
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
    pour_for(Duration::from_secs(10));
    let most = pour_for(Duration::from_secs(3));
    let full = cache.stats().bytes;
    assert!(most <= max + ByteSize::mib(8), "{most:#} resident, of at most {max:#}");
    assert!(full >= ByteSize::mib(24), "the cache holds only {full:#}");

    // Memory that is not charged takes the place of cached values.
    let other = vec![1_u8; 24 << 20];
    pour_for(Duration::from_secs(5));
    let most = pour_for(Duration::from_secs(3));
    let left = cache.stats().bytes;
    assert!(most <= max + ByteSize::mib(8), "{most:#} resident beside {} bytes, of at most {max:#}", other.len());
    assert!(left + ByteSize::mib(12) <= full, "{full:#} before, {left:#} now");
    assert!(runtime.stats().pressure.unwrap().resident.unwrap().lowered >= 1);
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
