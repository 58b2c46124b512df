//! The arithmetic, compared with the kernel's own numbers and with its invariants.
//!
//! `golden` tests repeat the numbers that kernel developers published (the discussion of deferred
//! objects, the starvation of small caches), so that the baselines are Linux's formulae to the
//! object. The properties below hold for every input: bounds on a call, on debts, and on the passes
//! until a small cache is scanned. Numbers such as S26 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that the kernel's numbers stay written out.

use super::*;
use proptest::prelude::*;

/// Scans a plan as a cooperative shrinker would: all of it, in batches.
fn scan(input: &PlanInput, plan: &Plan) -> u64 {
    if plan.total < plan.scan_min {
        return 0;
    }
    // The result of the loop `while left >= scan_min { left -= min(batch, left) }`, computed
    // directly.
    let whole = plan.total / input.batch * input.batch;
    let rest = plan.total - whole;
    if rest >= plan.scan_min {
        plan.total
    } else {
        whole
    }
}

/// Calls a policy once for a shrinker that scans everything requested. Returns the scanned objects,
/// and the debt afterwards.
fn call(policy: &dyn Policy, input: &PlanInput, debt: Debt) -> (u64, Debt) {
    let plan = policy.plan(input, debt);
    let scanned = scan(input, &plan);
    (scanned, policy.commit(input, debt, &plan, scanned, Ended::Finished))
}

fn input(freeable: u64, priority: u8, batch: u64) -> PlanInput {
    PlanInput { freeable, priority, seeks: SEEKS_DEFAULT, batch, background: true }
}

fn owed(owed: u64) -> Debt {
    Debt { owed, carry: 0 }
}

/// The numbers of the kernel's discussion of deferred objects; also in lowwater's
/// `tests/seed_003.rs`.
#[test]
fn s1_golden_deferred_objects_of_a_cache_of_1_800_000() {
    let input = input(1_800_000, 12, 1024);
    assert_eq!(delta(&input), 878);
    // A million deferred: 1,000,878 in all, clamped to half the cache, in batches of 1,024.
    let plan = Windup.plan(&input, owed(1_000_000));
    assert_eq!(1_000_000 + plan.delta, 1_000_878);
    assert_eq!(plan.total, 900_000);
    assert_eq!(scan(&input, &plan), 899_072);
    assert_eq!(call(&Proportional, &input, owed(1_000_000)).0, 1_024);
    // At the highest pressure all policies scan twice round the list.
    let input = PlanInput { priority: 0, ..input };
    for policy in [&Windup as &dyn Policy, &Proportional, &Fair] {
        assert_eq!(policy.plan(&input, owed(1_000_000)).total, 3_600_000);
    }
    assert_eq!(call(&Windup, &input, owed(1_000_000)).0, 3_599_360);
}

#[test]
fn s1_golden_yang_shis_trace() {
    assert_eq!(call(&Windup, &input(93_689_873, 12, 1024), owed(4_994_376_020)).0, 46_844_928);
}

/// The starvation of small caches: 20,000 calls at priority 12. Columns: freeable, batch; the first
/// call that scans, and the mean per call, up to 5.12; the same since 5.13, and the debt at the
/// end.
#[test]
fn s26_golden_the_kernels_starvation_table() {
    type Row = (u64, u64, Option<u32>, u64, Option<u32>, u64, u64);
    const TABLE: [Row; 6] = [
        (1_800_000, 1024, Some(2), 878, Some(683), 848, 598_464),
        (1_000_000, 1024, Some(3), 488, None, 0, 2_000_000),
        (100_000, 1024, Some(22), 48, None, 0, 200_000),
        (100_000, 128, Some(3), 48, None, 0, 200_000),
        (10_000, 128, Some(32), 4, None, 0, 20_000),
        (2_000, 128, None, 0, None, 0, 0),
    ];
    for (freeable, batch, windup_first, windup_mean, first, mean, end) in TABLE {
        let input = input(freeable, 12, batch);
        let (windup, proportional) = (run(&Windup, &input, 20_000), run(&Proportional, &input, 20_000));
        assert_eq!((windup.first, windup.mean()), (windup_first, windup_mean), "to 5.12, {freeable}, {batch}");
        assert_eq!((proportional.first, proportional.mean()), (first, mean), "since 5.13, {freeable}, {batch}");
        assert_eq!(proportional.debt.owed, end, "since 5.13, {freeable}, {batch}");
        let fair = run(&Fair, &input, 20_000);
        assert!(
            fair.first.is_some_and(|n| u64::from(n) <= s26_bound(&input)),
            "ours, {freeable}, {batch}: {:?}",
            fair.first
        );
        // The mean of `Fair` is the exact part, 4 * freeable / (2 << 12) per call, to within one
        // batch over the whole run.
        let exact = freeable * 4 * 20_000 / (2 << 12);
        assert!(fair.scanned.abs_diff(exact) <= batch, "ours, {freeable}, {batch}: {} of {exact}", fair.scanned);
    }
}

#[test]
fn s26_the_kernel_reaches_caches_from_a_quarter_of_the_batch_on_shifted_by_the_priority() {
    for (batch, priority) in [(128, 12), (128, 6), (1_024, 12), (1_024, 6)] {
        let bound = (batch / 4) << priority;
        assert_eq!(run(&Proportional, &input(bound - (1 << priority), priority, batch), 20_000).first, None);
        assert!(run(&Proportional, &input(bound, priority, batch), 20_000).first.is_some(), "{batch}, {priority}");
    }
}

struct Run {
    first: Option<u32>,
    scanned: u64,
    debt: Debt,
}

impl Run {
    /// Objects scanned per call, over 20,000 calls, rounded as in the table.
    fn mean(&self) -> u64 {
        (self.scanned + 10_000) / 20_000
    }
}

fn run(policy: &dyn Policy, input: &PlanInput, calls: u32) -> Run {
    let mut run = Run { first: None, scanned: 0, debt: Debt::NONE };
    for n in 1..=calls {
        let (scanned, debt) = call(policy, input, run.debt);
        if scanned > 0 && run.first.is_none() {
            run.first = Some(n);
        }
        run.scanned += scanned;
        run.debt = debt;
    }
    run
}

/// The number of passes within which `Fair` scans a cache at constant priority.
fn s26_bound(input: &PlanInput) -> u64 {
    let (batch, seeks, freeable) = (u128::from(input.batch), u128::from(input.seeks), u128::from(input.freeable));
    u64::try_from(((batch * seeks) << input.priority).div_ceil(4 * freeable)).unwrap_or(u64::MAX)
}

#[test]
fn s26_a_cache_of_one_object_is_reached_and_the_kernel_never_reaches_it() {
    let input = input(1, 12, 128);
    let bound = s26_bound(&input);
    assert_eq!(bound, 262_144);
    // Even earlier than the bound: one object is the whole cache, so no batch has to fill.
    assert_eq!(run(&Fair, &input, 4096).first, Some(2048));
    assert_eq!(run(&Proportional, &input, 300_000).first, None);
}

#[test]
fn fair_pays_a_debt_to_the_last_object() {
    // At priority 12 a twelfth of the rest each time, at 1 and 0 all of it at once. With `seeks` of
    // 1 or 2 the own part alone is all that one pass may scan.
    for (priority, seeks, passes_max) in [(12, 2, 199), (1, 2, 1), (1, 1, 1), (0, 4, 1), (0, 2, 1), (0, 1, 1)] {
        let input = PlanInput { seeks, ..input(1_000_000, priority, 128) };
        let mut debt = owed(1_000_000);
        let mut passes = 0;
        while debt.owed > 0 {
            debt = call(&Fair, &input, debt).1;
            passes += 1;
            assert!(passes <= passes_max, "{} objects are still owed after {passes} passes of {input:?}", debt.owed);
        }
    }
}

/// At the bound on a pass, the own part is what does not fit. All scanned objects are counted once:
/// first for the share of the debt, then for the own part, then for the rest of the debt.
#[test]
fn s4_fair_counts_each_object_once_at_the_bound() {
    let input = input(1_000, 1, 128);
    // An own part of 2,000, and a share that is the whole debt.
    let debt = Debt { owed: 300, carry: 1_000 << crate::deferred::FRACTION_BITS };
    let plan = Fair.plan(&input, debt);
    assert_eq!((plan.delta, plan.total), (2_000, 2_000));
    let stopped = |scanned| Fair.commit(&input, debt, &plan, scanned, Ended::Stopped).owed;
    assert_eq!([2_000, 2_100, 2_299, 2_300, 3_000].map(stopped), [300, 200, 1, 0, 0]);
    // The part that did not fit is not carried: it is more than a batch.
    assert_eq!(Fair.commit(&input, debt, &plan, 2_000, Ended::Finished), Debt::NONE);
    // At priority 2 the share is half the debt.
    let input = PlanInput { priority: 2, ..input };
    let debt = Debt { carry: 2_000 << crate::deferred::FRACTION_BITS, ..debt };
    let plan = Fair.plan(&input, debt);
    assert_eq!((plan.delta, plan.total), (2_000, 2_000));
    let cut = |scanned| Fair.commit(&input, debt, &plan, scanned, Ended::Cut);
    let carry = |objects: u64| objects << crate::deferred::FRACTION_BITS;
    assert_eq!(cut(100), Debt { owed: 200, carry: carry(128) });
    assert_eq!(cut(2_100), Debt { owed: 150, carry: carry(50) });
    assert_eq!(cut(2_160), Debt { owed: 140, carry: 0 });
}

/// Up to 5.12 a call scans at most half the cache, unless the call's own part is at least a quarter
/// of the cache; then at most twice the cache.
#[test]
fn s1_windup_stops_at_half_the_cache_below_a_quarter_of_it() {
    let totals = [4, 3, 2].map(|priority| {
        let plan = Windup.plan(&input(8_000, priority, 128), owed(1_000_000));
        (plan.delta, plan.total)
    });
    assert_eq!(totals, [(1_000, 4_000), (2_000, 16_000), (4_000, 16_000)]);
}

/// A visit ends once all objects are freed. Linux' loop continues over the empty cache.
#[test]
fn s1_linux_also_scans_a_cache_that_became_empty() {
    let at = |freeable, batch, debt, scanned, ended| {
        [&Proportional as &dyn Policy, &Windup].map(|policy| {
            let input = input(freeable, 0, batch);
            policy.commit(&input, owed(debt), &policy.plan(&input, owed(debt)), scanned, ended).owed
        })
    };
    // Eight of the 15 batches were scanned, by calls that scan what they are requested to, or less
    // where the cache has less.
    assert_eq!(at(1_000, 128, 0, 1_024, Ended::Finished), [80; 2]);
    assert_eq!(at(1_000, 128, 0, 1_000, Ended::Finished), [104; 2]);
    assert_eq!(at(1_000, 128, 0, 1_920, Ended::Finished), [80; 2], "all batches were scanned");
    assert_eq!(at(1_000, 128, 500, 1_024, Ended::Finished), [580; 2]);
    // A cache below a batch is scanned once more, to the last object.
    assert_eq!(at(100, 128, 0, 100, Ended::Finished), [0; 2]);
    for ended in [Ended::Stopped, Ended::Cut, Ended::Deferred] {
        assert_eq!(at(1_000, 128, 0, 1_024, ended), [976; 2], "{ended:?}");
    }
}

/// The kernel's caps, where it has them, are in `commit`; a stored debt is not reduced again.
#[test]
fn s3_only_fair_caps_a_stored_debt() {
    for freeable in [1, 8_000, u64::MAX] {
        let policies = [&Fair as &dyn Policy, &Proportional, &Windup];
        assert_eq!(policies.map(|policy| policy.owed_max(freeable)), [freeable, u64::MAX, u64::MAX]);
    }
}

#[test]
fn s23_fair_pays_in_the_background_and_linux_in_every_call() {
    assert_eq!([false, true].map(|background| Fair.pays(background)), [false, true]);
    assert_eq!([false, true].map(|background| Proportional.pays(background)), [true, true]);
    assert_eq!([false, true].map(|background| Windup.pays(background)), [true, true]);
}

/// A debt is large from an eighth of the cache on, but not below a batch, and in any case from 32
/// batches on.
#[test]
fn fair_notifies_at_once_of_a_large_debt() {
    let kicks = |freeable: u64, owed: [u64; 3]| owed.map(|owed| Fair.kick(&input(freeable, 12, 128), owed));
    assert_eq!(kicks(8_007, [0, 999, 1_000]), [Kick::Never, Kick::Soon, Kick::Now]);
    assert_eq!(kicks(100, [0, 127, 128]), [Kick::Never, Kick::Soon, Kick::Now]);
    assert_eq!(kicks(1_000_000, [1, 4_095, 4_096]), [Kick::Soon, Kick::Soon, Kick::Now]);
    for policy in [&Proportional as &dyn Policy, &Windup] {
        assert_eq!(policy.kick(&input(100, 12, 128), 1_000), Kick::Never);
    }
}

/// Objects that were not worth a call are carried; objects that a shrinker did not have are not.
#[test]
fn fair_carries_nothing_where_the_shrinker_ran_dry() {
    let input = input(100_000, 6, 128);
    let plan = Fair.plan(&input, Debt::NONE);
    assert_eq!((plan.delta, plan.total, plan.scan_min), (3_125, 3_125, 128));
    let back = |left: u64| Fair.commit(&input, Debt::NONE, &plan, plan.total - left, Ended::Finished);
    assert_eq!(back(127), Debt { owed: 0, carry: 127 << crate::deferred::FRACTION_BITS });
    assert_eq!([128, 129, 3_125].map(back), [Debt::NONE; 3]);
}

/// Small values are computed in 64 bits, large ones in 128; at the boundary both agree.
#[test]
fn s1_fairs_part_is_exact_at_every_size() {
    for shift in 0..u64::BITS {
        for freeable in [(1_u64 << shift) - 1, 1 << shift, (1 << shift) + 1].map(|n| n.max(1)) {
            let plan = Fair.plan(&input(freeable, 12, 128), Debt::NONE);
            let exact = (u128::from(freeable) << crate::deferred::FRACTION_BITS).div_ceil(2048);
            assert_eq!((u128::from(plan.delta) << crate::deferred::FRACTION_BITS) + u128::from(plan.rest), exact);
        }
    }
}

fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), 0..2_000_000_u64, any::<u64>()]
}

fn any_input() -> impl Strategy<Value = PlanInput> {
    let seeks = prop_oneof![Just(0), Just(1), Just(2), any::<u32>()];
    (any_u64(), 0..=12_u8, seeks, any_u64(), any::<bool>()).prop_map(
        |(freeable, priority, seeks, batch, background)| PlanInput {
            freeable: freeable.max(1),
            priority,
            seeks,
            batch: batch.max(1),
            background,
        },
    )
}

fn any_debt() -> impl Strategy<Value = Debt> {
    (any_u64(), any_u64()).prop_map(|(owed, carry)| Debt { owed, carry })
}

proptest! {
    /// `((freeable >> priority) * 4) / seeks` and the following steps, in integers wide enough that
    /// nothing can overflow.
    #[test]
    fn s1_s4_proportional_is_the_kernels_formula(input in any_input(), debt in any_debt()) {
        let (freeable, nr) = (u128::from(input.freeable), u128::from(debt.owed));
        let delta = match input.seeks {
            0 => freeable / 2,
            seeks => (freeable >> input.priority) * 4 / u128::from(seeks),
        };
        let limit = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        let total = ((nr >> input.priority) + delta).min(2 * freeable);
        let plan = Proportional.plan(&input, debt);
        prop_assert_eq!(plan.delta, limit(delta));
        prop_assert_eq!(plan.total, limit(total));
        prop_assert_eq!(plan.scan_min, input.batch.min(input.freeable));
        let scanned = scan(&input, &plan);
        let next = limit(nr + delta).saturating_sub(scanned).min(limit(2 * freeable));
        prop_assert_eq!(Proportional.commit(&input, debt, &plan, scanned, Ended::Finished).owed, next);
    }

    #[test]
    fn s2_s3_no_policy_scans_or_owes_more_than_twice_the_objects(
        input in any_input(), debt in any_debt(), scanned: u64
    ) {
        let twice = input.freeable.saturating_mul(2);
        for policy in [&Fair as &dyn Policy, &Proportional, &Windup] {
            let plan = policy.plan(&input, debt);
            prop_assert!(plan.total <= twice);
            prop_assert!(scan(&input, &plan) <= plan.total);
        }
        // Without `Windup`, whose debt has no cap.
        for ended in [Ended::Finished, Ended::Stopped, Ended::Cut, Ended::Deferred] {
            let plan = Proportional.plan(&input, debt);
            prop_assert!(Proportional.commit(&input, debt, &plan, scanned, ended).owed <= twice);
            let debt = Debt { owed: debt.owed.min(Fair.owed_max(input.freeable)), ..debt };
            let plan = Fair.plan(&input, debt);
            prop_assert!(Fair.commit(&input, debt, &plan, scanned, ended).owed <= input.freeable);
        }
    }

    #[test]
    fn s6_a_stop_on_the_first_batch_defers_the_whole_part(input in any_input(), debt in any_debt()) {
        let plan = Proportional.plan(&input, debt);
        let kernel = Proportional.commit(&input, debt, &plan, 0, Ended::Stopped);
        prop_assert_eq!(kernel.owed, debt.owed.saturating_add(plan.delta).min(input.freeable.saturating_mul(2)));
        let plan = Fair.plan(&input, debt);
        let ours = Fair.commit(&input, debt, &plan, 0, Ended::Stopped);
        prop_assert_eq!(ours.owed, debt.owed.saturating_add(plan.delta).min(input.freeable));
    }

    #[test]
    fn s9_more_pressure_never_means_less_to_scan(input in any_input(), debt in any_debt()) {
        for policy in [&Fair as &dyn Policy, &Proportional] {
            let mut before = 0;
            for priority in (0..=12).rev() {
                let total = policy.plan(&PlanInput { priority, ..input }, debt).total;
                prop_assert!(total >= before, "priority {} scans {}, {} scans {}", priority, total, priority + 1, before);
                before = total;
            }
        }
    }

    #[test]
    fn s24_deferred_objects_are_owed_exactly(input in any_input(), carry: u64) {
        let debt = Debt { owed: 0, carry };
        let plan = Fair.plan(&input, debt);
        let back = Fair.commit(&input, debt, &plan, 0, Ended::Deferred);
        prop_assert_eq!(back.owed, plan.total.min(input.freeable));
    }

    #[test]
    fn s26_every_cache_is_scanned_within_the_stated_passes(
        freeable in prop_oneof![1..100_u64, 1..2_000_000_u64],
        priority in 6..=12_u8,
        batch in prop_oneof![Just(128_u64), Just(1024), 1..4096_u64],
        seeks in 1..5_u32,
    ) {
        let input = PlanInput { freeable, priority, seeks, batch, background: false };
        let bound = s26_bound(&input).max(1);
        let mut debt = Debt::NONE;
        let mut passes = 0;
        loop {
            let (scanned, next) = call(&Fair, &input, debt);
            passes += 1;
            if scanned > 0 {
                break;
            }
            prop_assert!(passes < bound, "{:?} is not scanned within {} passes", input, bound);
            debt = next;
        }
    }

    #[test]
    fn fair_carries_objects_below_a_call(input in any_input(), debt in any_debt()) {
        // Without debts: all planned objects are scanned, or carried to the next pass. The bounds
        // keep the sums within 64 bits.
        let debt = Debt { owed: 0, carry: debt.carry.min(1 << 40) };
        let input = PlanInput { freeable: input.freeable.min(1 << 40), batch: input.batch.min(1 << 20), ..input };
        let plan = Fair.plan(&input, debt);
        let scanned = scan(&input, &plan);
        let back = Fair.commit(&input, debt, &plan, scanned, Ended::Finished);
        let fixed = |n: u64| n << crate::deferred::FRACTION_BITS;
        prop_assert_eq!(fixed(scanned) + back.carry, fixed(plan.total) + plan.rest);
    }

    #[test]
    fn s1_fairs_part_is_the_exact_quotient_rounded_up(input in any_input()) {
        let plan = Fair.plan(&input, Debt::NONE);
        let freeable = u128::from(input.freeable) << crate::deferred::FRACTION_BITS;
        let exact = match input.seeks {
            0 => freeable / 2,
            seeks => (freeable * 4).div_ceil(u128::from(seeks) << input.priority),
        };
        let fixed = exact.min(u128::from(input.freeable.saturating_mul(2)) << crate::deferred::FRACTION_BITS);
        prop_assert_eq!((u128::from(plan.delta) << crate::deferred::FRACTION_BITS) + u128::from(plan.rest), fixed);
    }
}
