//! Memory that readers hold back in all caches of a runtime has one bound, which is part of the
//! budget's guarantee (`Runtime`, guarantee 3). In a process of its own, because a reader holds
//! back removed entries of every cache in the process.
//!
//! The parts run one after the other in one test. The last one leaks a reader: from then on only
//! the drop of a cache frees its removed entries. A change must ensure that it stays the last.

#![forbid(unsafe_code)]

use lowwater::cache::RejectReason;
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Runtime};
use lowwater_base::unwind::AtEnd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZE: usize = 4_000;
const BUDGET: ByteSize = ByteSize::mib(32);
/// The allowance for retired bytes: this, or a quarter of the budget if that is more.
const ALLOWANCE: ByteSize = ByteSize::mib(16);

/// A value, whose bytes are counted while it is alive.
struct Value(Vec<u8>, Arc<Count>);

#[derive(Default)]
struct Count {
    live: AtomicI64,
    made: AtomicU64,
    dropped: AtomicU64,
}

impl Value {
    fn new(size: usize, count: &Arc<Count>) -> Self {
        count.live.fetch_add(size as i64, Relaxed);
        count.made.fetch_add(1, Relaxed);
        Self(vec![0; size], Arc::clone(count))
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Self::new(self.0.len(), &self.1)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.1.live.fetch_sub(self.0.len() as i64, Relaxed);
        self.1.dropped.fetch_add(1, Relaxed);
    }
}

type Values = Cache<u64, Value>;

/// A `direct_time_max` for parts in which no insert may be refused: longer than a reader that is
/// preempted waits for a processor.
const LONG: Duration = Duration::from_secs(60);

fn runtime(budget: ByteSize) -> Runtime {
    runtime_that_waits(budget, Duration::from_millis(1))
}

/// Builds a runtime with inserts that wait up to `time` for readers.
fn runtime_that_waits(budget: ByteSize, time: Duration) -> Runtime {
    Runtime::builder().budget(budget).topology(Arc::new(Fixed::new(1))).direct_time_max(time).build().unwrap()
}

fn caches(runtime: &Runtime, nr: usize) -> Vec<Values> {
    let cache =
        |_| Cache::builder(runtime).weigher(|_, value: &Value| ByteSize::new(value.0.len() as u64)).build().unwrap();
    (0..nr).map(cache).collect()
}

/// Asserts that live bytes are at most the budget, the allowance, and the slack that `Runtime`
/// documents: 4 KiB for each stripe of a cache, and 64 entries for a thread that drops some.
fn assert_within(count: &Count, runtime: &Runtime, caches: usize) {
    let stripes = 1 + (2 * std::thread::available_parallelism().map_or(64, usize::from)).next_power_of_two();
    let slack = (caches * stripes * 4_096 + 64 * SIZE) as u64;
    let stats = runtime.stats();
    let live = count.live.load(Relaxed) as u64;
    let budget = stats.budget.get();
    let most = budget + ALLOWANCE.get().max(budget / 4);
    assert!(stats.usage <= stats.budget);
    assert!(live <= most + slack, "{live} bytes are alive, and {most} may be, {slack} more at most");
    let counted = stats.usage.get() + stats.retired.get();
    assert!(counted <= most + slack, "{counted} bytes are counted, and {most} may be, {slack} more at most");
    assert!(live <= counted + slack, "{live} bytes are alive, and {counted} counted");
}

/// One pinned reader holds back entries of sixteen caches: inserts are refused at the bound, and
/// continue when the reader leaves.
fn one_pin_and_sixteen_caches() {
    let (runtime, count) = (runtime(BUDGET), Arc::new(Count::default()));
    let caches = caches(&runtime, 16);
    caches[0].insert(u64::MAX, Value::new(1, &count)).unwrap();
    let pinned = caches[0].pin();
    let seen = pinned.get(&u64::MAX).unwrap();
    let (mut kept, mut refused) = (0_u64, 0_u64);
    for n in 0.. {
        let cache = &caches[n as usize % caches.len()];
        match cache.insert(n, Value::new(SIZE, &count)) {
            Ok(_) => kept += 1,
            Err(error) => {
                let RejectReason::HeldByReaders { bytes, retired, allowed } = error.reason else { panic!("{error}") };
                assert!(bytes.get() > SIZE as u64 && retired.get() + bytes.get() > ALLOWANCE.get() - (1 << 20));
                assert_eq!(allowed, ALLOWANCE);
                assert!(error.to_string().contains("readers hold back"), "{error}");
                refused += 1;
            }
        }
        if n % 64 == 0 {
            assert_within(&count, &runtime, caches.len());
        }
        if refused == 200 {
            break;
        }
    }
    assert!(
        kept * SIZE as u64 > BUDGET.get() + ALLOWANCE.get() / 2,
        "{kept} were kept: inserts continue while there is room"
    );
    // Existing entries can be read and removed. The removed ones are held back, too, so their bytes
    // are not free for new entries.
    let found = caches.iter().enumerate().filter(|(n, cache)| cache.get(&(kept / 16 * 16 - 16 + *n as u64)).is_some());
    assert!(found.count() > 8);
    caches[3].clear();
    assert_within(&count, &runtime, caches.len());
    let refused = caches[3].insert(1, Value::new(SIZE, &count)).err().map(|error| error.reason);
    assert!(matches!(refused, Some(RejectReason::HeldByReaders { .. })));
    assert_eq!(seen.0.len(), 1);
    // The most that is possible: inserts are refused. docs/promises/readers.md has the figure.
    let stats = runtime.stats();
    println!(
        "a budget of {BUDGET}: usage {}, retired {}, both {}",
        stats.usage,
        stats.retired,
        stats.usage + stats.retired
    );
    drop(pinned);
    // The reader has left: inserts continue at once, and drop the retired entries.
    for n in 0..20_000 {
        let begin = Instant::now();
        // A thread of the runtime that is not scheduled may be a reader, too.
        while let Err(error) = caches[n as usize % caches.len()].insert(n, Value::new(SIZE, &count)) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{error}");
        }
    }
    assert_within(&count, &runtime, caches.len());
    assert!(runtime.stats().retired < ALLOWANCE);
    drop(caches);
    assert_eq!(count.made.load(Relaxed), count.dropped.load(Relaxed));
    runtime.tree().drain_stock();
    assert_eq!((runtime.stats().usage, runtime.stats().retired), (ByteSize::ZERO, ByteSize::ZERO));
}

/// Each cache has a few retired entries, and drops them only when it retires more. All together are
/// more than the allowance, so inserts must sweep over the other caches.
fn many_small_caches_and_no_reader() {
    let (runtime, count) = (runtime_that_waits(ByteSize::mib(16), LONG), Arc::new(Count::default()));
    let caches = caches(&runtime, 1_000);
    for n in 0..60_000_u64 {
        caches[(n * 7 % 1_000) as usize].insert(n, Value::new(SIZE, &count)).unwrap();
        if n % 1_000 == 0 {
            assert_within(&count, &runtime, caches.len());
        }
    }
    drop(caches);
    assert_eq!(runtime.stats().retired, ByteSize::ZERO);
    assert_eq!(count.made.load(Relaxed), count.dropped.load(Relaxed));
}

/// Beside short readers, as lookups are, no insert is refused.
fn short_readers_beside_inserts() {
    let (runtime, count) = (runtime_that_waits(BUDGET, LONG), Arc::new(Count::default()));
    let caches = caches(&runtime, 4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        // Also by a panic of an insert, as the scope waits for the readers.
        let _stop = AtEnd(|| stop.store(true, Relaxed));
        for reader in 0..2_u64 {
            let (caches, stop) = (&caches, &stop);
            s.spawn(move || {
                for n in reader.. {
                    let pinned = caches[n as usize % 4].pin();
                    let found = (0..64).filter(|key| pinned.get(&(n * 64 + key)).is_some()).count();
                    std::hint::black_box(found);
                    drop(pinned);
                    if stop.load(Relaxed) {
                        return;
                    }
                }
            });
        }
        let end = Instant::now() + Duration::from_millis(1_500);
        for n in (0..).take_while(|_| Instant::now() < end) {
            caches[n as usize % 4].insert(n, Value::new(SIZE, &count)).unwrap();
        }
    });
    assert_within(&count, &runtime, caches.len());
}

/// An insert at the bound makes a few short waits for readers before it is refused, even if the
/// time of a charge is over. Here that time is zero: on a busy machine one wait may take longer
/// than it.
fn a_reader_that_leaves_soon_is_waited_for() {
    let (runtime, count) = (runtime_that_waits(BUDGET, Duration::ZERO), Arc::new(Count::default()));
    let cache = &caches(&runtime, 1)[0];
    let mut key = 0;
    let mut insert = || {
        key += 1;
        cache.insert(key, Value::new(SIZE, &count)).map_err(|error| error.reason)
    };
    // Returns how long the first insert takes that is refused because of readers.
    let (mut admitted, began) = (0, Instant::now());
    let refused = |insert: &mut dyn FnMut() -> Result<Option<Value>, RejectReason>| loop {
        let inserts = Instant::now();
        let result = insert();
        if let Err(RejectReason::HeldByReaders { .. }) = result {
            break inserts.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "readers keep no insert: {:?}", result.err());
    };
    // The insert waits 8 times 100 us, and the reader leaves after 400 us. The reader may be
    // preempted for longer, but not each time.
    while admitted < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "an insert waits for a reader that leaves soon");
        let ((pins, pinned), (leave, leaves)) = (channel(), channel());
        std::thread::scope(|s| {
            // Dropped by a panic, after which the reader leaves.
            let leave = leave;
            s.spawn(move || {
                let reader = cache.pin();
                pins.send(()).unwrap();
                if leaves.recv().is_ok() {
                    std::thread::sleep(Duration::from_micros(400));
                }
                drop(reader);
            });
            pinned.recv().unwrap();
            // The first one may drop entries that were removed before the reader came, instead of
            // waiting.
            refused(&mut insert);
            let waited = refused(&mut insert);
            assert!(waited >= 8 * Duration::from_micros(100), "refused after {waited:?}");
            leave.send(()).unwrap();
            admitted += u32::from(insert().is_ok());
        });
    }
}

/// Usage above a limit that was lowered is no reader's fault, even while a reader holds bytes back.
fn a_lowered_budget_is_no_fault_of_readers() {
    let runtime = runtime_that_waits(ByteSize::mib(64), Duration::from_secs(60));
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity()).build().unwrap();
    let reader = cache.pin();
    for key in 0..8 {
        cache.insert(key, vec![0; 1 << 20]).unwrap();
        assert!(cache.remove(&key).is_some());
    }
    // Bytes that no shrinker frees.
    let charge = runtime.charge_guard(runtime.root(), ByteSize::mib(32)).unwrap();
    runtime.set_budget(ByteSize::mib(16));
    let refused = cache.insert(9, vec![0; 1 << 10]).map_err(|error| error.reason);
    assert!(matches!(refused, Err(RejectReason::NoRoom { .. })), "{refused:?}");
    drop((reader, charge));
}

/// An entry that is larger than a `max` is refused for that reason, even while a reader holds bytes
/// back.
fn an_entry_that_never_fits_is_no_fault_of_readers() {
    let runtime = runtime(ByteSize::mib(64));
    let builder = || Cache::<u64, u64>::builder(&runtime).weigher(|_, mib| ByteSize::mib(*mib));
    let (cache, limited) = (builder().build().unwrap(), builder().max(ByteSize::mib(10)).build().unwrap());
    let reader = cache.pin();
    for key in 0..6 {
        cache.insert(key, 1).unwrap();
        assert!(cache.remove(&key).is_some());
    }
    // More than the budget and the allowance; and more than a group's `max`, and with the retired
    // bytes more than the allowance leaves.
    for (cache, mib) in [(&cache, 100), (&limited, 76)] {
        let refused = cache.insert(9, mib).map_err(|error| error.reason);
        assert!(matches!(refused, Err(RejectReason::TooLarge { .. })), "{mib} MiB: {refused:?}");
    }
    drop(reader);
}

/// Segments that an index replaces while a reader is inside count as retired bytes, so inserts are
/// refused before they exceed the bound.
fn an_index_that_grows_and_shrinks_under_a_reader() {
    let runtime = runtime(ByteSize::kib(256));
    let cache = Cache::<u64, ()>::builder(&runtime).weigher(|_, ()| ByteSize::ZERO).build().unwrap();
    let pinned = cache.pin();
    let (mut entries, mut refused) = (0, false);
    for round in 0..1_000_u64 {
        for n in 0..2_000 {
            match cache.insert(round * 2_000 + n, ()) {
                Ok(_) => entries += 1,
                Err(error) => {
                    refused = matches!(error.reason, RejectReason::HeldByReaders { .. });
                    break;
                }
            }
        }
        for n in 0..2_000 {
            cache.remove(&(round * 2_000 + n));
        }
        if refused {
            break;
        }
    }
    assert!(refused, "{entries} entries came and went, and no insert was refused");
    let of_entries = entries * Cache::<u64, ()>::ENTRY_BYTES.get();
    let retired = runtime.stats().retired.get();
    assert!(retired > of_entries + of_entries / 8, "{retired} bytes, {of_entries} of them entries: segments count");
    drop(pinned);
    // A thread of the runtime may be a reader, too.
    let left = Instant::now();
    while cache.collect() > ByteSize::ZERO || runtime.stats().retired > ByteSize::ZERO {
        assert!(left.elapsed() < Duration::from_secs(60), "{:?} are retired", runtime.stats().retired);
    }
}

/// Removed entries of every cache are held back for ever: inserts are refused with that reason, and
/// no call hangs.
fn a_leaked_reader() {
    let (runtime, count) = (runtime(BUDGET), Arc::new(Count::default()));
    let caches = caches(&runtime, 2);
    std::mem::forget(caches[0].pin());
    let began = Instant::now();
    let refused = (0..100_000_u64).find_map(|n| caches[1].insert(n, Value::new(SIZE, &count)).err());
    let error = refused.expect("48 MiB are alive at most");
    assert!(matches!(error.reason, RejectReason::HeldByReaders { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_within(&count, &runtime, 2);
    // Lookups and removals work; so does a load, but its value is not cached.
    assert!(caches[1].get(&5_000).is_some() || !caches[1].is_empty());
    assert_eq!(caches[1].get_or_insert_with(u64::MAX, || Value::new(7, &count)).0.len(), 7);
    caches[1].clear();
    assert!(caches[1].is_empty() && caches[1].collect() > ByteSize::mib(16));
    assert_within(&count, &runtime, 2);
    // A cache's drop frees its retired entries, and those that it leaves to the housekeeper: a
    // reader borrows the cache, so none has them.
    drop(caches);
    drop(error);
    let dropped = Instant::now();
    while count.live.load(Relaxed) > 0 {
        assert!(dropped.elapsed() < Duration::from_secs(60), "{} live", count.live.load(Relaxed));
        std::thread::yield_now();
    }
    assert_eq!(count.made.load(Relaxed), count.dropped.load(Relaxed));
    assert_eq!(runtime.stats().retired, ByteSize::ZERO);
}

#[test]
fn readers_hold_back_a_bounded_part_of_all_caches() {
    let parts: [(&str, fn()); 8] = [
        ("one pin and sixteen caches", one_pin_and_sixteen_caches),
        ("many small caches", many_small_caches_and_no_reader),
        ("short readers", short_readers_beside_inserts),
        ("a reader that leaves soon", a_reader_that_leaves_soon_is_waited_for),
        ("a lowered budget", a_lowered_budget_is_no_fault_of_readers),
        ("an entry that never fits", an_entry_that_never_fits_is_no_fault_of_readers),
        ("an index", an_index_that_grows_and_shrinks_under_a_reader),
        // The last part: from then on only the drop of a cache frees its removed entries.
        ("a leaked reader", a_leaked_reader),
    ];
    for (name, part) in parts {
        let began = Instant::now();
        part();
        println!("{name}: {:?}", began.elapsed());
    }
}
