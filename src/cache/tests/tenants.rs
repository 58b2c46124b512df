//! Tenants: who pays, who is protected, who borrows.

use super::{cache_of, entry_bytes};
use crate::cache::Eviction;
use crate::{ByteSize, Memcg, Runtime};

fn fill(cache: &crate::Cache<u64, Vec<u8>>, group: &Memcg, keys: std::ops::Range<u64>) {
    for key in keys {
        cache.entry(key).group(group).insert(vec![0; 400]).expect("there is always somebody who can give");
    }
}

#[test]
fn a_tenant_that_floods_does_not_take_what_low_protects() {
    let cache = cache_of(ByteSize::mib(2));
    let runtime = cache.runtime().clone();
    let (quiet, flood) = (runtime.group("quiet").unwrap(), runtime.group("flood").unwrap());
    quiet.set_low(ByteSize::kib(600));
    fill(&cache, &quiet, 0..1_000);
    let before = quiet.usage();
    assert!(before <= ByteSize::kib(600));
    fill(&cache, &flood, 1_000_000..1_050_000);
    assert_eq!(cache.len_of(&quiet), 1_000, "not one entry of the protected tenant is gone");
    assert!(cache.len_of(&flood) > 1_500);
}

#[test]
fn without_limits_idle_memory_is_borrowed_and_shared_by_use() {
    let budget = ByteSize::mib(1);
    let cache = cache_of(budget);
    let runtime = cache.runtime().clone();
    let (idle, busy) = (runtime.group("idle").unwrap(), runtime.group("busy").unwrap());
    fill(&cache, &idle, 0..3_000);
    let all = cache.len_of(&idle);
    assert!(all * (400 + entry_bytes()) > budget.get() * 3 / 5, "one tenant alone has nearly all: {all}");
    // It asks for the same keys again and again.
    for _ in 0..20 {
        for key in 1_000_000..1_000_000 + all * 9 / 10 {
            if cache.get(&key).is_none() {
                fill(&cache, &busy, key..key + 1);
            }
        }
    }
    assert!(cache.len_of(&busy) > all * 8 / 10, "the busy tenant has what the idle one had: {}", cache.len_of(&busy));
    assert!(cache.len_of(&idle) < all / 4, "{} of {all}", cache.len_of(&idle));
}

/// The part of all entries, in per cent, that the second of two tenants comes to have beside one that had everything. Both ask for one key in each round,
/// of so many, each as often as any other.
fn part_of_the_second(cache: &crate::Cache<u64, Vec<u8>>, keys: [u64; 2], is_first_to_ask: bool) -> u64 {
    // The mean of the last third: there are 2,100 entries, and some of them move to and fro.
    let parts = parts_of_the_second(cache, keys, is_first_to_ask, 24_000);
    parts[16..].iter().sum::<u64>() / 8
}

/// The same, after each 1,000 rounds of so many.
fn parts_of_the_second(
    cache: &crate::Cache<u64, Vec<u8>>,
    keys: [u64; 2],
    is_first_to_ask: bool,
    rounds: u64,
) -> Vec<u64> {
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

/// Keys of the second tenant begin here.
const SECONDS: u64 = 1_000_000;

/// The memory before, the order of requests and the owner of the processor's stock make no difference. The budget has room for 2,100 entries.
#[test]
fn memory_moves_to_the_tenant_to_whom_an_entry_more_brings_more_hits() {
    for (keys, expected) in [([20_000, 3_000], 70..=100), ([3_000, 20_000], 0..=30), ([3_000, 3_000], 40..=60)] {
        for is_first_to_ask in [false, true] {
            let part = part_of_the_second(&cache_of(ByteSize::mib(1)), keys, is_first_to_ask);
            assert!(expected.contains(&part), "{part} per cent; {keys:?}, {is_first_to_ask}");
        }
    }
}

/// Of two alike none takes anything from the other for good, and it takes as many rounds as there are entries to become even: some keys have
/// to come back for it.
#[test]
fn memory_comes_to_rest_and_does_not_go_to_and_fro() {
    for is_first_to_ask in [false, true] {
        let parts = parts_of_the_second(&cache_of(ByteSize::mib(1)), [3_000, 3_000], is_first_to_ask, 72_000);
        let at_rest = &parts[24..];
        // There are 2,100 entries, so a few ghosts more or less move some of them.
        assert!(at_rest.iter().all(|part| (35..=65).contains(part)), "{parts:?}");
        let apart = at_rest.iter().filter(|part| !(40..=60).contains(*part)).count();
        assert!(apart * 10 <= at_rest.len(), "{apart} of {parts:?}");
        let mean = at_rest.iter().sum::<u64>() / at_rest.len() as u64;
        assert!((45..=55).contains(&mean), "{mean}: {parts:?}");
    }
}

/// Both have 5,000 keys; what the one has to make again costs eight times as much.
#[test]
fn memory_moves_to_the_tenant_whose_values_cost_more_to_make_again() {
    for dear in [0, 1] {
        let runtime = cache_of(ByteSize::mib(1)).runtime().clone();
        let cache = crate::Cache::<u64, Vec<u8>>::builder(&runtime)
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

/// One puts in a session a round, reads those of the last 300 rounds, and takes out what is older; another wants more than there is room for.
#[test]
fn who_takes_out_what_he_put_in_owes_nothing() {
    const LIVES: u64 = 300;
    let cache = cache_of(ByteSize::mib(1));
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
}

/// Both ask alike; the one puts in an empty value before the value.
#[test]
fn values_that_grow_are_paid_for() {
    let cache = cache_of(ByteSize::mib(2));
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
    assert!(hits[0] * 4 < hits[1] * 5 && hits[1] * 4 < hits[0] * 5, "{hits:?}");
}

/// A cost is asked without a lock, once for each value that is put in; one that panics harms nobody else.
#[test]
fn a_cost_that_panics_puts_nothing_in() {
    let runtime = cache_of(ByteSize::mib(1)).runtime().clone();
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

/// Nobody asks again for what it had to let go, so memory earns none of them anything: the largest pays, and the small ones keep what
/// they have.
#[test]
fn of_tenants_to_which_memory_earns_nothing_the_largest_pays() {
    for order in [Eviction::Adaptive, Eviction::Lru, Eviction::Sieve] {
        let runtime = cache_of(ByteSize::mib(2)).runtime().clone();
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
fn a_tenants_own_max_is_paid_by_itself() {
    let cache = cache_of(ByteSize::mib(2));
    let runtime = cache.runtime().clone();
    let (small, other) = (runtime.group("small").unwrap(), runtime.group("other").unwrap());
    small.set_max(ByteSize::kib(128));
    fill(&cache, &other, 0..1_000);
    fill(&cache, &small, 1_000_000..1_010_000);
    assert!(small.usage() <= ByteSize::kib(128));
    assert_eq!(cache.len_of(&other), 1_000, "the neighbour is not touched");
}

#[test]
fn a_tenant_that_ends_leaves_its_entries_to_its_parent() {
    let cache = cache_of(ByteSize::mib(1));
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
    assert!(runtime.tree().get(id).is_none(), "the id came back with the last entry");
    assert_eq!(runtime.root().usage(), ByteSize::ZERO);
    assert!(runtime.group("t").unwrap().is_online(), "the name can be used again");
}

#[test]
fn many_small_tenants_all_give_and_the_youngest_is_there() {
    let cache = cache_of(ByteSize::mib(1));
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

/// What share of their requests the quiet tenants' keys answered, while one tenant scans with every second request, or not at all.
/// Of 100 tenants two are hot, with nine requests in ten; the others' keys are used the less the higher they are. And how many entries the
/// scanner has at the end.
fn hits_of_the_quiet(scan: bool) -> (f64, f64, u64) {
    const KEYS: u64 = 1_000;
    let runtime = Runtime::builder()
        .budget(ByteSize::new(20_000 * (entry_bytes() + 8)))
        .topology(std::sync::Arc::new(crate::topology::Fixed::new(1)))
        .build()
        .unwrap();
    let cache = crate::Cache::<u64, Vec<u8>>::builder(&runtime)
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
        // The square of a fraction: small keys more often.
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
fn a_tenant_that_scans_costs_the_others_nothing() {
    let (hot, quiet, _) = hits_of_the_quiet(false);
    let (hot_beside, quiet_beside, held) = hits_of_the_quiet(true);
    assert!(hot > 99.5 && hot_beside > 99.5, "the hot ones keep all they have: {hot}, {hot_beside}");
    assert!((20.0..80.0).contains(&quiet), "{quiet}");
    assert!(quiet_beside > quiet - 3.0, "{quiet_beside} beside a scan, {quiet} without");
    // What the background leaves free for it until the next time.
    assert!(held < 20_000 / 10, "the scanner has {held} of 20,000");
}

#[test]
fn an_insert_into_a_full_cache_lets_go_of_16_at_most() {
    let runtime = Runtime::builder()
        .budget(ByteSize::mib(2))
        .topology(std::sync::Arc::new(crate::topology::Fixed::new(1)))
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
        // A third of them again, so that keys come back as well.
        let (key, tenant) = (if key % 3 == 0 { key / 3 % 15_000 } else { key }, &tenants[(key * key % 10) as usize]);
        cache.entry(key).group(tenant).insert(key).unwrap();
        let now = gone.swap(0, std::sync::atomic::Ordering::Relaxed);
        assert!(now <= 16 + 1, "key {key}: {now}, that which it replaced included");
        total += now;
    }
    total += by_others.load(std::sync::atomic::Ordering::Relaxed);
    assert!(total > 20_000, "it was full: {total}");
}

/// Of two groups whose memory is nearly used up, one above the other, the nearer one pays.
#[test]
fn the_nearest_group_without_room_is_the_one_to_pay() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = crate::Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let group = runtime.group("tenant").unwrap();
    group.set_max(ByteSize::mib(1));
    assert_eq!(cache.short(&group, ByteSize::kib(1)), None, "there is room");
    let _charged = group.try_charge_exactly(ByteSize::kib(1020)).unwrap();
    assert_eq!(cache.short(&group, ByteSize::kib(1)), Some(&group));
    group.set_max(ByteSize::MAX);
    // `high` itself may be reached.
    runtime.set_budget(ByteSize::mib(64));
    group.set_high(ByteSize::kib(1021));
    assert_eq!(cache.short(&group, ByteSize::kib(1)), None);
    assert_eq!(cache.short(&group, ByteSize::new(1025)), Some(&group));
    group.set_high(ByteSize::MAX);
    runtime.set_budget(ByteSize::mib(1));
    assert_eq!(cache.short(&group, ByteSize::kib(1)), Some(runtime.root()));
    group.uncharge(ByteSize::kib(1020));
}
