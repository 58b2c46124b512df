//! The decisions of a monitor, step by step, without its thread.
//!
//! Each test calls the state with chosen times and readings, and compares deadlines, the ceiling
//! and the statistics.
//!
//! A change of a decision needs its new times and readings written out here.

use super::*;
use crate::cgroup::{Cgroup, Version};
use crate::{CgroupLimit, PressureConfig, Trim};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use lowwater_lru_core::MemcgTree;
use std::fs;
use std::io::ErrorKind;

/// A reclaimer that counts its calls, keeps the last ceiling, and frees nothing.
#[derive(Debug, Default)]
struct Counting(AtomicU64, AtomicU64);

impl BackgroundReclaim for Counting {
    fn reclaim_to(&self, _memcg: &Memcg, ceiling: ByteSize) {
        self.0.fetch_add(1, Relaxed);
        self.1.store(ceiling.get(), Relaxed);
    }
}

struct World {
    tree: MemcgTree,
    reclaimer: Arc<Counting>,
    state: MonitorState,
}

/// Returns a state with a budget of 1,000 bytes, of which `used` are charged.
fn world(used: u64, watched: Option<WatchedCgroup>) -> World {
    world_with(used, watched, None)
}

fn world_with(used: u64, watched: Option<WatchedCgroup>, resident_max: Option<u64>) -> World {
    let pressure = PressureConfig { floor: Some(ByteSize::ZERO), ..PressureConfig::default() };
    world_of(pressure, used, watched, resident_max)
}

fn world_of(pressure: PressureConfig, used: u64, watched: Option<WatchedCgroup>, resident_max: Option<u64>) -> World {
    let resident =
        resident_max.map(|max| ResidentStats { max: ByteSize::new(max), usage: ByteSize::ZERO, lowered: 0, failed: 0 });
    let tree = MemcgTree::new(0);
    let _below_high = tree.root().try_charge(ByteSize::new(used)).unwrap();
    let reclaimer = Arc::new(Counting::default());
    let trim = Trim::new(|| {}).threshold(ByteSize::new(1));
    let config = MonitorConfig { trim, pressure, ..MonitorConfig::default() };
    let (asked, theirs) = (ByteSize::new(1_000), Arc::clone(&reclaimer));
    let state =
        MonitorState::new(tree.root().clone(), theirs, asked, watched, resident, SourceFiles::default(), &config);
    World { tree, reclaimer, state }
}

/// Returns a group with a limit of 2,000 bytes and a margin of 100. Its files are removed already,
/// since the tests pass readings of their own.
fn watched(name: &str) -> WatchedCgroup {
    let directory = std::env::temp_dir().join(std::format!("lowwater-state-{}-{name}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = |name, text| fs::write(directory.join(name), text).unwrap();
    file("memory.max", "2000");
    file("memory.current", "0");
    file("memory.stat", "");
    let cgroup = Cgroup::at(Version::V2, &directory, &directory);
    let watched = WatchedCgroup::find(CgroupLimit::of(cgroup).margin(ByteSize::new(100))).unwrap().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    watched
}

fn reading(level: Level, excess: u64) -> Result<CgroupReading, CgroupError> {
    Ok(CgroupReading { level, usage: ByteSize::new(7), excess: ByteSize::new(excess) })
}

#[test]
fn a_usage_that_does_not_fall_is_read_less_often() {
    let World { tree, reclaimer, mut state } = world(800, None);
    state.raised_by_hand(1, Level::Critical);
    assert_eq!(reclaimer.0.load(Relaxed), 1);
    let due = |state: &MonitorState| state.fall.as_ref().unwrap().due;
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let now = due(&state);
        // Exactly at its deadline, and not before.
        if let Some(before) = now.checked_sub(1) {
            state.follow(before);
            assert_eq!(due(&state), now);
        }
        state.follow(now);
        pauses.push((due(&state) - now) / 1_000_000);
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]);
    assert_eq!(reclaimer.0.load(Relaxed), 11, "called at each reading");
    tree.root().uncharge(ByteSize::new(1));
    let now = due(&state);
    state.follow(now);
    assert_eq!(due(&state) - now, FOLLOW_MIN_NS, "it falls again");
}

#[test]
fn a_usage_at_the_ceiling_need_not_fall() {
    let World { tree, reclaimer, mut state } = world(1_000, None);
    state.apply();
    assert!(state.fall.is_none());
    assert_eq!((reclaimer.0.load(Relaxed), tree.root().max()), (0, ByteSize::new(1_000)));
}

/// A charge that still finds the old limit wakes no reclaimer.
#[test]
fn a_usage_that_rises_above_a_new_ceiling_has_to_fall() {
    let World { tree, reclaimer, mut state } = world(900, None);
    state.apply();
    state.target.set_budget(ByteSize::new(500));
    // The usage before a charge of 500 bytes.
    state.apply_for(ByteSize::new(400));
    assert_eq!((reclaimer.0.load(Relaxed), reclaimer.1.load(Relaxed)), (1, 500));
    assert_eq!(tree.root().max().get(), 900, "the limit follows the usage down");
    tree.root().uncharge(ByteSize::new(400));
    state.follow(state.fall.as_ref().unwrap().due);
    assert!(state.fall.is_none() && tree.root().max().get() == 500);
}

#[test]
fn a_watched_group_is_taken_when_it_is_due_or_at_once() {
    let mut watched = watched("due");
    watched.failed(0);
    let due = watched.due();
    let mut state = world(0, Some(watched)).state;
    assert!(state.take_watched(due - 1, false).is_none());
    let taken = state.take_watched(due, false).expect("the source is due");
    assert!(state.take_watched(due, true).is_none(), "it is away");
    state.seen(due, taken, reading(Level::Calm, 0));
    assert!(state.take_watched(0, true).is_some());
}

#[test]
fn a_failed_reading_is_reported_and_repeated() {
    let mut state = world(800, Some(watched("failed"))).state;
    // `FAILED_EVERY` of `limit.rs`.
    let pause = Duration::from_secs(1).as_nanos() as u64;
    for now in [0, pause, 2 * pause] {
        assert!(now == 0 || state.take_watched(now - 1, false).is_none(), "it is not due yet");
        // The group's files are removed already.
        let mut taken = state.take_watched(now, false).expect("the source is due");
        let failed = taken.look(now);
        assert!(failed.is_err());
        state.seen(now, taken, failed);
        assert!(state.stats().cgroup.unwrap().error.is_some());
    }
    let taken = state.take_watched(3 * pause, false).unwrap();
    state.seen(3 * pause, taken, reading(Level::Medium, 0));
    let stats = state.stats().cgroup.unwrap();
    assert_eq!((stats.error, stats.events), (None, 1));
}

#[test]
fn only_a_reading_too_near_the_limit_is_an_event_and_urgent() {
    let mut state = world(800, Some(watched("events"))).state;
    for (level, events) in [(Level::Calm, 0), (Level::Medium, 1), (Level::Critical, 2), (Level::Calm, 2)] {
        let watched = state.take_watched(0, true).unwrap();
        state.seen(1, watched, reading(level, 0));
        assert_eq!((state.stats().cgroup.unwrap().events, state.is_urgent()), (events, level > Level::Calm));
    }
}

/// A reading that failed, as when the process has no file descriptor left.
fn failed(kind: ErrorKind) -> Result<CgroupReading, CgroupError> {
    Err(CgroupError::Read { file: "memory.current".into(), error: kind.into() })
}

#[test]
fn a_group_that_cannot_be_read_keeps_level_and_ceiling() {
    let mut state = world(800, Some(watched("held"))).state;
    let watched = state.take_watched(0, true).unwrap();
    state.seen(S, watched, reading(Level::Critical, 100));
    assert!(state.is_urgent());
    for at in 1..100 {
        let watched = state.take_watched(at * S, false).expect("a failed reading is repeated after a second");
        state.seen(at * S, watched, failed(ErrorKind::Other));
        // Just before the next reading.
        state.tick(at * S + S - 1);
        let stats = state.stats();
        assert_eq!((stats.level, stats.ceiling.get()), (Level::Critical, 700), "{at} s");
        assert!(!state.is_urgent(), "nothing is known that would need an early trim");
    }
    // A cause that does not end holds nothing after five minutes.
    for at in 100..400 {
        let watched = state.take_watched(at * S, false).unwrap();
        state.seen(at * S, watched, failed(ErrorKind::PermissionDenied));
        state.tick(at * S);
    }
    assert!(state.stats().ceiling.get() > 700);
    // A removed group holds no memory of this process, and stays unreadable: the ceiling rises.
    for at in 400..1_000 {
        let watched = state.take_watched(at * S, false).unwrap();
        state.seen(at * S, watched, failed(ErrorKind::NotFound));
        state.tick(at * S);
    }
    assert_eq!((state.stats().level, state.stats().ceiling.get()), (Level::Calm, 1_000));
}

const S: u64 = 1_000_000_000;

/// Passes a reading of the resident memory, and returns the ceiling. The tests have a maximum of
/// 1,600 bytes, and so a margin of 100: readings from 1,550 on are pressure, and the excess is what
/// lies above 1,525.
fn ceiling_after(state: &mut MonitorState, now_ns: u64, usage: Option<u64>) -> u64 {
    state.resident_seen(now_ns, usage.map(ByteSize::new));
    state.stats().ceiling.get()
}

#[test]
fn a_resident_memory_near_its_maximum_is_trimmed_and_then_reduced() {
    let World { tree, mut state, .. } = world_with(800, None, Some(1_600));
    assert!(state.is_resident_due(0));
    assert_eq!(state.pause(0).unwrap().time(), Some(Duration::ZERO));
    assert_eq!(ceiling_after(&mut state, 1, Some(1_560)), 1_000);
    assert!(!state.is_resident_due(1) && state.tick(1), "it is time to trim");
    state.trimmed(true, Duration::ZERO);
    assert_eq!(ceiling_after(&mut state, 1, Some(1_560)), 800 - 35);
    assert!(state.fall.is_some());
    assert_eq!(ceiling_after(&mut state, 1, Some(1_560)), 765, "the caches are still freeing");
    tree.root().uncharge(ByteSize::new(35));
    let freed_at = state.fall.as_ref().unwrap().due.max(1);
    assert!(!state.tick(freed_at), "a second after the last trim, not before");
    assert!(state.fall.is_none());
    assert_eq!(ceiling_after(&mut state, freed_at, Some(1_560)), 765, "the freed memory is not returned yet");
    assert!(state.tick(freed_at + 2 * S));
    state.trimmed(true, Duration::ZERO);
    assert_eq!(ceiling_after(&mut state, freed_at + 2 * S, Some(1_520)), 765);
    let stats = state.stats();
    let resident = stats.resident.unwrap();
    assert_eq!((resident.max.get(), resident.usage.get(), resident.lowered, resident.failed), (1_600, 1_520, 1, 0));
    assert_eq!((stats.lowered, stats.level), (1, Level::Medium));
}

#[test]
fn memory_that_other_pressure_frees_is_trimmed_before_the_ceiling_falls_again() {
    let World { tree, mut state, .. } = world_with(800, None, Some(1_600));
    ceiling_after(&mut state, 1, Some(1_560));
    assert!(state.tick(1));
    state.trimmed(true, Duration::ZERO);
    state.raised_by_hand(1, Level::Critical);
    assert_eq!(ceiling_after(&mut state, 1, Some(1_560)), 600, "the caches free a quarter");
    tree.root().uncharge(ByteSize::new(200));
    state.follow(2);
    assert!(state.fall.is_none());
    assert_eq!(ceiling_after(&mut state, 2, Some(1_560)), 600, "which is not returned yet");
}

#[test]
fn caches_do_not_grow_while_a_trim_has_to_wait() {
    let World { tree, mut state, .. } = world_with(800, None, Some(1_600));
    ceiling_after(&mut state, S, Some(1_560));
    assert!(state.tick(S));
    // The next trim is due 20 times the duration of this one (`COST_PARTS`) after its begin.
    state.trimmed(true, Duration::from_secs(1));
    // A calm reading, so that the next one requests a trim instead of lowering the ceiling.
    assert_eq!(ceiling_after(&mut state, 2 * S, Some(1_500)), 1_000);
    for at in 3..21 {
        assert_eq!(ceiling_after(&mut state, at * S, Some(1_560)), 800, "{at} s");
        assert!(!state.tick(at * S), "{at} s");
        let _refused = tree.root().try_charge(ByteSize::new(10)).unwrap_err();
    }
    assert!(state.tick(21 * S));
    assert_eq!(state.stats().resident.unwrap().lowered, 1);
}

#[test]
fn critical_resident_memory_shortens_the_wait_for_a_trim() {
    let World { mut state, .. } = world_with(800, None, Some(1_600));
    ceiling_after(&mut state, S, Some(1_560));
    assert!(state.tick(S));
    state.trimmed(true, Duration::from_secs(1));
    ceiling_after(&mut state, 2 * S, Some(1_500));
    ceiling_after(&mut state, 2 * S + 1, Some(1_560));
    assert!(!state.tick(3 * S), "20 times the duration of the first trim");
    // Beyond the maximum: twice the duration (`COST_PARTS_URGENT`).
    ceiling_after(&mut state, 3 * S, Some(5_000));
    assert!(state.tick(3 * S));
    state.trimmed(true, Duration::from_secs(1));
    assert_eq!(ceiling_after(&mut state, 4 * S, Some(5_000)), 0);
    // In the margin again: 20 times.
    ceiling_after(&mut state, 5 * S, Some(1_560));
    assert!(!state.tick(22 * S));
    assert!(state.tick(23 * S));
}

#[test]
fn full_caches_are_observed_while_a_trim_has_to_wait() {
    let mut state = world_with(1_000, None, Some(1_600)).state;
    ceiling_after(&mut state, S, Some(1_560));
    assert!(state.tick(S));
    state.trimmed(true, Duration::from_secs(1));
    ceiling_after(&mut state, 2 * S, Some(1_500));
    assert_eq!(ceiling_after(&mut state, 3 * S, Some(1_560)), 1_000, "the usage is the ceiling already");
    assert!(state.is_resident_due(3 * S + 10_000_000), "the next reading is soon");
}

#[test]
fn a_maximum_that_caches_cannot_reach_is_read_less_often() {
    let mut state = world_with(0, None, Some(1_600)).state;
    // The first reading after a trim lowers the ceiling to 0; the later ones cannot lower it, and
    // the next reading comes 10 s after them.
    for at in [1, 3, 5] {
        ceiling_after(&mut state, at * S, Some(5_000));
        assert!(state.tick(at * S));
        state.trimmed(true, Duration::ZERO);
        ceiling_after(&mut state, at * S, Some(5_000));
        assert_eq!(state.is_resident_due(at * S + S), at == 1, "{at}");
    }
}

/// Otherwise the caches would refill, and be emptied again by each reading.
#[test]
fn the_ceiling_does_not_rise_before_a_reading_that_comes_late() {
    let (quiet, step_time) = (Duration::from_millis(100), Duration::from_millis(10));
    let pressure = PressureConfig { floor: Some(ByteSize::ZERO), quiet, step_time, ..PressureConfig::default() };
    let mut state = world_of(pressure, 0, None, Some(1_600)).state;
    let mut last = 0;
    // The second reading after a trim cannot lower the ceiling.
    for at in [S, S + 60_000_000, 11 * S + 60_000_000] {
        ceiling_after(&mut state, at, Some(5_000));
        assert!(state.tick(at));
        state.trimmed(true, Duration::ZERO);
        assert_eq!(ceiling_after(&mut state, at, Some(5_000)), 0);
        last = at;
    }
    let next = last + 10 * S;
    assert!(!state.is_resident_due(next - 1) && state.is_resident_due(next));
    assert_eq!(state.pause(last).unwrap().time(), Some(Duration::from_secs(10)), "no step is due before");
    state.tick(last + 2 * S);
    assert_eq!((state.stats().ceiling.get(), state.stats().level), (0, Level::Critical));
    // The times begin again with the next reading.
    assert_eq!(ceiling_after(&mut state, next, Some(0)), 0);
    state.tick(next + 299_999_999);
    assert_eq!((state.stats().ceiling.get(), state.stats().level), (0, Level::Low));
    state.tick(next + S);
    assert_eq!((state.stats().ceiling.get(), state.stats().level), (1_000, Level::Calm));
}

#[test]
fn without_a_reading_the_ceiling_does_not_rise() {
    let World { tree, mut state, .. } = world_with(800, None, Some(1_600));
    ceiling_after(&mut state, S, Some(1_560));
    assert!(state.tick(S));
    state.trimmed(true, Duration::ZERO);
    assert_eq!(ceiling_after(&mut state, S, Some(1_560)), 765);
    tree.root().uncharge(ByteSize::new(100));
    for at in 1..1_000 {
        let ceiling = ceiling_after(&mut state, at * S, None);
        // Five minutes after the reading at 1 s.
        assert!(ceiling == 765 || at > 300, "{at} s: {ceiling}");
        assert!(!state.is_resident_due(at * S + 99_999_999) && state.is_resident_due(at * S + 100_000_000));
        state.tick(at * S);
    }
    assert_eq!((state.stats().ceiling.get(), state.stats().resident.unwrap().failed), (1_000, 999));
}

#[test]
fn without_a_reading_a_calm_ceiling_rises_no_further() {
    let mut state = world_with(800, None, Some(1_600)).state;
    state.raised_by_hand(S, Level::Critical);
    let lowered = state.stats().ceiling.get();
    // The level falls by one in 10 s each, and then the ceiling rises in steps of 2 s.
    state.tick(36 * S);
    let risen = state.stats().ceiling.get();
    assert!(state.stats().level == Level::Calm && lowered < risen && risen < 1_000, "{lowered} {risen}");
    for at in 36..100 {
        assert_eq!(ceiling_after(&mut state, at * S, None), risen, "{at} s");
        state.tick(at * S);
    }
    // The monitor started more than five minutes before.
    state.tick(1_000 * S);
    assert_eq!(state.stats().ceiling.get(), 1_000);
}

#[test]
fn a_failed_reading_holds_level_and_ceiling_between_steps_of_any_length() {
    let short = PressureConfig {
        floor: Some(ByteSize::ZERO),
        quiet: Duration::from_millis(20),
        step_time: Duration::from_millis(10),
        ..PressureConfig::default()
    };
    for of_cgroup in [true, false] {
        let watched = of_cgroup.then(|| watched("short"));
        let World { tree, mut state, .. } = world_of(short, 800, watched, (!of_cgroup).then_some(1_600));
        state.raised_by_hand(S, Level::Critical);
        // Nothing else is due: the usage has fallen, and the trim is over.
        tree.root().uncharge(ByteSize::new(800));
        assert!(state.tick(S));
        state.trimmed(true, Duration::ZERO);
        let lowered = state.stats().ceiling;
        let look = |state: &mut MonitorState, at: u64, well: bool| match state.take_watched(at, true) {
            Some(watched) => {
                let seen = if well { reading(Level::Calm, 0) } else { failed(ErrorKind::Other) };
                state.seen(at, watched, seen);
            }
            None => state.resident_seen(at, well.then_some(ByteSize::ZERO)),
        };
        look(&mut state, S, false);
        let next = if of_cgroup { S } else { S / 10 };
        for at in (S + 1..S + next).step_by(1_000_000) {
            let pause = state.pause(at).unwrap().time().unwrap();
            assert_eq!(at + pause.as_nanos() as u64, S + next, "the thread does not wake for a step");
            state.tick(at);
            assert_eq!((state.stats().level, state.stats().ceiling), (Level::Critical, lowered), "{of_cgroup} {at}");
        }
        // The times begin again with the reading that succeeds.
        look(&mut state, S + next, true);
        state.tick(S + next + 59_999_999);
        assert_eq!((state.stats().level, state.stats().ceiling), (Level::Low, lowered), "{of_cgroup}");
        state.tick(2 * S + next);
        assert_eq!(state.stats().ceiling.get(), 1_000, "{of_cgroup}");
        // And once no reading has succeeded for five minutes.
        state.raised_by_hand(3 * S, Level::Critical);
        look(&mut state, 3 * S, false);
        state.tick(300 * S);
        assert_eq!(state.stats().level, Level::Critical, "{of_cgroup}");
        state.tick(302 * S);
        assert_eq!(state.stats().ceiling.get(), 1_000, "{of_cgroup}");
    }
}

#[test]
fn the_budget_is_at_most_the_maximum_of_the_resident_memory() {
    let mut state = world_with(0, Some(watched("resident")), Some(700)).state;
    assert_eq!(state.budget().get(), 700);
    let watched = state.take_watched(0, true).unwrap();
    state.seen(1, watched, reading(Level::Calm, 0));
    state.set_budget(ByteSize::MAX);
    assert_eq!((state.budget().get(), state.asked()), (700, ByteSize::MAX));
}

#[test]
fn a_trim_that_takes_long_does_not_stop_the_control_groups_limit() {
    let mut state = world_with(800, Some(watched("long_trim")), Some(1_600)).state;
    ceiling_after(&mut state, S, Some(1_560));
    assert!(state.tick(S));
    state.trimmed(true, Duration::from_secs(1));
    state.freed(ByteSize::new(50));
    let watched = state.take_watched(S, true).unwrap();
    state.seen(S, watched, reading(Level::Critical, 100));
    assert_eq!(
        state.stats().ceiling.get(),
        700,
        "urgent: the next trim is due twice its duration after S, too late to wait for it"
    );
}

#[test]
fn an_excess_is_requested_once_until_freed_memory_is_returned() {
    let mut state = world(800, Some(watched("under_way"))).state;
    let ceiling_after = |state: &mut MonitorState, excess| {
        let watched = state.take_watched(0, true).unwrap();
        state.seen(1, watched, reading(Level::Medium, excess));
        state.stats().ceiling.get()
    };
    // Freed by the caches, and not yet returned to the system.
    state.freed(ByteSize::new(50));
    assert_eq!(ceiling_after(&mut state, 100), 1_000);
    assert!(state.tick(1), "it is time to trim");
    assert_eq!(ceiling_after(&mut state, 100), 700);
    // Requested from the caches, and not yet freed.
    assert!(state.fall.is_some() && state.trim.due(true).is_none());
    assert_eq!(ceiling_after(&mut state, 300), 700);
}

/// The reclaimer must not go on to a ceiling that is taken back.
#[test]
fn a_ceiling_that_rises_is_told_to_the_reclaimer() {
    let World { reclaimer, mut state, .. } = world(900, None);
    let told = || (reclaimer.0.load(Relaxed), reclaimer.1.load(Relaxed));
    state.set_budget(ByteSize::new(100));
    assert_eq!(told(), (1, 100));
    state.set_budget(ByteSize::new(1_000));
    assert_eq!((told(), state.memcg.max()), ((2, 1_000), ByteSize::new(1_000)));
    state.set_budget(ByteSize::new(950));
    state.set_budget(ByteSize::new(980));
    assert_eq!(told(), (2, 1_000), "a usage below the ceiling needs no reclaim");
    // At the usage, where the limit has stayed.
    state.set_budget(ByteSize::new(100));
    state.set_budget(ByteSize::new(900));
    assert_eq!(told(), (4, 900));
}
