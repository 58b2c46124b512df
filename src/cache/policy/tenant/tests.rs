//! The statistics of a tenant after evictions, inserts, ghost hits and walks.
//!
//! The thresholds are written out, so a change of one needs a reason here.

use super::*;

impl Tenant {
    /// Counts the eviction of one key, of this hash. Returns the ghost to insert, if any.
    fn on_evict(&self, hash: u64, queue: Queue, entries: u64, reach: u64) -> Option<Ghost> {
        self.on_evictions(1, queue, entries, reach).ghost(0, hash)
    }
}

/// A hash in the sample of hashes that have ghosts even while the tenant scans.
const HASH: u64 = 0;

fn evict(tenant: &Tenant, queue: Queue, entries: u64) -> Ghost {
    tenant.on_evict(HASH, queue, entries, 0).expect("the tenant does not scan")
}

/// A walk that visits and evicts one record, of this number of uses, of a tenant with 100 records
/// on probation and 900 in main.
fn walk(queue: Queue, uses: u64) -> QueueWalk {
    QueueWalk { queue, visited: 1, evicted: 1, uses, probation: 100, main: 900 }
}

#[test]
fn probations_share_follows_near_ghosts_within_its_bounds() {
    let tenant = Tenant::default();
    assert_eq!(tenant.probation_limit(1_000), 99);
    for _ in 0..10_000 {
        tenant.ghost_hit(evict(&tenant, Queue::Probation, 1_000), 1, true);
    }
    assert!((898..=900).contains(&tenant.probation_limit(1_000)), "{}", tenant.probation_limit(1_000));
    for _ in 0..10_000 {
        tenant.ghost_hit(evict(&tenant, Queue::Main, 1_000), 1, true);
    }
    assert!((9..=10).contains(&tenant.probation_limit(1_000)), "{}", tenant.probation_limit(1_000));
}

#[test]
fn only_near_ghosts_change_probations_share() {
    for (evictions, moves) in [(99, true), (101, false)] {
        let tenant = Tenant::default();
        let ghost = evict(&tenant, Queue::Probation, 1_000);
        (0..evictions).for_each(|_| _ = evict(&tenant, Queue::Probation, 1_000));
        tenant.ghost_hit(ghost, 1, true);
        assert_eq!(tenant.probation_limit(1_000_000) > 100_000, moves, "{evictions}");
    }
}

#[test]
fn ghosts_of_the_rarer_queue_change_the_share_more() {
    let tenant = Tenant::default();
    for n in 0..10_000 {
        let queue = if n % 10 == 0 { Queue::Main } else { Queue::Probation };
        let ghost = evict(&tenant, queue, 1_000);
        // About one in ten of the keys evicted from either queue returns.
        if n % 100 == 0 || n % 10 == 1 {
            tenant.ghost_hit(ghost, 1, true);
        }
    }
    let limit = tenant.probation_limit(1_000);
    assert!((20..=400).contains(&limit), "{limit}");
}

#[test]
fn probation_shrinks_while_its_records_are_used_less_than_those_of_main() {
    let tenant = Tenant::default();
    let limit = |uses_of_probation, uses_of_main| {
        (0..200_000).for_each(|n| {
            evict(&tenant, Queue::Probation, 1_000);
            tenant.note_walk(walk(Queue::Probation, uses_of_probation));
            if n % 10 == 0 {
                tenant.note_walk(walk(Queue::Main, uses_of_main));
            }
        });
        tenant.probation_limit(1_000)
    };
    assert_eq!(limit(1, 1), 99, "a record stays on probation for 100 evictions, and in main for 9,000");
    assert_eq!(limit(0, 1), 9, "no record is used on probation");
    assert_eq!(limit(0, 0), 9);
}

#[test]
fn a_share_that_near_ghosts_raised_wrongly_falls_again() {
    let tenant = Tenant::default();
    for _ in 0..2_000 {
        tenant.ghost_hit(evict(&tenant, Queue::Probation, 1_000), 1, true);
    }
    assert!(tenant.probation_limit(1_000) > 890);
    // No record is used on probation, and each record of main once per lap: the limit is back
    // after evictions of 40 times the tenant's records.
    for n in 0..40_000 {
        evict(&tenant, Queue::Probation, 1_000);
        let probation = tenant.probation_limit(1_000);
        tenant.note_walk(QueueWalk { probation, main: 1_000 - probation, ..walk(Queue::Probation, 0) });
        if n % 4 == 0 {
            tenant.note_walk(QueueWalk { probation, main: 1_000 - probation, ..walk(Queue::Main, 1) });
        }
    }
    assert!(tenant.probation_limit(1_000) < 100, "{}", tenant.probation_limit(1_000));
}

#[test]
fn a_walk_without_visits_changes_nothing() {
    let tenant = Tenant::default();
    for n in 0..100 {
        evict(&tenant, Queue::Probation, 1_000);
        tenant.note_walk(QueueWalk { main: 10, ..walk(Queue::Main, 1) });
        // The hand stands: a walk without visits begins no lap.
        let idle = tenant.lap.idle(n);
        tenant.note_walk(QueueWalk { visited: 0, evicted: 0, main: 10, ..walk(Queue::Main, 0) });
        assert_eq!(tenant.lap.idle(n), idle);
    }
    let (main, before) = (tenant.mean_uses[Queue::Main as usize].get(), tenant.lap.idle(1_000));
    for _ in 0..1_000 {
        tenant.note_walk(QueueWalk { visited: 0, evicted: 0, main: 0, ..walk(Queue::Main, 0) });
    }
    assert_eq!((tenant.mean_uses[Queue::Main as usize].get(), tenant.lap.idle(1_000)), (main, before));
}

#[test]
fn a_ghost_enters_main_if_it_returns_sooner_than_the_hand() {
    let tenant = Tenant::default();
    // A lap of main takes 9,000 evictions.
    for n in 0..40_000 {
        evict(&tenant, Queue::Probation, 10_000);
        if n % 10 == 0 {
            tenant.note_walk(walk(Queue::Main, 1));
        }
    }
    // Away for the evictions and up to 1,000 on probation: less than 2/3 of the lap, by the margin.
    let limit = (9_000 - 1_000 - 500) * 2 / 3;
    for (evictions, enters) in [(limit - 2_000, true), (limit + 2_000, false)] {
        let ghost = evict(&tenant, Queue::Probation, 10_000);
        for n in 0..evictions {
            evict(&tenant, Queue::Probation, 10_000);
            if n % 10 == 0 {
                tenant.note_walk(walk(Queue::Main, 1));
            }
        }
        assert_eq!(tenant.ghost_hit(ghost, 1, true).is_soon, enters, "{evictions} evictions");
    }
    let ghost = evict(&tenant, Queue::Main, 10_000);
    assert!(!tenant.ghost_hit(ghost, 1, true).is_soon, "it was not used for a lap");
}

#[test]
fn with_a_fixed_share_ghosts_count_for_one_turnover() {
    for (entries, evictions, enters) in [(1_000, 998, true), (1_000, 1_000, false), (20, 18, true), (20, 20, false)] {
        let tenant = Tenant::default();
        let ghost = evict(&tenant, Queue::Probation, entries);
        (0..evictions).for_each(|_| _ = evict(&tenant, Queue::Probation, entries));
        let hit = tenant.ghost_hit(ghost, 1, false);
        assert_eq!((hit.is_soon, hit.evictions), (enters, evictions + 1));
        assert_eq!(tenant.fraction(), FRACTION_FIRST);
    }
}

#[test]
fn a_scan_is_detected_by_its_inserts_and_may_end() {
    let tenant = Tenant::default();
    let hashes = || (0..1_600_u64).map(|n| n << 36);
    assert!(
        hashes().all(|hash| tenant.on_evict(hash, Queue::Probation, 1_000, 0).is_some()),
        "others may be the reason"
    );
    assert!(!tenant.is_scanning());
    (0..INSERTS_MIN).for_each(|_| tenant.note_insert());
    assert!(tenant.is_scanning());
    let left = hashes().filter(|&hash| tenant.on_evict(hash, Queue::Probation, 1_000, 0).is_some()).count();
    assert_eq!(left, 1_600 / SCANNING_ONE_IN as usize);
    let weights = hashes().filter_map(|hash| tenant.ghost_weight(hash));
    assert_eq!(weights.sum::<u32>(), 1_600, "those that are left stand for all");
    if let Some(ghost) = tenant.on_evict(0, Queue::Probation, 1_000, 0) {
        let is_chance = [(); 4].map(|()| tenant.ghost_hit(ghost, SCANNING_ONE_IN, true).is_chance);
        assert_eq!(is_chance, [true, false, false, false], "a single hit of a sample may be a false one");
    }
    assert!(!tenant.is_scanning());
    tenant.forget();
    assert!(!tenant.is_scanning() && tenant.is_filling());
}

/// One new key in some 8,000 finds the ghost of another.
#[test]
fn ghost_hits_are_chance_until_they_are_more_than_one_in_2048_inserts() {
    for (inserts, chance) in [(0, 1), (2_047, 1), (2_048, 2), (20_480, 11)] {
        let tenant = Tenant::default();
        let ghost = evict(&tenant, Queue::Main, 1_000);
        tenant.recent_inserts.store(inserts, Ordering::Relaxed);
        let is_chance = |_: &u32| tenant.ghost_hit(ghost, 1, true).is_chance;
        assert_eq!((0..20).take_while(is_chance).count(), chance, "{inserts} inserts");
    }
}

#[test]
fn a_tenant_without_evictions_has_no_ghosts() {
    let tenant = Tenant::default();
    let ghost = Ghost { is_main: false, time: 0 };
    let hits = [(); 3].map(|()| tenant.ghost_hit(ghost, 1, false));
    assert!(hits.iter().all(|hit| hit.is_chance && !hit.is_soon));
    assert_eq!(tenant.recent_ghost_hits.load(Ordering::Relaxed), 0);
}

#[test]
fn a_scan_of_a_large_budget_is_detected_after_half_of_it() {
    let tenant = Tenant::default();
    let replace_one = || {
        tenant.on_evict(HASH, Queue::Probation, 1_000, 20_000);
        tenant.note_insert();
    };
    (0..9_999).for_each(|_| replace_one());
    assert!(!tenant.is_scanning());
    replace_one();
    assert!(tenant.is_scanning());
}

#[test]
fn a_tenant_without_evictions_does_not_scan() {
    // After 100 evictions only 100 inserts count.
    let tenant = Tenant::default();
    (0..100).for_each(|_| _ = tenant.on_evict(HASH, Queue::Main, 1_000, 20_000));
    (0..1_000_000).for_each(|_| tenant.note_insert());
    assert!(!tenant.is_scanning(), "without evictions, an insert cannot have a ghost");
    // Only as many unmatched evictions count as entries fit in the budget, here 20,000.
    (0..1_000_000).for_each(|_| _ = tenant.on_evict(HASH, Queue::Main, 1_000, 20_000));
    (0..30_000).for_each(|_| tenant.note_insert());
    assert_eq!(tenant.recent_inserts.load(Ordering::Relaxed), 20_100);
}

#[test]
fn a_lost_update_of_the_clock_causes_no_scan() {
    let tenant = Tenant::default();
    tenant.matched_evictions.store(1, Ordering::Relaxed);
    (0..1_000).for_each(|_| tenant.note_insert());
    assert!(!tenant.is_scanning());
}

#[test]
fn the_mean_charge_follows_the_evicted_entries() {
    let tenant = Tenant::default();
    assert_eq!(tenant.mean_charge(), None);
    tenant.note_evicted(0, 0);
    tenant.note_evicted(8, 800);
    assert_eq!(tenant.mean_charge(), Some(100));
    (0..100).for_each(|_| tenant.note_evicted(8, 80_000));
    assert!(tenant.mean_charge() > Some(9_900));
    // Does not overflow.
    tenant.note_evicted(1, u64::MAX);
}

/// One entry in a hundred has 1 MiB, the others 200 bytes.
#[test]
fn the_length_of_a_tick_is_steady_among_charges_of_mixed_sizes() {
    let (tenant, mut random, mut changes) = (Tenant::default(), 1_u64, 0);
    for batch in 0..8_000 {
        let before = tenant.shift();
        let reach = (1 << 30) / tenant.mean_charge().unwrap_or(10_000);
        tenant.on_evictions(8, Queue::Probation, 3_000, reach);
        let charges = (0..8).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if random >> 32 < (1 << 32) / 100 {
                1 << 20
            } else {
                200
            }
        });
        tenant.note_evicted(8, charges.sum());
        changes += u32::from(batch >= 4_000 && tenant.shift() != before);
    }
    assert!(changes <= 2, "{changes} changes in 4,000 batches");
}

#[test]
fn a_large_tenants_ghost_clock_ticks_slower_and_stays_usable() {
    let tenant = Tenant::default();
    // The ghost is 7/2 times as many evictions old as the tenant has records; up to `GHOST_TIMES`
    // times as many, the clock does not wrap.
    let many = 1_000_000;
    evict(&tenant, Queue::Probation, many);
    let ghost = evict(&tenant, Queue::Probation, many);
    (1..7 * many / 2).for_each(|_| _ = evict(&tenant, Queue::Probation, many));
    let evictions = tenant.ghost_hit(ghost, 1, true).evictions;
    assert!(evictions.abs_diff(7 * many / 2) < many / 1_000, "{evictions}");
}

/// Counts `n` evictions from a queue of a tenant with 1,000 records. Returns the last ghost.
fn evict_times(tenant: &Tenant, queue: Queue, n: u64) -> Ghost {
    let ghosts = (0..n).map(|_| tenant.on_evict(HASH, queue, 1_000, 0).expect("the tenant does not scan"));
    ghosts.last().expect("at least one")
}

#[test]
fn near_ghosts_of_main_lower_probations_share() {
    for (evictions, moves) in [(99, true), (100, false)] {
        let tenant = Tenant::default();
        let before = tenant.probation_limit(1 << 20);
        let ghost = evict_times(&tenant, Queue::Main, 1);
        evict_times(&tenant, Queue::Main, evictions);
        tenant.ghost_hit(ghost, 1, true);
        assert_eq!(tenant.probation_limit(1 << 20) < before, moves, "{evictions}");
    }
}

#[test]
fn a_miss_distance_counts_evictions_from_both_queues() {
    // The distance is the number of evictions from the ghost's own on: 50, 200, 256. The expected
    // ones are written as those of the ghost's queue, times all, by those of that queue.
    let tenant = Tenant::default();
    let ghost = evict_times(&tenant, Queue::Probation, 1);
    evict_times(&tenant, Queue::Probation, 49);
    assert_eq!(tenant.ghost_hit(ghost, 1, true).evictions, 50);
    evict_times(&tenant, Queue::Main, 150);
    assert_eq!(tenant.ghost_hit(ghost, 1, true).evictions, 50 * 200 / 50);
    evict_times(&tenant, Queue::Probation, 56);
    // The recent evictions, 106 and 150, were halved at 256, and the distance does not change.
    assert_eq!(tenant.recent_evictions.each_ref().map(|n| n.load(Ordering::Relaxed)), [53, 75]);
    assert_eq!(tenant.ghost_hit(ghost, 1, true).evictions, 106 * 128 / 53);
}

#[test]
fn a_tick_is_as_short_as_the_oldest_ghost_allows() {
    let shift = |tenant: &Tenant, entries, reach| {
        tenant.on_evict(HASH, Queue::Main, entries, reach);
        tenant.shift()
    };
    let tenant = Tenant::default();
    assert_eq!(shift(&tenant, 0, 0), 0);
    assert_eq!(shift(&tenant, 1 << 20, 0), 8, "8 times the records in 32,768 times");
    assert_eq!(shift(&tenant, 1 << 19, 0), 8, "not back at once");
    assert_eq!(shift(&tenant, (1 << 19) - 1, 0), 6);
    assert_eq!(shift(&tenant, 1 << 18, 1 << 20), 6, "twice the reach is as much");
    assert_eq!(shift(&tenant, 0, 1 << 21), 7);
    assert_eq!(shift(&tenant, 0, u64::MAX), SHIFT_MAX);
    let tenant = Tenant::default();
    let last = (0..513).filter_map(|_| tenant.on_evict(HASH, Queue::Main, 1 << 20, 0)).last();
    let first = ticks(0, 8);
    assert_eq!(last.map(|ghost| ghost.time - first), Some(2), "512 evictions before it, 256 to the tick");
}

/// Ticks of another length have other numbers, however often the clock has gone round.
#[test]
fn a_ghost_of_another_length_of_ticks_is_no_hit() {
    for clock in [0, 1 << 12, 1 << 20, 1 << 27, u32::MAX / 2, u32::MAX] {
        for (before, after) in (0..SHIFT_MAX).map(|shift| (shift, shift + 1)) {
            let apart = ticks(clock, after).wrapping_sub(ticks(clock, before));
            assert!(apart.min(apart.wrapping_neg()) > 1 << 18, "{apart} ticks from 2^{before}, {clock}");
        }
    }
}

#[test]
fn recent_inserts_and_hits_are_halved_together() {
    let tenant = Tenant::default();
    let ghost = evict_times(&tenant, Queue::Main, 1);
    tenant.note_insert();
    tenant.ghost_hit(ghost, 100, true);
    let recent = || [&tenant.recent_inserts, &tenant.recent_ghost_hits].map(|n| n.load(Ordering::Relaxed));
    for _ in 1..256 {
        evict_times(&tenant, Queue::Main, 1);
        tenant.note_insert();
    }
    assert_eq!(recent(), [256, 100]);
    evict_times(&tenant, Queue::Main, 1);
    tenant.note_insert();
    assert_eq!(recent(), [128, 50]);
    tenant.note_insert();
    assert_eq!(recent(), [128, 50], "one for each eviction");
}

#[test]
fn a_tenant_scans_when_fewer_than_one_insert_in_512_has_a_ghost() {
    let tenant = Tenant::default();
    tenant.recent_inserts.store(1_024, Ordering::Relaxed);
    for (hits, scans) in [(0, true), (1, true), (2, false)] {
        tenant.recent_ghost_hits.store(hits, Ordering::Relaxed);
        assert_eq!(tenant.is_scanning(), scans, "{hits} of 1,024");
    }
}

#[test]
fn sieve_laps_are_kept_for_each_node() {
    let tenant = Tenant::default();
    let odd = || [0, 1, 63, 64, 65].map(|node| tenant.is_lap_odd(NodeId::new(node)));
    assert_eq!(odd(), [false; 5]);
    tenant.next_lap(NodeId::new(1), false);
    tenant.next_lap(NodeId::new(63), false);
    assert_eq!(odd(), [false, true, true, false, true]);
    tenant.next_lap(NodeId::new(65), true);
    assert_eq!(odd(), [false, false, true, false, false]);
}

#[test]
fn two_threads_that_end_one_lap_start_one_lap() {
    let (tenant, node) = (Tenant::default(), NodeId::new(5));
    for is_odd in [false, true] {
        for _thread in 0..2 {
            tenant.next_lap(node, is_odd);
            assert_eq!(tenant.is_lap_odd(node), !is_odd);
        }
    }
}

#[test]
fn the_mean_charge_is_that_of_about_as_many_evictions_as_entries() {
    // The entries, and the evictions after which the mean is to be half way, and near the charge.
    for (entries, window) in [(3, 64), (64, 64), (1_000, 1_000), (8_192, 8_192), (1 << 20, 8_192)] {
        let tenant = Tenant::default();
        let evict = |nr: u32, charge: u64| {
            (0..nr / 8).for_each(|_| {
                tenant.on_evictions(8, Queue::Main, entries, 0);
                tenant.note_evicted(8, 8 * charge);
            });
            tenant.mean_charge().unwrap()
        };
        assert_eq!(evict(8, 60_000), 60_000);
        evict(20_000, 60_000);
        let half = evict(window * 7 / 10 / 8 * 8, 600);
        assert!((28_000..33_000).contains(&half), "{half} with {entries} entries");
        let near = evict(window * 5, 600);
        assert!((600..1_100).contains(&near), "{near} with {entries} entries");
    }
}

/// Expired entries are no evictions of the clock.
#[test]
fn no_batch_alone_is_the_mean_charge() {
    let tenant = Tenant::default();
    tenant.on_evictions(8, Queue::Main, 10_000, 0);
    tenant.note_evicted(8, 800);
    tenant.note_evicted(8, 800_000);
    assert_eq!(tenant.mean_charge(), Some(100 + (100_000 - 100) / 8));
}

/// The values of all fields, each under its name: a field that is added must be named here.
fn fields(tenant: &Tenant) -> Vec<(&'static str, String)> {
    let Tenant {
        evictions,
        probation_fraction,
        recent_evictions,
        recent_inserts,
        recent_ghost_hits,
        matched_evictions,
        entries,
        scan_min,
        mean_charge,
        lap,
        mean_uses,
        deadlines,
        // The registry's, which outlives the tenant.
        pair: _,
        shift,
        // That of the next group of the id.
        generation: _,
        spared,
        lap_bits,
    } = tenant;
    vec![
        ("evictions", format!("{evictions:?}")),
        ("probation_fraction", format!("{probation_fraction:?}")),
        ("recent_evictions", format!("{recent_evictions:?}")),
        ("recent_inserts", format!("{recent_inserts:?}")),
        ("recent_ghost_hits", format!("{recent_ghost_hits:?}")),
        ("matched_evictions", format!("{matched_evictions:?}")),
        ("entries", format!("{entries:?}")),
        ("scan_min", format!("{scan_min:?}")),
        ("mean_charge", format!("{mean_charge:?}")),
        ("lap", format!("{:?}", [0, 1 << 20].map(|clock| lap.idle(clock)))),
        ("mean_uses", format!("{:?}", mean_uses.each_ref().map(MeanUses::get))),
        ("deadlines", format!("{deadlines:?}")),
        ("shift", format!("{shift:?}")),
        ("spared", format!("{spared:?}")),
        ("lap_bits", format!("{lap_bits:?}")),
    ]
}

#[test]
fn a_forgotten_tenant_equals_a_new_one() {
    let (tenant, new) = (Tenant::default(), Tenant::default());
    tenant.on_evict(HASH, Queue::Probation, 1 << 20, 1 << 30);
    let ghost = tenant.on_evict(HASH, Queue::Main, 1 << 20, 1 << 30).expect("the tenant does not scan");
    tenant.note_insert();
    tenant.ghost_hit(ghost, 1, true);
    tenant.note_rest(1, Lifespan { now: 1, left: 1_000 });
    tenant.note_evicted(1, 100);
    for queue in [Queue::Probation, Queue::Main, Queue::Main] {
        tenant.note_walk(QueueWalk { main: 1, ..walk(queue, 1) });
    }
    tenant.next_lap(NodeId::ZERO, false);
    tenant.note_spared(1_000_000, false);
    assert!(!tenant.is_filling() && tenant.has_spared_many());
    for (changed, at_first) in fields(&tenant).into_iter().zip(fields(&new)) {
        assert_ne!(changed, at_first, "this test does not change it");
    }
    tenant.forget();
    assert_eq!(fields(&tenant), fields(&new));
}

#[test]
fn many_spared_records_in_a_row_are_noticed_and_an_eviction_ends_the_row() {
    let tenant = Tenant::default();
    (0..511).for_each(|_| tenant.note_spared(1, false));
    assert!(!tenant.has_spared_many());
    tenant.note_spared(1, false);
    assert!(tenant.has_spared_many());
    tenant.note_spared(u64::MAX, false);
    assert!(tenant.has_spared_many(), "the number does not wrap");
    tenant.note_spared(16, true);
    assert!(!tenant.has_spared_many());
    tenant.note_spared(511, false);
    assert!(!tenant.has_spared_many());
}

#[test]
fn keys_that_are_evicted_together_have_the_ghosts_of_keys_evicted_in_turn() {
    let (together, in_turn) = (Tenant::default(), Tenant::default());
    for (nr, queue) in [(1, Queue::Main), (16, Queue::Probation), (300, Queue::Main)] {
        let stamps = together.on_evictions(nr, queue, 1_000, 0);
        for at in 0..nr {
            assert_eq!(stamps.ghost(at, HASH), in_turn.on_evict(HASH, queue, 1_000, 0), "{at} of {nr}");
        }
    }
}
