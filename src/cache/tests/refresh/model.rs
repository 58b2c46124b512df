//! Random calls, compared with a model of the documented rules.
//!
//! Each new rule, and each new way to remove or replace an entry, must become a step here. The
//! model's 10, 3 and 5 seconds are the times of the cache in `../refresh.rs`, and its second before
//! a further reload is `RETRY` in `load/retry_times.rs`.

use super::*;

/// The entry and its reloads, by the documented rules.
#[derive(Default)]
struct Model {
    now: u32,
    /// The value, when it expires, and whether a reload of it has begun.
    entry: Option<(u64, u32, bool)>,
    /// For each reload: whether it was stopped.
    stopped: Vec<bool>,
    /// The reload that other callers find in progress.
    current: Option<usize>,
    /// The time before which no further reload begins.
    retry: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Insert,
    Remove,
    Clear,
    Get,
    Load,
    Ask,
    Finish(usize),
    Fail(usize),
    Advance(u32),
    Touch,
    Evict,
}

impl Model {
    fn live(&self) -> Option<u64> {
        self.entry.filter(|(_, end, _)| self.now < *end).map(|(value, _, _)| value)
    }

    fn stop(&mut self) {
        if let Some(current) = self.current {
            self.stopped[current] = true;
        }
    }

    fn put(&mut self, value: u64) {
        self.entry = Some((value, self.now + 10, false));
    }

    fn end(&mut self, number: usize) {
        self.current = self.current.filter(|current| *current != number);
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Insert),
        1 => Just(Step::Remove),
        1 => Just(Step::Clear),
        2 => Just(Step::Get),
        2 => Just(Step::Load),
        6 => Just(Step::Ask),
        4 => (0..4_usize).prop_map(Step::Finish),
        2 => (0..4_usize).prop_map(Step::Fail),
        6 => (1..5_u32).prop_map(Step::Advance),
        1 => Just(Step::Touch),
        1 => Just(Step::Evict),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_random_history_of_reloads_follows_the_rules(steps in prop::collection::vec(step(), 1..120)) {
        let clock = ManualClock::new();
        let cache = cache(&clock);
        let mut model = Model::default();
        let mut open: Vec<(usize, Refresh<u64, u64>)> = Vec::new();
        for (value, step) in (1..).zip(steps) {
            match step {
                Step::Insert => {
                    prop_assert_eq!(cache.insert(1, value).unwrap(), model.live());
                    // A live entry has no load in flight but its own reload.
                    if model.live().is_none() || matches!(model.entry, Some((_, _, true))) {
                        model.stop();
                    }
                    model.put(value);
                }
                Step::Remove => {
                    prop_assert_eq!(cache.remove(&1), model.live());
                    model.stop();
                    model.entry = None;
                }
                Step::Clear => {
                    cache.clear();
                    model.stop();
                    model.entry = None;
                }
                Step::Get => prop_assert_eq!(cache.get(&1), model.live()),
                Step::Load => {
                    let live = model.live();
                    prop_assert_eq!(cache.get_or_insert_with(1, || value), live.unwrap_or(value));
                    if live.is_none() {
                        // The load takes the place of a reload whose load has not begun.
                        if let Some(current) = model.current.take() {
                            model.stopped[current] = true;
                        }
                        model.put(value);
                    }
                }
                Step::Ask => {
                    let hit = cache.get_or_refresh(&1);
                    let is_chosen = model.entry.is_some_and(|(_, end, _)| end < model.now + 3)
                        && model.current.is_none() && model.retry <= model.now;
                    let seen = hit.as_ref().map(|hit| (hit.value, hit.is_stale, hit.refresh.is_some()));
                    let expected = model.entry.map(|(value, end, _)| (value, end <= model.now, is_chosen));
                    prop_assert_eq!(seen, expected);
                    if let Some(refresh) = hit.and_then(|hit| hit.refresh) {
                        model.current = Some(model.stopped.len());
                        open.push((model.stopped.len(), refresh));
                        model.stopped.push(false);
                        model.retry = model.now + 1;
                        model.entry = model.entry.map(|(value, end, _)| (value, end, true));
                    }
                }
                Step::Finish(at) if !open.is_empty() => {
                    let (number, refresh) = open.swap_remove(at % open.len());
                    prop_assert_eq!(refresh.load_with(|| value), value);
                    if !model.stopped[number] && model.entry.is_none_or(|(_, _, is_reloading)| is_reloading) {
                        model.put(value);
                        model.retry = 0;
                    }
                    model.end(number);
                }
                Step::Fail(at) if !open.is_empty() => {
                    let (number, refresh) = open.swap_remove(at % open.len());
                    prop_assert!(refresh.try_load_with(|| Err(())).is_err());
                    model.end(number);
                }
                Step::Finish(_) | Step::Fail(_) => {}
                Step::Advance(seconds) => {
                    clock.advance(SECOND * seconds);
                    model.now += seconds;
                    model.entry = model.entry.filter(|(_, end, _)| model.now < end + 5);
                }
                Step::Touch => {
                    let live = model.live();
                    prop_assert_eq!(cache.touch(&1, Some(4 * SECOND)), live.is_some());
                    if live.is_some() {
                        model.entry = model.entry.map(|(value, _, is_reloading)| (value, model.now + 4, is_reloading));
                    }
                }
                Step::Evict => {
                    evict(&cache);
                    model.entry = None;
                }
            }
            prop_assert_eq!(cache.len(), usize::from(model.entry.is_some()));
            cache.inner.core.queues.assert_valid();
        }
        cache.clear();
        cache.runtime().tree().drain_stock();
        prop_assert_eq!(cache.runtime().root().usage(), ByteSize::ZERO);
    }
}
