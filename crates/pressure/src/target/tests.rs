//! The invariants of the sticky target, for random sequences of events.
//!
//! The invariants are those of `target.rs`; a change of its arithmetic must keep them for every
//! configuration. Numbers of bytes and times follow from the defaults of `PressureConfig`: an event
//! takes 6, 12 or 25 % of the usage; the floor is a sixteenth of the budget; `debounce` is 1 s,
//! `quiet` 10 s, `step_time` 2 s.

use super::*;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
enum Op {
    Raise { after: u64, level: Level, usage: u64, at_most: Option<u64> },
    Tick { after: u64 },
    Budget(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let level = prop_oneof![Just(Level::Calm), Just(Level::Low), Just(Level::Medium), Just(Level::Critical)];
    let after = prop_oneof![0..2 * S, 0..100 * S];
    prop_oneof![
        (after.clone(), level, 0..2_000_u64, proptest::option::of(0..2_000_u64))
            .prop_map(|(after, level, usage, at_most)| Op::Raise { after, level, usage, at_most }),
        after.prop_map(|after| Op::Tick { after }),
        prop_oneof![1..2_000_u64, Just(u64::MAX)].prop_map(Op::Budget),
    ]
}

proptest! {
    #[test]
    fn invariants_1_to_4_hold_over_any_sequence(
        budget in prop_oneof![1..2_000_u64, Just(u64::MAX)],
        floor in proptest::option::of(0..3_000_u64),
        percent in 0..=u8::MAX,
        ops in proptest::collection::vec(op(), 0..64),
    ) {
        let config = PressureConfig {
            // Not the default, which is above all usages here if the budget is unlimited.
            floor: Some(ByteSize::new(floor.unwrap_or(100))),
            medium_percent: percent,
            ..PressureConfig::default()
        };
        let mut target = Target::new(config, ByteSize::new(budget));
        let (mut now, mut last_event) = (0, None);
        for op in ops {
            let before = target.ceiling();
            match op {
                Op::Raise { after, level, usage, at_most } => {
                    now += after;
                    // A caller ticks before it raises, as the monitor does.
                    target.tick(now);
                    let before = target.ceiling();
                    let usage = ByteSize::new(usage);
                    let fell = match at_most {
                        Some(at_most) => target.raise_to(now, level, usage, ByteSize::new(at_most)),
                        None => target.raise(now, level, usage),
                    };
                    prop_assert!(target.ceiling() <= before, "invariant 2: an event raised the ceiling");
                    prop_assert_eq!(fell, target.ceiling() < before);
                    prop_assert!(target.level() >= level);
                    if level > Level::Calm {
                        last_event = Some(now);
                    }
                }
                Op::Tick { after } => {
                    now += after;
                    let rose = target.tick(now);
                    prop_assert!(target.ceiling() >= before, "invariant 2: time lowered the ceiling");
                    prop_assert_eq!(rose, target.ceiling() > before);
                    if let Some(event) = last_event.filter(|_| rose) {
                        prop_assert!(now >= event + 10 * S, "invariant 3: the ceiling rose too early");
                    }
                    prop_assert!(target.due().is_none_or(|due| due > now), "a tick left something undone");
                }
                Op::Budget(budget) => target.set_budget(ByteSize::new(budget)),
            }
            let floor = target.floor();
            prop_assert!(floor <= target.ceiling() && target.ceiling() <= target.budget(), "invariant 1");
        }
        // The level falls three times, and then the ceiling rises in fewer than 2 * `STEPS` steps.
        let mut ticks = 0;
        while let Some(due) = target.due() {
            target.tick(due);
            ticks += 1;
            prop_assert!(ticks < 3 + 2 * STEPS, "invariant 4: the ceiling does not come back");
        }
        prop_assert_eq!(target.ceiling(), target.budget());
        prop_assert_eq!(target.level(), Level::Calm);
    }

    #[test]
    fn less_percent_subtracts_the_percentage(bytes: u64, percent in 0..=100_u8) {
        let left = less_percent(ByteSize::new(bytes), percent).get();
        let exact = u128::from(bytes) * u128::from(100 - percent);
        // Rounded up, because the part that is taken is rounded down.
        prop_assert_eq!(u128::from(left), exact.div_ceil(100));
    }
}

#[test]
fn events_within_the_debounce_time_count_once_unless_worse() {
    let mut target = Target::new(PressureConfig::default(), ByteSize::new(1000));
    assert!(target.raise(S, Level::Medium, ByteSize::new(1000)));
    assert_eq!(target.ceiling(), ByteSize::new(880));
    assert!(!target.raise(S + S / 2, Level::Medium, ByteSize::new(880)), "still settling");
    assert!(target.raise(S + S / 2, Level::Critical, ByteSize::new(880)), "worse");
    assert_eq!(target.ceiling(), ByteSize::new(660));
    assert!(!target.raise(2 * S, Level::Medium, ByteSize::new(660)));
    assert!(target.raise(3 * S, Level::Medium, ByteSize::new(660)), "settled, and still bad");
}

#[test]
fn raise_to_is_effective_during_the_debounce_time() {
    let mut target = Target::new(PressureConfig::default(), ByteSize::new(1000));
    assert!(target.raise(0, Level::Medium, ByteSize::new(1000)));
    assert!(target.raise_to(1, Level::Medium, ByteSize::new(900), ByteSize::new(500)));
    assert_eq!(target.ceiling(), ByteSize::new(500));
    assert!(!target.raise_to(2, Level::Medium, ByteSize::new(500), ByteSize::new(600)), "it is less already");
    assert!(!target.raise(3, Level::Medium, ByteSize::new(500)), "still settling");
}

#[test]
fn an_event_takes_a_share_of_the_usage_down_to_the_floor() {
    let mut target = Target::new(PressureConfig::default(), ByteSize::new(1600));
    assert!(target.raise(0, Level::Critical, ByteSize::new(400)));
    assert_eq!(target.ceiling(), ByteSize::new(300));
    for n in 1..20 {
        target.raise(n * 2 * S, Level::Critical, target.ceiling());
    }
    assert_eq!(target.ceiling(), ByteSize::new(100), "a sixteenth stays");
}

#[test]
fn an_event_restarts_the_quiet_time() {
    let mut target = Target::new(PressureConfig::default(), ByteSize::new(1600));
    target.raise(0, Level::Low, ByteSize::new(1600));
    let low = target.ceiling();
    target.raise(9 * S, Level::Low, ByteSize::new(100));
    target.tick(18 * S);
    assert_eq!(target.level(), Level::Low);
    assert!(target.ceiling() < low);
    assert!(!target.tick(19 * S), "calm, and the first step comes later");
    assert!(target.tick(21 * S));
}

#[test]
fn a_budget_that_falls_and_rises_leaves_the_ceiling_of_pressure() {
    let mib = ByteSize::mib;
    let mut target = Target::new(PressureConfig::default(), mib(100));
    target.raise(0, Level::Critical, mib(80));
    for (budget, ceiling) in [(100, 60), (50, 50), (100, 60), (1_600, 100), (100, 60)] {
        target.set_budget(mib(budget));
        assert_eq!(target.ceiling(), mib(ceiling), "with a budget of {budget} MiB");
    }
    // It rises from there as without a change.
    target.tick(29 * S);
    assert_eq!((target.ceiling(), target.level()), (mib(60), Level::Low));
    target.tick(120 * S);
    assert_eq!((target.ceiling(), target.is_lowered(), target.due()), (mib(100), false, None));
}

/// The ceiling rises by sixteenths of the usage at the first event. When it has reached this usage,
/// there is no limit any more.
#[test]
fn without_a_budget_the_ceiling_rises_to_its_first_usage() {
    let mut target = Target::new(PressureConfig::default(), ByteSize::MAX);
    target.raise(0, Level::Medium, ByteSize::gib(1));
    assert!(target.ceiling() < ByteSize::gib(1));
    target.tick(60 * S);
    assert_eq!(target.ceiling(), ByteSize::MAX);
}
