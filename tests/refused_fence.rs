//! A cache in a server that drops its rights after it has created the cache, and may not call
//! `membarrier` from then on: evicted entries must be freed all the same.
//!
//! `crates/rcu/tests/refused_fence.rs` tests the read side alone; this test, that a cache keeps its
//! budget.
//!
//! A change must keep this test alone in its process, since the filter cannot be removed.
#![forbid(unsafe_code)]
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    not(lowwater_epoch)
))]

use lowwater::{heavy_fences, ByteSize, Cache, Runtime};
use seccompiler::{apply_filter_all_threads, BpfProgram, SeccompAction, SeccompFilter};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Text([u8; 4_000]);

impl Drop for Text {
    fn drop(&mut self) {
        self.0.fill(0xdd);
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

fn text(key: u64) -> Arc<Text> {
    LIVE.fetch_add(1, Ordering::Relaxed);
    Arc::new(Text([key as u8; 4_000]))
}

#[test]
fn evictions_continue_when_membarrier_is_refused() {
    let runtime = Runtime::builder().budget(ByteSize::mib(2)).build().unwrap();
    let weigher = |_: &u64, _: &Arc<Text>| ByteSize::new(4_000);
    let cache: Cache<u64, Arc<Text>> = Cache::builder(&runtime).weigher(weigher).build().unwrap();
    for key in 0..1_000 {
        cache.insert(key, text(key)).unwrap();
    }
    assert_eq!(heavy_fences(), Default::default());

    let rules = [(libc::SYS_membarrier, Vec::new())].into();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    apply_filter_all_threads(&BpfProgram::try_from(filter).unwrap()).unwrap();

    // Without `membarrier` a grace period needs a visit of every processor, which takes much longer
    // than an insert. So inserts pause: the test is whether memory is freed at all.
    let begin = Instant::now();
    for key in 1_000..9_000 {
        if key % 500 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        while cache.insert(key, text(key)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(60), "refused for good: {:?}", heavy_fences());
            std::thread::sleep(Duration::from_millis(1));
        }
        let pinned = cache.pin();
        assert!(pinned.get(&key).is_none_or(|text| text.0 == [key as u8; 4_000]));
    }
    let fences = heavy_fences();
    assert!(fences.visited > 0 && fences.refused == 0, "{fences:?}");
    let live = LIVE.load(Ordering::Relaxed);
    assert!(live < 5_000, "{live} values of 4 kB: 2 MiB in the cache, and 16 MiB that wait for readers, at most");
}
