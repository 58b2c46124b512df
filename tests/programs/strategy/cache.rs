//! Generators of steps on caches.
//!
//! There are few slots and keys, so that different steps often act on the same entry. A step that
//! is added gets a weight by how often programs should contain it.

use proptest::option::weighted;
use proptest::prelude::*;

use crate::feature::{Feature, Features};
use crate::reload::ReloadForm;
use crate::step::{CacheChoices, ComputeAnswer, GroupLimit, Life, LoadForm, Loading, Step, CACHES, GROUPS, KEYS};

/// Draws `some` with this probability, which may be 0.
fn sometimes<S: Strategy + 'static>(probability: f64, some: S) -> BoxedStrategy<Option<S::Value>>
where
    S::Value: Clone,
{
    if probability > 0.0 {
        weighted(probability, some).boxed()
    } else {
        Just(None).boxed()
    }
}

const RELOADS: [ReloadForm; 7] = [
    ReloadForm::Load,
    ReloadForm::TryLoad,
    ReloadForm::Fill,
    ReloadForm::Fill,
    ReloadForm::Fails,
    ReloadForm::Dropped,
    ReloadForm::Pending,
];

const FORMS: [LoadForm; 8] = [
    LoadForm::Plain,
    LoadForm::Ref,
    LoadForm::Try,
    LoadForm::TryRef,
    LoadForm::Entry,
    LoadForm::EntryTry,
    LoadForm::EntryFill,
    LoadForm::Refresh,
];

fn life(on: Features) -> BoxedStrategy<Life> {
    if !on.has(Feature::Times) {
        return prop_oneof![3 => Just(Life::Default), 1 => Just(Life::Forever)].boxed();
    }
    prop_oneof![
        12 => Just(Life::Default),
        2 => Just(Life::Forever),
        1 => (0..30u8).prop_map(Life::Live),
        1 => (0..30u8).prop_map(Life::Idle),
    ]
    .boxed()
}

/// Draws the configuration of a cache.
pub fn choices(on: Features) -> impl Strategy<Value = CacheChoices> {
    let hashing = if on.has(Feature::LyingHashers) { 0..12u8 } else { 0..11 };
    let weights = prop_oneof![Just(0u16), 0..200u16, Just(4000u16), Just(40_000)];
    let booleans = (any::<bool>(), any::<bool>());
    let group = weighted(0.3, 0..GROUPS);
    let end = u32::from(on.has(Feature::ListenersDropHandles));
    let ends = prop_oneof![9 => Just(None), end => (0..CACHES).prop_map(Some)];
    let timed = if on.has(Feature::Times) { 0.15 } else { 0.0 };
    let short = || sometimes(timed, 0..30u8).prop_map(|ms| ms.unwrap_or(0));
    let times = (sometimes(timed, 1..30u8), short(), short(), sometimes(timed / 2.0, Just(())));
    let limits =
        prop_oneof![Just(GroupLimit::Min), Just(GroupLimit::Low), Just(GroupLimit::High), Just(GroupLimit::Max)];
    let limit = sometimes(if on.has(Feature::Pressure) { 0.15 } else { 0.0 }, (limits, 1..400u16));
    let parts =
        (0..8u8, 0..8u8, hashing, life(on), weights, booleans, weighted(0.2, 0..9u8), (group, ends, times, limit));
    parts.prop_map(|(kind, eviction, hashing, life, weight, (listens, costs), seeks, (group, ends, times, limit))| {
        let (idle, mut ahead, stale, computes) = times;
        if let Life::Live(ms) = life {
            ahead = ahead.min(ms.saturating_sub(1));
        }
        CacheChoices {
            idle: idle.filter(|_| matches!(life, Life::Live(_))),
            ahead,
            stale,
            computes_times: computes.is_some(),
            limit,
            kind,
            eviction,
            hashing,
            life,
            weight,
            listens,
            costs,
            seeks,
            group,
            ends,
        }
    })
}

/// Draws a step on caches.
pub fn caches(on: Features) -> BoxedStrategy<Step> {
    let (c, k, g) = (0..CACHES, 0..KEYS, || weighted(0.4, 0..GROUPS));
    let answer = prop_oneof![
        Just(ComputeAnswer::Put),
        Just(ComputeAnswer::Update),
        Just(ComputeAnswer::Remove),
        Just(ComputeAnswer::Keep)
    ];
    let loading = (proptest::sample::select(FORMS.to_vec()), weighted(0.3, Just(())), weighted(0.3, 0..3u8))
        .prop_map(|(form, fails, polls)| Loading { form, fails: fails.is_some(), polls });
    // Often of one tenant, and with repeated keys.
    let keys = (0..KEYS, 1..4u32, 1..7u32).prop_map(|(first, by, count)| {
        let keys = (0..count).map(|at| (first + at * by) % KEYS);
        keys.chain((count > 4).then_some(first)).collect::<Vec<_>>()
    });
    let (c, k) = (|| c.clone(), || k.clone());
    prop_oneof![
        4 => (c(), choices(on)).prop_map(|(c, choices)| Step::Build(c, choices)),
        1 => (c(), c()).prop_map(|(from, to)| Step::Clone(from, to)),
        1 => c().prop_map(Step::DropCache),
        12 => (c(), k(), g(), life(on), weighted(0.2, Just(())))
            .prop_map(|(cache, key, group, life, sets)| Step::Insert { cache, key, group, life, sets: sets.is_some() }),
        1 => (c(), k()).prop_map(|(c, k)| Step::GetOrRefresh(c, k)),
        1 => proptest::sample::select(RELOADS.to_vec()).prop_map(Step::Reload),
        3 => prop_oneof![6 => 0..20u16, 1 => 0..200u16, 1 => Just(1500)].prop_map(Step::Advance),
        1 => (c(), keys.clone()).prop_map(|(c, keys)| Step::GetMany(c, keys)),
        2 => (c(), keys, any::<bool>(), weighted(0.2, Just(())), any::<bool>())
            .prop_map(|(cache, keys, fills, fails, is_async)| {
                Step::LoadMany { cache, keys, fills, fails: fails.is_some(), is_async }
            }),
        2 => (c(), 1..600u16, g()).prop_map(|(cache, count, group)| Step::Many { cache, count, group }),
        8 => (c(), k()).prop_map(|(c, k)| Step::Get(c, k)),
        2 => (c(), k()).prop_map(|(c, k)| Step::Peek(c, k)),
        1 => (c(), k()).prop_map(|(c, k)| Step::Contains(c, k)),
        4 => (c(), k()).prop_map(|(c, k)| Step::Remove(c, k)),
        1 => (c(), k(), life(on)).prop_map(|(c, k, life)| Step::Touch(c, k, life)),
        3 => (c(), k(), loading).prop_map(|(c, k, loading)| Step::Load(c, k, loading)),
        3 => (c(), k(), answer, g(), life(on))
            .prop_map(|(cache, key, answer, group, life)| Step::Compute { cache, key, answer, group, life }),
        1 => (c(), 1..4u32).prop_map(|(c, n)| Step::Retain(c, n)),
        1 => c().prop_map(Step::Clear),
        2 => c().prop_map(Step::Churn),
        1 => c().prop_map(Step::Collect),
        1 => (c(), 1..5u8).prop_map(|(c, n)| Step::Visit(c, n)),
        1 => c().prop_map(Step::Save),
        1 => c().prop_map(Step::LoadSaved),
        1 => c().prop_map(Step::Look),
    ]
    .boxed()
}
