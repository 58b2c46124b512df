//! The rows of "What differs from all of them", and the paragraphs below that table.

use lowwater::cache::{Op, RejectReason, TenantKey};
use lowwater::{ByteSize, Cache};

use crate::one_processor::stay_on_one_processor;
use crate::{letters, runtime, Outcome};

#[test]
fn budgets_and_weights() -> Outcome {
    // row: a cache has a capacity
    let runtime = runtime(ByteSize::mib(1));
    let pages = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, page| page.capacity()).build()?;
    let limited = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).max(ByteSize::kib(64)).build()?;
    for n in 0..10_000 {
        pages.insert(n, vec![0; 1000])?;
        limited.insert(n, n)?;
        assert!(pages.stats().bytes + limited.stats().bytes <= ByteSize::mib(1));
        assert!(limited.stats().bytes <= ByteSize::kib(64));
    }
    assert!(pages.stats().evictions > 0 && limited.stats().evictions > 0);
    // row: a weigher is optional
    let numbers = crate::numbers(ByteSize::mib(1));
    numbers.insert(1, 1)?;
    assert_eq!(numbers.stats().bytes, Cache::<u64, u64>::ENTRY_BYTES);
    // row: the weight is the whole entry
    let pages = Cache::<u64, Vec<u8>>::builder(numbers.runtime()).weigher(|_, page| page.capacity()).build()?;
    pages.insert(1, Vec::with_capacity(500))?;
    assert_eq!(pages.stats().bytes, Cache::<u64, Vec<u8>>::ENTRY_BYTES + ByteSize::new(500));
    Ok(())
}

#[test]
fn refused_inserts() -> Outcome {
    // row: an insert always succeeds
    let runtime = runtime(ByteSize::mib(1));
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity()).build()?;
    let large = cache.insert(1, vec![0; 2 << 20]).unwrap_err();
    assert!(matches!(large.reason, RejectReason::TooLarge { .. }) && large.value.len() == 2 << 20);
    let others = runtime.charge_guard(runtime.root(), ByteSize::kib(900))?;
    let late = cache.insert(1, vec![7; 200 << 10]).unwrap_err();
    assert!(matches!(late.reason, RejectReason::NoRoom { .. }), "{late}");
    drop(others);
    cache.insert(1, late.value)?;
    assert_eq!(cache.get(&1).map(|value| value.len()), Some(200 << 10));
    Ok(())
}

#[test]
fn tenants() -> Outcome {
    // row: a cache per tenant, or a prefix and no protection
    let runtime = runtime(ByteSize::mib(1));
    let cache = Cache::<TenantKey<String>, u64>::builder(&runtime).weigher(|key, _| key.key().capacity()).build()?;
    let (shop, crawler) = (runtime.group("shop")?, runtime.group("crawler")?);
    shop.set_min(ByteSize::kib(64));
    cache.tenant(&shop)?.insert("/".into(), 1)?;
    for n in 0..30_000 {
        cache.tenant(&crawler)?.insert(format!("/{n}"), n)?;
    }
    cache.tenant(&crawler)?.insert("/".into(), 2)?;
    assert_eq!((cache.tenant(&shop)?.get("/"), cache.tenant(&crawler)?.get("/")), (Some(1), Some(2)));
    assert!(cache.stats().evictions > 0);
    Ok(())
}

/// The sizing rule, which GUIDE has as well: with the part that the reclaimer keeps free, all
/// entries fit and none is evicted, and with a tenth less budget some are. The budgets are so large
/// that the stock of the processor stays below the watermarks.
#[test]
fn n_entries_fit_by_the_sizing_rule() {
    const ENTRIES: u64 = 30_000;
    for heap_bytes in [400, 1000] {
        let charge = Cache::<u64, Vec<u8>>::ENTRY_BYTES + ByteSize::new(heap_bytes);
        let by_the_rule = ByteSize::new(ENTRIES * charge.get() * 16 / 15);
        for (budget, fits) in [(by_the_rule, true), (ByteSize::new(by_the_rule.get() * 9 / 10), false)] {
            // A thread that migrates leaves bytes in the stock of each processor.
            let fill = || {
                stay_on_one_processor();
                let runtime = runtime(budget);
                let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity());
                let cache = cache.build().unwrap();
                for n in 0..ENTRIES {
                    cache.insert(n, Vec::with_capacity(heap_bytes as usize)).unwrap();
                }
                (cache.stats().evictions, cache.len() as u64)
            };
            let (evictions, len) = std::thread::scope(|scope| scope.spawn(fill).join()).unwrap();
            assert_eq!(evictions == 0, fits, "{evictions} evictions of entries with {heap_bytes} bytes in {budget}");
            assert_eq!(len == ENTRIES, fits);
        }
    }
}

/// With a thread on each processor, in a small budget: each processor may hold charged bytes in
/// stock, for which the rule adds 32 KiB.
#[test]
fn n_entries_of_all_processors_fit_by_the_sizing_rule() -> Outcome {
    const ENTRIES_PER_THREAD: u64 = 300;
    let processors = std::thread::available_parallelism()?.get() as u64;
    let (entries, stock_bytes) = (processors * ENTRIES_PER_THREAD, ByteSize::kib(32 * processors));
    let charge = Cache::<u64, Vec<u8>>::ENTRY_BYTES + ByteSize::new(400);
    // Several times, as the threads are on other processors each time.
    for _ in 0..20 {
        let budget = ByteSize::new(entries * charge.get() * 16 / 15 + stock_bytes.get());
        let runtime = runtime(budget);
        assert_eq!(runtime.tree().stock_slots() as u64, processors);
        let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity()).build()?;
        std::thread::scope(|scope| {
            for thread in 0..processors {
                let (cache, first) = (&cache, thread * ENTRIES_PER_THREAD);
                scope.spawn(move || {
                    for n in first..first + ENTRIES_PER_THREAD {
                        cache.insert(n, Vec::with_capacity(400)).unwrap();
                    }
                });
            }
        });
        assert_eq!((cache.stats().evictions, cache.len() as u64), (0, entries), "{processors} threads in {budget}");
    }
    Ok(())
}

#[test]
fn values_in_place() -> Outcome {
    let cache = letters();
    let group = cache.runtime().group("group")?;
    cache.entry("a".into()).group(&group).insert("a".into())?;
    cache.entry("a".into()).and_compute(|_| Op::Update("b".into()))?;
    assert_eq!((cache.get("a").as_deref(), cache.len_of(&group)), (Some("b"), 1));
    cache.entry("a".into()).group(cache.group()).and_compute(|_| Op::Update("c".into()))?;
    assert_eq!((cache.get("a").as_deref(), cache.len_of(&group)), (Some("c"), 0));
    Ok(())
}
