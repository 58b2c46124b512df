//! The drop of a large cache does not hold back other caches' memory meanwhile. In a process of its
//! own: readers of other tests would hold it back.
//!
//! The drop works in parts, each in a read-side critical section of its own; a single section would
//! hold back the freed memory of every cache until the end of the drop.
//!
//! A change must keep this test alone in its process.

use lowwater::{ByteSize, Cache, Runtime};

const ENTRIES: u64 = 200_000;

#[test]
fn the_drop_of_a_large_cache_delays_no_other_frees() {
    let small = Runtime::builder().unlimited().build().unwrap();
    let small = Cache::<u64, u64>::builder(&small).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    // The large cache is alone in its runtime, whose usage shows the progress of the drop. A drop
    // may be over before this thread runs again, so there are 50 tries.
    let was_freed = (0..50).any(|_| {
        let runtime = Runtime::builder().unlimited().build().unwrap();
        let large = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
        // An entry of a tenant: otherwise all entries would be uncharged at once.
        large.entry(0).group(&runtime.group("tenant").unwrap()).insert(0).unwrap();
        for key in 1..ENTRIES {
            large.insert(key, key).unwrap();
        }
        let begun = || runtime.root().usage() < ByteSize::new(ENTRIES * Cache::<u64, u64>::ENTRY_BYTES.get());
        let over = || runtime.root().usage() <= ByteSize::kib(64);
        assert!(!begun() && !over());
        std::thread::scope(|s| {
            s.spawn(move || drop(large));
            while !begun() {
                std::hint::spin_loop();
            }
            while !over() {
                small.insert(1, 1).unwrap();
                small.remove(&1);
                while small.collect() != ByteSize::ZERO && !over() {}
                if !over() {
                    return true;
                }
            }
            false
        })
    });
    assert!(was_freed, "one cache's removed entries waited for the end of another");
}
