//! The drop of a cache: a large one is uncharged at once, and its entries are dropped later.

#[path = "common/deadline.rs"]
mod deadline;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use deadline::in_time;
use lowwater::{ByteSize, Cache, CallbackScope, Charged, Memcg, Runtime};

/// Above the number of entries that a drop drops itself.
const MANY: u64 = 10_000;

/// Counts its drops.
#[derive(Clone)]
struct Counted(#[allow(dead_code)] Arc<Counts>);

struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn value(dropped: &Arc<AtomicUsize>) -> Counted {
    Counted(Arc::new(Counts(Arc::clone(dropped))))
}

fn runtime(budget: ByteSize) -> Runtime {
    Runtime::builder().budget(budget).build().unwrap()
}

fn fill(cache: &Cache<u64, Counted>, entries: u64, dropped: &Arc<AtomicUsize>) {
    (0..entries).for_each(|key| drop(cache.insert(key, value(dropped)).unwrap()));
}

fn usage(runtime: &Runtime) -> ByteSize {
    runtime.tree().drain_stock();
    runtime.root().usage()
}

fn wait_until(mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_large_cache_is_uncharged_at_once_and_drops_its_values_later() {
    let (runtime, dropped) = (runtime(ByteSize::mib(64)), Arc::new(AtomicUsize::new(0)));
    let captured = Arc::new(());
    let in_listener = Arc::clone(&captured);
    let cache = Cache::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .eviction_listener(move |_, _, _| assert_eq!(*in_listener, ()))
        .build()
        .unwrap();
    fill(&cache, MANY, &dropped);
    assert!(usage(&runtime) > ByteSize::ZERO);
    drop(cache);
    assert_eq!(usage(&runtime), ByteSize::ZERO);
    assert_eq!(Arc::strong_count(&captured), 1, "the listener is dropped");
    wait_until(|| dropped.load(Ordering::Relaxed) == MANY as usize);
    wait_until(|| runtime.stats().retired == ByteSize::ZERO);
}

#[test]
fn a_refused_insert_for_another_group_leaves_the_drop_to_the_housekeeper() {
    #[derive(Debug)]
    struct Sends(Sender<ThreadId>);
    impl Drop for Sends {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }
    let runtime = runtime(ByteSize::mib(64));
    let group = runtime.group("full").unwrap();
    group.set_max(ByteSize::ZERO);
    let cache = Cache::<u64, Arc<Sends>>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let (sender, threads) = channel();
    (0..5_000).for_each(|key| drop(cache.insert(key, Arc::new(Sends(sender.clone()))).unwrap()));
    let refused = cache.entry(5_000).group(&group).insert(Arc::new(Sends(sender))).unwrap_err();
    drop(cache);
    let caller = thread::current().id();
    assert!(threads.iter().take(5_000).all(|thread| thread != caller));
    drop(refused);
}

/// The housekeeper may begin before this thread runs again, so there are 50 tries.
#[test]
fn a_large_caches_bytes_are_retired_until_the_housekeeper_begins() {
    let (runtime, dropped) = (runtime(ByteSize::mib(64)), Arc::new(AtomicUsize::new(0)));
    let was_retired = (0..50).any(|_| {
        let cache = Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
        fill(&cache, MANY, &dropped);
        let bytes = cache.stats().bytes;
        drop(cache);
        runtime.stats().retired >= bytes
    });
    assert!(was_retired);
    wait_until(|| runtime.stats().retired == ByteSize::ZERO);
}

#[test]
fn the_end_of_the_runtime_drops_what_is_left() {
    let (runtime, dropped) = (runtime(ByteSize::mib(64)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..8 {
        let cache = Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
        fill(&cache, MANY, &dropped);
    }
    drop(runtime);
    assert_eq!(dropped.load(Ordering::Relaxed), 8 * MANY as usize);
}

#[test]
fn a_small_cache_drops_its_values_itself() {
    let (runtime, dropped) = (runtime(ByteSize::mib(64)), Arc::new(AtomicUsize::new(0)));
    let cache = Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    fill(&cache, 1_000, &dropped);
    drop(cache);
    assert_eq!(dropped.load(Ordering::Relaxed), 1_000);
}

/// Drops a full cache of this group in a full budget, and fills another one at once.
fn assert_room_after_drop(group: impl Fn(&Runtime) -> Memcg) {
    let (runtime, dropped) = (runtime(ByteSize::mib(2)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..5 {
        let cache = Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).group(&group(&runtime)).build().unwrap();
        fill(&cache, 5 * MANY, &dropped);
    }
    let before = usage(&runtime);
    assert_eq!(before, ByteSize::ZERO);
}

#[test]
fn another_cache_finds_room_after_the_drop() {
    assert_room_after_drop(|runtime| runtime.root().clone());
    assert_room_after_drop(|runtime| runtime.group("a/b").unwrap());
}

#[test]
fn caches_with_tenants_held_values_and_limits_are_uncharged() {
    let (runtime, dropped) = (runtime(ByteSize::mib(64)), Arc::new(AtomicUsize::new(0)));
    let tenant = runtime.group("tenant").unwrap();
    let cache = Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    fill(&cache, MANY, &dropped);
    for key in MANY..2 * MANY {
        cache.entry(key).group(&tenant).insert(value(&dropped)).unwrap();
    }
    drop(cache);
    assert_eq!((usage(&runtime), tenant.usage()), (ByteSize::ZERO, ByteSize::ZERO));

    let cache = Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).max(ByteSize::mib(16)).build().unwrap();
    fill(&cache, MANY, &dropped);
    drop(cache);
    assert_eq!(usage(&runtime), ByteSize::ZERO);
    wait_until(|| dropped.load(Ordering::Relaxed) == 3 * MANY as usize);

    let held = Cache::<u64, Charged<u64>>::builder(&runtime)
        .weigher(|_, _| Charged::<u64>::BYTES)
        .charge_held_values()
        .build()
        .unwrap();
    for key in 0..MANY {
        let charge = runtime.charge_guard(runtime.root(), Charged::<u64>::BYTES).unwrap();
        held.insert(key, Charged::new(key, charge)).unwrap();
    }
    let value = held.get(&7).unwrap();
    drop(held);
    assert_eq!(usage(&runtime), Charged::<u64>::BYTES, "the value that is held");
    drop(value);
    assert_eq!(usage(&runtime), ByteSize::ZERO);
}

#[test]
fn a_dead_group_and_a_callback_leave_no_charge() {
    let (runtime, dropped) = (runtime(ByteSize::mib(64)), Arc::new(AtomicUsize::new(0)));
    let group = runtime.group("ends").unwrap();
    let cache = Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).group(&group).build().unwrap();
    fill(&cache, MANY, &dropped);
    group.offline().unwrap();
    drop(cache);
    assert_eq!(usage(&runtime), ByteSize::ZERO);

    let cache = Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    fill(&cache, MANY, &dropped);
    let scope = CallbackScope::enter();
    drop(cache);
    drop(scope);
    wait_until(|| usage(&runtime) == ByteSize::ZERO);
    wait_until(|| dropped.load(Ordering::Relaxed) == 2 * MANY as usize);
}

#[test]
fn a_panic_of_a_value_ends_no_thread() {
    struct Bomb(u64);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(self.0 != 5, "a bomb");
        }
    }
    let runtime = runtime(ByteSize::mib(64));
    let cache = Cache::<u64, Arc<Bomb>>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    (0..MANY).for_each(|key| drop(cache.insert(key, Arc::new(Bomb(key))).unwrap()));
    drop(cache);
    let (dropped, again) = (Arc::new(AtomicUsize::new(0)), Cache::builder(&runtime));
    let cache = again.weigher(|_, _| ByteSize::ZERO).build().unwrap();
    fill(&cache, MANY, &dropped);
    drop(cache);
    wait_until(|| dropped.load(Ordering::Relaxed) == MANY as usize);
}

/// A value that blocks the thread that drops it, until the sender is dropped. It tells when the
/// drop begins.
struct Blocks {
    begins: Sender<()>,
    until: Mutex<Receiver<()>>,
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let _sent = self.begins.send(());
        let _ended = self.until.lock().unwrap().recv();
    }
}

#[test]
fn an_insert_does_not_fail_for_what_a_dropped_cache_has_left() {
    in_time(|| {
        let runtime = runtime(ByteSize::mib(64));
        let blocked = Cache::<u64, Arc<Blocks>>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
        let ((begins, begun), (unblock, until)) = (channel(), channel());
        let value = Arc::new(Blocks { begins, until: Mutex::new(until) });
        (0..MANY).for_each(|key| drop(blocked.insert(key, Arc::clone(&value)).unwrap()));
        drop(value);
        let large = || Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::kib(12)).build().unwrap();
        let (left, next) = (large(), large());
        (0..5_000).for_each(|key| assert!(left.insert(key, key).is_ok()));
        drop(blocked);
        // Otherwise one of the inserts might drop the blocking value.
        begun.recv_timeout(Duration::from_secs(60)).expect("the housekeeper drops what is left");
        drop(left);
        // More than the allowance for retired bytes, a quarter of the budget.
        (0..4_000).for_each(|key| assert!(next.insert(key, key).is_ok()));
        drop(unblock);
    });
}

#[test]
fn a_functions_panic_does_not_keep_the_caches_group() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the listener's own fault");
        }
    }
    let (runtime, dropped) = (runtime(ByteSize::mib(64)), Arc::new(AtomicUsize::new(0)));
    let (bomb, builder) = (Bomb, Cache::builder(&runtime).name("own").weigher(|_, _| ByteSize::ZERO));
    let listener = move |_: &u64, _: &Counted, _| {
        let _bomb = &bomb;
    };
    let cache = builder.max(ByteSize::mib(16)).eviction_listener(listener).build().unwrap();
    fill(&cache, MANY, &dropped);
    assert_eq!(runtime.root().children().len(), 1);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(cache))).is_err());
    assert_eq!((usage(&runtime), runtime.root().children().len()), (ByteSize::ZERO, 0));
    wait_until(|| dropped.load(Ordering::Relaxed) == MANY as usize);
}

/// Its drop counts, and waits for the other thread after half of the values.
struct Halts(Arc<Halt>);

struct Halt {
    dropped: AtomicUsize,
    at: usize,
    blocks: Blocks,
}

impl Drop for Halts {
    fn drop(&mut self) {
        if self.0.dropped.fetch_add(1, Ordering::Relaxed) + 1 == self.0.at {
            let _sent = self.0.blocks.begins.send(());
            let _ended = self.0.blocks.until.lock().unwrap().recv();
        }
    }
}

/// The cache is dropped on its thread, or by the housekeeper.
#[test]
fn the_entries_of_a_dropped_cache_are_retired_until_they_are_dropped() {
    for entries in [1_000, MANY] {
        let (runtime, ((begins, begun), (unblock, until))) = (runtime(ByteSize::mib(64)), (channel(), channel()));
        let blocks = Blocks { begins, until: Mutex::new(until) };
        let halt = Arc::new(Halt { dropped: AtomicUsize::new(0), at: entries as usize / 2, blocks });
        let cache = Cache::<u64, Arc<Halts>>::builder(&runtime).weigher(|_, _| ByteSize::kib(1)).build().unwrap();
        (0..entries).for_each(|key| drop(cache.insert(key, Arc::new(Halts(Arc::clone(&halt)))).unwrap()));
        let bytes = cache.stats().bytes.get();
        thread::scope(|scope| {
            scope.spawn(|| drop(cache));
            begun.recv_timeout(Duration::from_secs(60)).expect("half of the values are dropped");
            let (retired, usage) = (runtime.stats().retired.get(), usage(&runtime));
            drop(unblock);
            assert_eq!(usage, ByteSize::ZERO, "{entries} entries");
            assert!(retired.abs_diff(bytes / 2) < bytes / 64, "{retired} of {bytes} bytes in {entries} entries");
        });
        wait_until(|| runtime.stats().retired == ByteSize::ZERO);
    }
}

#[test]
fn a_dropped_cache_and_new_entries_are_within_the_bound_together() {
    struct Slow(Arc<AtomicUsize>);
    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(Duration::from_micros(10));
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    const SIZE: ByteSize = ByteSize::kib(3);
    // An insert may wait for the housekeeper for as long as that takes.
    let builder = Runtime::builder().budget(ByteSize::mib(32)).direct_time_max(Duration::from_secs(60));
    let (runtime, live) = (builder.build().unwrap(), Arc::new(AtomicUsize::new(MANY as usize)));
    let ended = Cache::<u64, Arc<Slow>>::builder(&runtime).weigher(|_, _| SIZE).build().unwrap();
    (0..MANY).for_each(|key| drop(ended.insert(key, Arc::new(Slow(Arc::clone(&live)))).unwrap()));
    drop(ended);
    let next = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| SIZE).build().unwrap();
    for key in 0..MANY {
        assert!(next.insert(key, key).is_ok());
        let all = runtime.root().usage() + ByteSize::new(live.load(Ordering::Relaxed) as u64 * SIZE.get());
        assert!(all <= ByteSize::mib(48), "{all:#} after {key} inserts: budget and allowance");
    }
}
