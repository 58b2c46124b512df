//! Tenants: selection of victims, protection, and use of other tenants' free memory.
//!
//! Most tests run a fixed request sequence and compare shares or hit ratios with bounds; the bounds
//! are wider than the deviations between seeds. `tests/one_budget` compares victim selection with
//! an exact oracle.
//!
//! A bound may be narrowed; a wider one hides a change of the victim selection.

use std::hash::BuildHasher;
use std::time::Duration;

use super::{cache_in, entry_bytes, eventually, hashed_cache_in, on_one_processor, patient_cache_of};
use super::{without_reclaimer, Seeded};
use crate::cache::charge::Room;
use crate::cache::Eviction;
use crate::{ByteSize, Cache, Charged, Memcg, NodeId, Runtime};

fn fill<S: BuildHasher>(cache: &crate::Cache<u64, Vec<u8>, S>, group: &Memcg, keys: std::ops::Range<u64>) {
    for key in keys {
        cache.entry(key).group(group).insert(vec![0; 400]).expect("a victim always exists");
    }
}

fn cache_without_reclaimer(budget: ByteSize) -> crate::Cache<u64, Vec<u8>> {
    cache_in(without_reclaimer(budget))
}

type SeededCache = crate::Cache<u64, Vec<u8>, Seeded>;

/// Returns a cache in which each run forgets the same ghosts, if the requests are the same and on
/// one processor.
fn seeded_cache(budget: ByteSize) -> SeededCache {
    hashed_cache_in(without_reclaimer(budget), Seeded(1))
}

#[test]
fn a_flooding_tenant_does_not_evict_below_low() {
    let cache = patient_cache_of(ByteSize::mib(2));
    let runtime = cache.runtime().clone();
    let (quiet, flood) = (runtime.group("quiet").unwrap(), runtime.group("flood").unwrap());
    quiet.set_low(ByteSize::kib(600));
    fill(&cache, &quiet, 0..1_000);
    let before = quiet.usage();
    assert!(before <= ByteSize::kib(600));
    fill(&cache, &flood, 1_000_000..1_050_000);
    assert_eq!(cache.len_of(&quiet), 1_000, "an entry of the protected tenant was evicted");
    assert!(cache.len_of(&flood) > 1_500);
}

#[test]
fn without_limits_idle_memory_is_borrowed_and_shared_by_use() {
    let budget = ByteSize::mib(1);
    let cache = patient_cache_of(budget);
    let runtime = cache.runtime().clone();
    let (idle, busy) = (runtime.group("idle").unwrap(), runtime.group("busy").unwrap());
    fill(&cache, &idle, 0..3_000);
    let all = cache.len_of(&idle);
    assert!(all * (400 + entry_bytes()) > budget.get() * 3 / 5, "one tenant alone has nearly all: {all}");
    // The busy tenant requests the same keys again and again.
    for _ in 0..20 {
        for key in 1_000_000..1_000_000 + all * 9 / 10 {
            if cache.get(&key).is_none() {
                fill(&cache, &busy, key..key + 1);
            }
        }
    }
    assert!(cache.len_of(&busy) > all * 8 / 10, "the busy tenant got the idle tenant's bytes: {}", cache.len_of(&busy));
    assert!(cache.len_of(&idle) < all / 4, "{} of {all}", cache.len_of(&idle));
}

/// Returns the percentage of all entries that belong to the second of two tenants in the end. The
/// first one has all memory at the beginning. In each round each tenant requests one key, uniformly
/// distributed over as many keys as its number in `keys`.
fn part_of_the_second(cache: &SeededCache, keys: [u64; 2], is_first_to_ask: bool) -> u64 {
    // The mean of the last third, as some of the 2,100 entries move back and forth.
    let parts = parts_of_the_second(cache, keys, is_first_to_ask, 24_000);
    parts[16..].iter().sum::<u64>() / 8
}

/// The same percentage, after each 1,000 rounds.
fn parts_of_the_second(cache: &SeededCache, keys: [u64; 2], is_first_to_ask: bool, rounds: u64) -> Vec<u64> {
    let groups = ["first", "second"].map(|name| cache.runtime().group(name).unwrap());
    fill(cache, &groups[0], 0..2_000);
    let (mut random, mut parts) = (1_u64, Vec::new());
    for round in 1..=rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wanted = [(random >> 33) % keys[0], SECONDS + (random >> 40) % keys[1]];
        for who in if is_first_to_ask { [1, 0] } else { [0, 1] } {
            if cache.get(&wanted[who]).is_none() {
                fill(cache, &groups[who], wanted[who]..wanted[who] + 1);
            }
        }
        if round % 1_000 == 0 {
            parts.push(100 * cache.len_of(&groups[1]) / cache.len() as u64);
        }
    }
    parts
}

/// The first key of the second tenant.
const SECONDS: u64 = 1_000_000;

/// Memory goes to the tenant of higher utility, whatever the initial distribution and the order of
/// requests are. (The order decides which tenant the processor's stock belongs to.) The budget has
/// room for 2,100 entries.
#[test]
fn memory_moves_to_the_tenant_of_higher_utility() {
    for (keys, expected) in [([20_000, 3_000], 70..=100), ([3_000, 20_000], 0..=30), ([3_000, 3_000], 40..=60)] {
        for is_first_to_ask in [false, true] {
            let part = on_one_processor(|| part_of_the_second(&seeded_cache(ByteSize::mib(1)), keys, is_first_to_ask));
            assert!(expected.contains(&part), "{part} per cent; {keys:?}, {is_first_to_ask}");
        }
    }
}

/// With two equal tenants neither takes memory from the other permanently. They become equal after
/// about as many rounds as there are entries, as evicted keys must be requested again first.
#[test]
fn shares_of_equal_tenants_stay_stable() {
    for is_first_to_ask in [false, true] {
        let parts = on_one_processor(|| {
            parts_of_the_second(&seeded_cache(ByteSize::mib(1)), [3_000, 3_000], is_first_to_ask, 72_000)
        });
        let at_rest = &parts[24..];
        // A few ghost hits more or less move some of the 2,100 entries.
        assert!(at_rest.iter().all(|part| (35..=65).contains(part)), "{parts:?}");
        let apart = at_rest.iter().filter(|part| !(40..=60).contains(*part)).count();
        assert!(apart * 10 <= at_rest.len(), "{apart} of {parts:?}");
        let mean = at_rest.iter().sum::<u64>() / at_rest.len() as u64;
        assert!((45..=55).contains(&mean), "{mean}: {parts:?}");
    }
}

/// Both tenants have 5,000 keys; one tenant's values cost eight times as much to recreate.
#[test]
fn memory_moves_to_the_tenant_with_higher_miss_costs() {
    for dear in [0, 1] {
        let runtime = cache_without_reclaimer(ByteSize::mib(1)).runtime().clone();
        let cache = crate::Cache::<u64, Vec<u8>>::builder(&runtime)
            .hasher(Seeded(1))
            .weigher(|_, v| ByteSize::new(v.capacity() as u64))
            .recreation_cost(move |key, _| if u64::from(*key >= SECONDS) == dear { 800 } else { 100 })
            .build()
            .unwrap();
        let part = part_of_the_second(&cache, [5_000, 5_000], false);
        assert!(if dear == 1 { part >= 75 } else { part <= 25 }, "{part} per cent, {dear}");
    }
}

fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

/// One tenant inserts a session per round, reads one of the last 300, and removes the one that is
/// 300 rounds old; the other requests more keys than fit. If the removals of the first tenant did
/// not offset its inserts, it would lose sessions that it still reads.
#[test]
fn removals_count_for_their_own_tenant() {
    on_one_processor(|| {
        const LIVES: u64 = 300;
        let cache = seeded_cache(ByteSize::mib(1));
        let [sessions, pages] = ["sessions", "pages"].map(|name| cache.runtime().group(name).unwrap());
        let (mut random, mut hits) = (1, 0);
        for round in LIVES..20_000 {
            fill(&cache, &sessions, round..round + 1);
            cache.remove(&(round - LIVES));
            let session = round - next(&mut random) % LIVES;
            match cache.get(&session) {
                Some(_) => hits += 1,
                None => fill(&cache, &sessions, session..session + 1),
            }
            let page = SECONDS + next(&mut random) % 3_000;
            if cache.get(&page).is_none() {
                fill(&cache, &pages, page..page + 1);
            }
        }
        assert!(hits * 100 >= (20_000 - LIVES) * 90, "{hits} hits");
    });
}

/// Both tenants request alike, but the first inserts an empty value before each value. If the
/// growth of an overwritten value did not count, the first would get memory at the other's cost.
#[test]
fn replaced_values_that_grow_are_charged() {
    on_one_processor(|| {
        let cache = seeded_cache(ByteSize::mib(2));
        let groups = ["first", "second"].map(|name| cache.runtime().group(name).unwrap());
        let (mut random, mut hits) = (1, [0_u64; 2]);
        for _ in 0..40_000 {
            for who in [0, 1] {
                let key = who as u64 * SECONDS + next(&mut random) % 8_000;
                if cache.get(&key).is_some() {
                    hits[who] += 1;
                    continue;
                }
                if who == 0 {
                    cache.entry(key).group(&groups[0]).insert(Vec::new()).unwrap();
                }
                fill(&cache, &groups[who], key..key + 1);
            }
        }
        // Measured: 1.11 times as many hits for the first; 1.07 to 1.12 with other seeds.
        assert!(hits[0] * 4 < hits[1] * 5 && hits[1] * 4 < hits[0] * 5, "{hits:?}");
    });
}

/// The cost function runs without a lock, once for each inserted value. A panic in it affects only
/// this insert.
#[test]
fn a_panicking_cost_function_inserts_nothing() {
    let runtime = patient_cache_of(ByteSize::mib(1)).runtime().clone();
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = std::sync::Arc::clone(&asked);
    let cache = crate::Cache::<u64, Vec<u8>>::builder(&runtime)
        .weigher(|_, v| ByteSize::new(v.capacity() as u64))
        .recreation_cost(move |key, _| {
            assert!(*key != 7, "its own fault");
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        })
        .build()
        .unwrap();
    fill(&cache, runtime.root(), 0..7);
    let used = || {
        runtime.tree().drain_stock();
        runtime.root().usage()
    };
    let before = used();
    let put = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.insert(7, vec![0; 400])));
    assert!(put.is_err() && cache.get(&7).is_none() && cache.len() == 7);
    assert_eq!(used(), before, "nothing stays charged");
    fill(&cache, runtime.root(), 8..10);
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 9);
}

/// The tenants do not miss on their evicted keys, so memory is useless to all of them: the largest
/// is the victim, and the small ones keep their entries.
#[test]
fn of_tenants_without_utility_the_largest_is_the_victim() {
    for order in [Eviction::Adaptive, Eviction::Lru, Eviction::Sieve] {
        let runtime = patient_cache_of(ByteSize::mib(2)).runtime().clone();
        let weigh = |_: &u64, v: &Vec<u8>| ByteSize::new(v.capacity() as u64);
        let cache = crate::Cache::<u64, Vec<u8>>::builder(&runtime).eviction(order).weigher(weigh).build().unwrap();
        let groups: Vec<_> = (0..12).map(|n| runtime.group(&format!("t{n}")).unwrap()).collect();
        let (large, small, newcomer) = (&groups[0], &groups[1..11], &groups[11]);
        small.iter().zip(0..).for_each(|(group, n)| fill(&cache, group, n * 60..n * 60 + 60));
        fill(&cache, large, 10_000..13_000);
        let had = cache.len_of(large);
        fill(&cache, newcomer, 20_000..22_500);
        let of_small = small.iter().map(|group| cache.len_of(group)).sum::<u64>();
        let (of_large, of_newcomer) = (cache.len_of(large), cache.len_of(newcomer));
        assert!(of_small > 550, "{of_small} of 600, {order:?}");
        assert!(of_large < had * 2 / 3 && of_newcomer > had / 3, "{of_large} of {had}, and {of_newcomer}, {order:?}");
    }
}

#[test]
fn a_tenant_at_its_max_evicts_its_own_entries() {
    let cache = patient_cache_of(ByteSize::mib(2));
    let runtime = cache.runtime().clone();
    let (small, other) = (runtime.group("small").unwrap(), runtime.group("other").unwrap());
    small.set_max(ByteSize::kib(128));
    fill(&cache, &other, 0..1_000);
    fill(&cache, &small, 1_000_000..1_010_000);
    assert!(small.usage() <= ByteSize::kib(128));
    assert_eq!(cache.len_of(&other), 1_000, "the neighbour is not touched");
}

#[test]
fn entries_of_an_ended_tenant_join_its_parent() {
    let cache = patient_cache_of(ByteSize::mib(1));
    let runtime = cache.runtime().clone();
    let tenant = runtime.group("t").unwrap();
    fill(&cache, &tenant, 0..100);
    runtime.end_group(&tenant).unwrap();
    assert!(cache.get(&50).is_some());
    assert_eq!((cache.len_of(&tenant), cache.len_of(runtime.root())), (0, 100));
    let id = tenant.id();
    drop(tenant);
    cache.clear();
    runtime.tree().drain_stock();
    assert!(runtime.tree().get(id).is_none(), "the id is in use after the last entry");
    assert_eq!(runtime.root().usage(), ByteSize::ZERO);
    assert!(runtime.group("t").unwrap().is_online(), "the name can be used again");
}

/// Each of 1,000 tenants has room for two entries: an insert always finds a victim, and this victim
/// is never the entry that was just inserted.
#[test]
fn beside_a_thousand_small_tenants_a_new_entry_stays() {
    let cache = cache_without_reclaimer(ByteSize::mib(1));
    let runtime = cache.runtime().clone();
    let tenants: Vec<_> = (0..1_000).map(|i| runtime.group(&format!("t{i}")).unwrap()).collect();
    for round in 0..20_u64 {
        for (i, tenant) in tenants.iter().enumerate() {
            let key = round * 1_000 + i as u64;
            cache.entry(key).group(tenant).insert(vec![0; 400]).unwrap();
            assert!(cache.contains_key(&key));
        }
    }
}

/// Returns the hit rates, in per cent, of hot and of quiet tenants in the last eighth of the
/// rounds, with or without a tenant that scans with every second request; and the scanner's entries
/// at the end. Of 100 tenants two are hot, with nine requests in ten; small keys are more frequent
/// than large ones.
fn hits_of_the_quiet(scan: bool) -> (f64, f64, u64) {
    const KEYS: u64 = 1_000;
    let runtime = Runtime::builder()
        .budget(ByteSize::new(20_000 * (entry_bytes() + 8)))
        .topology(std::sync::Arc::new(crate::topology::Fixed::new(1)))
        .direct_time_max(Duration::from_secs(60))
        .build()
        .unwrap();
    let cache = crate::Cache::<u64, Vec<u8>>::builder(&runtime)
        .hasher(Seeded(1))
        .weigher(|_, v| ByteSize::new(v.capacity() as u64))
        .build()
        .unwrap();
    let tenants: Vec<_> = (0..=100).map(|i| runtime.group(&format!("t{i}")).unwrap()).collect();
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let ask = |tenant: usize, key: u64| {
        let key = tenant as u64 * 1_000_000_000 + key;
        let hit = cache.get(&key).is_some();
        if !hit {
            cache.entry(key).group(&tenants[tenant]).insert(vec![0; 8]).unwrap();
        }
        u64::from(hit)
    };
    let (mut hot, mut quiet) = ((0, 0), (0, 0));
    for round in 0..800_000 {
        if scan {
            ask(100, round);
        }
        let (tenant, tally) = if next(10) > 0 { (next(2), &mut hot) } else { (2 + next(98), &mut quiet) };
        // A product of two random fractions: small keys are more frequent.
        let key = next(KEYS) * next(KEYS) / KEYS;
        let hit = ask(tenant as usize, key);
        if round > 700_000 {
            *tally = (tally.0 + hit, tally.1 + 1);
        }
    }
    let percent = |(hits, all): (u64, u64)| 100.0 * hits as f64 / all as f64;
    (percent(hot), percent(quiet), cache.len_of(&tenants[100]))
}

#[test]
fn a_scanning_tenant_costs_the_others_no_hits() {
    let (hot, quiet, _) = on_one_processor(|| hits_of_the_quiet(false));
    let (hot_beside, quiet_beside, held) = on_one_processor(|| hits_of_the_quiet(true));
    assert!(hot > 99.5 && hot_beside > 99.5, "hit rates of the hot tenants: {hot}, {hot_beside}");
    assert!((20.0..80.0).contains(&quiet), "{quiet}");
    assert!(quiet_beside > quiet - 3.0, "{quiet_beside} beside a scan, {quiet} without");
    // The scanner fills the memory that the reclaimer frees in advance, until the next reclaim.
    assert!(held < 20_000 / 10, "the scanner has {held} of 20,000");
}

#[test]
fn an_insert_into_a_full_cache_evicts_at_most_16() {
    let runtime = Runtime::builder()
        .budget(ByteSize::mib(2))
        .topology(std::sync::Arc::new(crate::topology::Fixed::new(1)))
        .direct_time_max(Duration::from_secs(60))
        .build()
        .unwrap();
    let here = std::thread::current().id();
    let gone = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let by_others = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (theirs, others) = (std::sync::Arc::clone(&gone), std::sync::Arc::clone(&by_others));
    let cache = crate::Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::new(100))
        .eviction_listener(move |_, _, _| {
            let is_here = std::thread::current().id() == here;
            if is_here { &theirs } else { &others }.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        })
        .build()
        .unwrap();
    let tenants: Vec<_> = (0..10).map(|i| runtime.group(&format!("t{i}")).unwrap()).collect();
    let mut total = 0;
    for key in 0..60_000_u64 {
        // A third of the requests repeat older keys, so that some are ghost hits.
        let (key, tenant) = (if key % 3 == 0 { key / 3 % 15_000 } else { key }, &tenants[(key * key % 10) as usize]);
        cache.entry(key).group(tenant).insert(key).unwrap();
        let now = gone.swap(0, std::sync::atomic::Ordering::Relaxed);
        assert!(now <= 16 + 1, "key {key}: {now}, including the replaced entry");
        total += now;
    }
    total += by_others.load(std::sync::atomic::Ordering::Relaxed);
    assert!(total > 20_000, "the cache was not full: {total}");
}

/// Stock is charged, but no entry uses it, and each processor may have one. So near a limit a stock
/// is at most a 64th (`STOCK_PARTS` of `charge.rs`) of the smallest limit of the group and its
/// ancestors.
#[test]
fn a_stock_near_a_limit_is_small_for_each_group_above() {
    let limit = ByteSize::kib(128);
    let set: [fn(&Memcg, ByteSize); 2] = [Memcg::set_max, Memcg::set_high];
    for (set, name) in set.into_iter().zip(["max", "high"]) {
        for above in [true, false] {
            let runtime = Runtime::builder().budget(ByteSize::mib(64)).build().unwrap();
            let cache = crate::Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::kib(1)).build().unwrap();
            let parent = runtime.group("parent").unwrap();
            let child = parent.create("child").unwrap();
            set(if above { &parent } else { &child }, limit);
            // Protected, so that the reclaimer evicts nothing: uncharged bytes would go into the
            // stock.
            for group in [&parent, &child] {
                group.set_min(limit);
            }
            let filled = ByteSize::kib(100);
            child.try_charge_exactly(filled).map(drop).unwrap();
            on_one_processor(|| {
                // The second charge in a row takes a stock.
                for key in 0..2 {
                    assert_eq!(cache.room(&child, ByteSize::kib(1)), Room::Near);
                    cache.entry(key).group(&child).insert(key).unwrap();
                }
                let stock = child.in_stock().get();
                assert!((1..=limit.get() / 64).contains(&stock), "{name}, of the parent: {above}: {stock} bytes");
            });
            child.uncharge(filled);
        }
    }
}

/// If two groups, one below the other, are nearly full, the lower one is the victim.
#[test]
fn the_nearest_full_group_is_the_victim() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = crate::Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let group = runtime.group("tenant").unwrap();
    group.set_max(ByteSize::mib(1));
    assert_eq!(cache.room(&group, ByteSize::kib(1)), Room::Ample);
    let _charged = group.try_charge_exactly(ByteSize::kib(1020)).unwrap();
    assert_eq!(cache.room(&group, ByteSize::kib(1)), Room::Short(&group));
    group.set_max(ByteSize::MAX);
    // Usage may reach `high` without exceeding it.
    runtime.set_budget(ByteSize::mib(64));
    group.set_high(ByteSize::kib(1021));
    assert_eq!(cache.room(&group, ByteSize::kib(1)), Room::Near);
    assert_eq!(cache.room(&group, ByteSize::new(1025)), Room::Short(&group));
    group.set_high(ByteSize::MAX);
    runtime.set_budget(ByteSize::mib(1));
    assert_eq!(cache.room(&group, ByteSize::kib(1)), Room::Short(runtime.root()));
    group.uncharge(ByteSize::kib(1020));
}

/// Returns the hash of the ghost for which an insert of a key of hash 7 looks.
fn sought_by(cache: &crate::Cache<u64, Vec<u8>>, group: &Memcg) -> u64 {
    let queues = &cache.inner.core.queues;
    let tenant = queues.find_tenant(group).expect("its page was allocated at the first eviction");
    queues.sought_ghost(7, group, tenant).expect("it does not scan").hash
}

#[test]
fn a_group_does_not_match_the_ghosts_of_an_ended_one_of_its_id() {
    let cache = patient_cache_of(ByteSize::kib(256));
    let runtime = cache.runtime().clone();
    let group = runtime.group("a").unwrap();
    fill(&cache, &group, 0..700);
    let (id, sought) = (group.id(), sought_by(&cache, &group));
    runtime.end_group(&group).unwrap();
    drop(group);
    // The id stays in use while one of the entries is there, or a reader may see it.
    cache.retain(|_, _| false);
    eventually(Duration::from_secs(60), "the id is free", || {
        runtime.tree().drain_stock();
        lowwater_rcu::flush();
        let next = runtime.group("b").unwrap();
        let is_reused = next.id() == id;
        assert!(!is_reused || sought_by(&cache, &next) != sought);
        runtime.end_group(&next).is_ok() && is_reused
    });
}

#[test]
fn a_cache_does_not_match_the_ghosts_of_an_ended_one_of_its_id() {
    let runtime = patient_cache_of(ByteSize::kib(256)).runtime().clone();
    let mut sought = Vec::new();
    for _ in 0..2 {
        let builder = crate::Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, v| ByteSize::new(v.len() as u64));
        let cache = builder.build().unwrap();
        fill(&cache, runtime.root(), 0..700);
        sought.push(sought_by(&cache, runtime.root()));
        cache.clear();
        sought.push(sought_by(&cache, runtime.root()));
    }
    sought.sort_unstable();
    sought.dedup();
    assert_eq!(sought.len(), 4);
}

/// Returns the binary logarithm of the ticks, in evictions, by which the ghosts of a group are
/// dated, below a budget of 64 GiB. `limit` sets limits of the group and of its parent.
fn ticks_below(limit: impl Fn(&Memcg, &Memcg)) -> u32 {
    let runtime =
        Runtime::builder().budget(ByteSize::gib(64)).direct_time_max(Duration::from_secs(60)).build().unwrap();
    let parent = runtime.group("parent").unwrap();
    let group = runtime.group("parent/group").unwrap();
    limit(&group, &parent);
    let cache = crate::Cache::<u64, u64>::builder(&runtime).group(&group);
    let cache = cache.weigher(|_, _| ByteSize::new(100)).build().unwrap();
    (0..1_000).for_each(|key| assert!(cache.insert(key, 0).is_ok()));
    while cache.stats().evictions == 0 {
        runtime.reclaim(&group, ByteSize::kib(1));
    }
    cache.inner.core.queues.tenants.get(&group).expect("it has evicted").shift()
}

/// The mean charge is that of evicted entries, which may have been larger than the present ones.
#[test]
fn the_estimated_charge_of_a_groups_entries_is_at_most_its_usage() {
    let runtime = Runtime::builder().unlimited().build().unwrap();
    let cache = crate::Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::new(100)).build().unwrap();
    let group = runtime.group("group").unwrap();
    (0..1_000).for_each(|key| assert!(cache.entry(key).group(&group).insert(0).is_ok()));
    let queues = &cache.inner.core.queues;
    queues.tenants.of(&group).expect("there is memory").note_evicted(8, 8 << 20);
    assert_eq!(queues.weigh(&group, 10), group.usage());
    assert_eq!(queues.weigh(&group, 0), ByteSize::ZERO);
}

/// The mean charge of evicted entries is that of the small ones.
#[test]
fn a_cache_without_tenants_weighs_large_entries_that_stay_beside_small_ones() {
    let runtime = without_reclaimer(ByteSize::mib(16)).build().unwrap();
    let cache = crate::Cache::<u64, u64>::builder(&runtime).weigher(|_, bytes| ByteSize::new(*bytes)).build().unwrap();
    for key in 0..100_000 {
        cache.insert(100 + key, 100).unwrap();
        let large = key % 12;
        if cache.get(&large).is_none() {
            cache.insert(large, 1 << 20).unwrap();
        }
    }
    let (group, node) = (cache.group(), lowwater_lru_core::NodeId::ZERO);
    let (bytes, usage) = (cache.inner.core.weigh(group, node), group.usage());
    assert!(cache.stats().evictions > 10_000 && bytes >= usage / 2 && bytes <= usage, "{bytes} of {usage}");
    assert_eq!(cache.inner.core.weigh(&runtime.group("other").unwrap(), node), ByteSize::ZERO);
}

/// In parts of a large budget, all ages in a small group would be 0.
#[test]
fn the_ages_of_a_groups_ghosts_are_dated_by_its_own_room() {
    let small = ByteSize::kib(256);
    assert_eq!(ticks_below(|group, _| group.set_max(small)), 0);
    assert_eq!(ticks_below(|_, parent| parent.set_max(small)), 0);
    assert_eq!(ticks_below(|group, _| group.set_high(small)), 0);
    assert_eq!(ticks_below(|_, parent| parent.set_high(small)), 0);
    assert!(ticks_below(|_, _| ()) > 8);
}

#[test]
fn an_evicted_value_that_a_reader_holds_counts_with_all_its_bytes() {
    for is_held in [false, true] {
        let runtime = without_reclaimer(ByteSize::mib(64)).build().unwrap();
        let cache = Cache::<u64, Charged<[u8; 64]>>::builder(&runtime).weigher(|_, _| ByteSize::kib(4));
        let cache = cache.charge_held_values().build().unwrap();
        (0..1_000).for_each(|key| drop(cache.insert(key, [0; 64].into()).unwrap()));
        let held: Vec<_> = (0..if is_held { 1_000 } else { 0 }).map(|key| cache.get(&key)).collect();
        while cache.len() > 500 {
            cache.inner.core.evict(runtime.root(), NodeId::ZERO, 64);
        }
        let tenant = cache.inner.core.queues.find_tenant(runtime.root()).unwrap();
        assert_eq!(tenant.mean_charge().map(|bytes| bytes >> 10), Some(4), "held: {is_held}");
        drop(held);
    }
}
