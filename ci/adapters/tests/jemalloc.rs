//! jemalloc's unused pages beside a lowwater `Cache` in one budget.
//!
//! An arena keeps the pages of freed objects for later allocations (*dirty* pages), by default for
//! ten seconds. Their number is the weight, and a purge is the eviction. A purge returns all of
//! them, whatever the target.
//!
//! A change must ensure that the cache's values allocate nothing: jemalloc would place them in
//! dirty pages, and the weight would fall without a purge.

#[path = "../../../crates/adapters/tests/common/ours.rs"]
mod ours;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lowwater::{ByteSize, Cache, Runtime};
use lowwater_adapters::{adapt, evict_by, Adapted, Evict};
use ours::{runtime, Keys};
use tikv_jemalloc_ctl::{epoch, raw};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// jemalloc's options: dirty pages stay until they are purged, so that no result depends on time.
#[export_name = "_rjem_malloc_conf"]
pub static MALLOC_CONF: &[u8] = b"narenas:1,tcache:false,dirty_decay_ms:-1,muzzy_decay_ms:0\0";

const BUDGET: ByteSize = ByteSize::mib(8);
const BLOCK: usize = 64 << 10;
/// The bytes that each entry of the cache is charged for.
const VALUE: usize = 4000;
const KEYS: u64 = 3 * BUDGET.get() / VALUE as u64;

/// The dirty pages are those of the whole process, so the tests run one after the other.
static SERIAL: Mutex<()> = Mutex::new(());

/// Returns the bytes of the dirty pages of all arenas; 4096 is `MALLCTL_ARENAS_ALL`.
fn dirty_bytes() -> usize {
    epoch::advance().unwrap();
    // SAFETY: the key's value is a `size_t`.
    let pages = unsafe { raw::read::<usize>(b"stats.arenas.4096.pdirty\0") }.unwrap();
    // SAFETY: the key's value is a `size_t`.
    pages * unsafe { raw::read::<usize>(b"arenas.page\0") }.unwrap()
}

/// Returns the dirty pages of all arenas to the system.
fn purge() {
    let name = c"arena.4096.purge".as_ptr();
    // SAFETY: the name ends with a zero byte, and the command has no value to read or write.
    let status = unsafe { tikv_jemalloc_sys::mallctl(name, null_mut(), null_mut(), null_mut(), 0) };
    assert_eq!(status, 0);
}

/// Allocates and frees this many blocks, whose pages stay dirty.
fn allocate_and_free(blocks: usize) {
    drop((0..blocks).map(|_| vec![1_u8; BLOCK]).collect::<Vec<_>>());
}

/// Adapts the dirty pages. Also returns the number of purges.
fn adapted(runtime: &Runtime) -> (Adapted<impl Evict>, Arc<AtomicU32>) {
    let purges = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&purges);
    let shrink_to = move |target: ByteSize| {
        if dirty_bytes() as u64 > target.get() {
            purge();
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    (adapt(runtime, "jemalloc", evict_by(dirty_bytes, shrink_to)).unwrap(), purges)
}

fn cache(runtime: &Runtime) -> Cache<u64, u64> {
    Cache::builder(runtime).name("ours").weigher(|_, _| VALUE).build().unwrap()
}

#[test]
fn unused_pages_give_way_to_a_cache() {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = runtime(BUDGET);
    let (allocator, purges) = adapted(&runtime);
    allocate_and_free(96);
    allocator.settle();
    let full = allocator.weight();
    assert!(full >= ByteSize::from(64 * BLOCK), "{full:#} are dirty");
    assert!(allocator.charged() >= ByteSize::from(64 * BLOCK));
    let cache = cache(&runtime);
    let mut keys = Keys::new(1, KEYS);
    for _ in 0..6 * KEYS {
        let key = keys.next();
        if cache.get(&key).is_none() {
            cache.insert(key, key).unwrap();
        }
    }
    let left = allocator.weight();
    println!("{left:#} of {full:#} are left, purges: {}", purges.load(Ordering::Relaxed));
    assert!(purges.load(Ordering::Relaxed) > 0, "nothing was purged");
    assert!(left.get() * 4 <= full.get(), "{left:#} of {full:#} are left");
}

#[test]
fn unused_pages_take_memory_from_an_idle_cache() {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = runtime(BUDGET);
    purge();
    let (allocator, _) = adapted(&runtime);
    let cache = cache(&runtime);
    (0..KEYS).for_each(|key| drop(cache.insert(key, key)));
    let before = cache.stats().bytes;
    assert!(before.get() * 10 >= BUDGET.get() * 7, "the cache holds {before:#}");
    // Each round frees more blocks than the one before.
    for blocks in (8..=64).step_by(8) {
        allocate_and_free(blocks);
        allocator.settle();
        assert!(runtime.root().usage() <= BUDGET);
    }
    let (held, left) = (allocator.charged(), cache.stats().bytes);
    println!("{held:#} are charged for unused pages, the cache holds {left:#} of {before:#}");
    assert!(held >= ByteSize::from(48 * BLOCK), "{held:#} are charged");
    assert!(left < before, "the cache holds {left:#} of {before:#}");
}
