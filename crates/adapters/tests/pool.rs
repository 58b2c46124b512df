//! A pool of `bytes::BytesMut` buffers beside a lowwater `Cache` in one budget.
//!
//! Only the free buffers are charged: those in use are memory of the program, not of a cache. A
//! pool has no keys and no misses, so it is not compared with the cache in equal use, as
//! `tests/share.rs` does.
//!
//! A change must ensure that the pool is changed only in `Adapted::update`: the runtime would not
//! see a buffer that came back otherwise.

#[path = "common/ours.rs"]
mod ours;

use std::sync::{Arc, Mutex};

use bytes::{BufMut, BytesMut};
use lowwater::{ByteSize, Runtime};
use lowwater_adapters::{adapt, evict_by, Adapted, Evict};
use ours::{ask_ours, ours, runtime, Keys};

const BUDGET: ByteSize = ByteSize::mib(4);
const BUFFER: usize = 64 << 10;
/// The bytes of a value of the cache.
const VALUE: usize = 4000;
/// Keys of the cache: three times the budget.
const KEYS: u64 = 3 * BUDGET.get() / VALUE as u64;

/// The free buffers.
type Free = Arc<Mutex<Vec<BytesMut>>>;

fn take(free: &Free) -> BytesMut {
    free.lock().unwrap().pop().unwrap_or_else(|| BytesMut::with_capacity(BUFFER))
}

fn give_back(free: &Free, mut buffer: BytesMut) {
    buffer.clear();
    free.lock().unwrap().push(buffer);
}

fn adapted(runtime: &Runtime, free: &Free) -> Adapted<impl Evict> {
    let (weighed, shrunk) = (Arc::clone(free), Arc::clone(free));
    let evict = evict_by(
        move || weighed.lock().unwrap().iter().map(BytesMut::capacity).sum::<usize>(),
        move |target: ByteSize| shrunk.lock().unwrap().truncate(target.get() as usize / BUFFER),
    );
    adapt(runtime, "buffers", evict).unwrap()
}

/// Uses this many buffers at once.
fn use_buffers(pool: &Adapted<impl Evict>, free: &Free, count: usize) {
    pool.update(|_| {
        let mut buffers: Vec<_> = (0..count).map(|_| take(free)).collect();
        for buffer in &mut buffers {
            buffer.put_bytes(1, BUFFER / 2);
        }
        buffers.into_iter().for_each(|buffer| give_back(free, buffer));
    });
}

#[test]
fn a_pool_of_buffers_gives_way() {
    let (runtime, free) = (runtime(BUDGET), Free::default());
    let pool = adapted(&runtime, &free);
    use_buffers(&pool, &free, 48);
    let full = pool.weight();
    assert!(full.get() * 10 >= BUDGET.get() * 7, "48 buffers are free, of {full:#}");
    let cache = ours(&runtime);
    let mut keys = Keys::new(1, KEYS);
    (0..6 * KEYS).for_each(|_| ask_ours(&cache, keys.next(), VALUE));
    let left = pool.weight();
    println!("{left:#} of {full:#} are left");
    assert!(left.get() * 4 <= full.get(), "{left:#} of {full:#} are left, though no buffer is used");
}

#[test]
fn a_pool_of_buffers_takes_memory_from_an_idle_cache() {
    let (runtime, free) = (runtime(BUDGET), Free::default());
    let pool = adapted(&runtime, &free);
    let cache = ours(&runtime);
    (0..KEYS).for_each(|key| ask_ours(&cache, key, VALUE));
    let before = cache.stats().bytes;
    assert!(before.get() * 10 >= BUDGET.get() * 8, "the cache holds {before:#}");
    for count in (4..=32).step_by(4) {
        use_buffers(&pool, &free, count);
        assert!(runtime.root().usage() <= BUDGET);
    }
    let (held, left) = (pool.weight(), cache.stats().bytes);
    println!("the pool holds {held:#}, the cache {left:#} of {before:#}");
    assert!(held >= ByteSize::from(24 * BUFFER), "32 buffers were used at once, and {held:#} are free");
    assert!(left + held <= BUDGET, "the cache holds {left:#}, the pool {held:#}");
}
