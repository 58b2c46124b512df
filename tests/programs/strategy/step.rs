//! Generators of single steps: those without nested steps, those that arm callbacks, those with
//! nested steps.
//!
//! A change must keep the depth of nested steps at 2: each level multiplies the length of a
//! program.

use proptest::collection::vec;
use proptest::prelude::*;

use super::cache::caches;
use super::list::lists;
use super::mix::Mix;
use super::runtime::runtimes;
use crate::callback::{Action, Callback};
use crate::feature::{Feature, Features};
use crate::step::{Keep, Life, Scope, Step, Storage, CACHES, GROUPS, ITEMS, KEYS, LISTS};

/// Draws a step without nested steps.
fn leaf(mix: &Mix) -> BoxedStrategy<Step> {
    let (on, [of_caches, of_runtimes, of_lists, indexes, chains, ..]) = (mix.on, mix.weights);
    let times = u32::from(on.has(Feature::Times));
    prop_oneof![
        of_caches => caches(on),
        of_runtimes => runtimes(on),
        of_lists => lists(on),
        if on.has(Feature::Index) { indexes } else { 0 } => (0..KEYS, 0..14u8).prop_map(|(k, how)| Step::Index(k, how)),
        if on.has(Feature::Chains) { chains } else { 0 } => (0..KEYS, 0..10u8).prop_map(|(k, how)| Step::Chain(k, how)),
        2 => (0..8u8).prop_map(Step::Rcu),
        times => (0..12u8).prop_map(Step::Rest),
    ]
    .boxed()
}

/// Draws a step that arms a callback; if the switches forbid that action, a sweep.
fn arm(mix: &Mix) -> BoxedStrategy<Step> {
    let on = mix.on;
    let action = prop_oneof![
        if on.has(Feature::Panics) { 20 } else { 0 } => Just(Action::Panic),
        if on.has(Feature::Reentry) { 30 } else { 0 } => leaf(mix).prop_map(|step| Action::Do(Box::new(step))),
        1 => Just(Action::Do(Box::new(Step::Sweep))),
    ];
    let always = (0..CACHES, 0..2 * KEYS, any::<bool>()).prop_map(|(c, k, removes)| {
        let insert = Step::Insert { cache: c, key: k % KEYS, group: None, life: Life::Default, sets: false };
        let step = if removes { Step::Remove(c, k % KEYS) } else { insert };
        Step::Arm { callback: Callback::SharedDrop, after: 0, action: Action::Always(Box::new(step)) }
    });
    let uses = u32::from(on.has(Feature::DropsUseCaches));
    let callbacks = proptest::sample::select(mix.callbacks.clone());
    let armed = (callbacks, 0..6u8, action).prop_map(|(callback, after, action)| Step::Arm { callback, after, action });
    let armed = armed.prop_map(move |step| if is_on(on, &step) { step } else { Step::Sweep });
    prop_oneof![15 => armed, uses => always].boxed()
}

/// Returns whether the switches allow the armed action.
fn is_on(on: Features, step: &Step) -> bool {
    let Step::Arm { callback, action, .. } = step else { return true };
    match (callback, action) {
        (callback, Action::Do(_)) if callback.is_locked() => false,
        (Callback::ItemDrop, Action::Panic) => on.has(Feature::ItemDropPanics),
        (Callback::CaptureDrop, Action::Panic) => on.has(Feature::CapturePanics),
        (Callback::WalkLocked | Callback::Occupied, Action::Panic) => on.has(Feature::PanicsUnderLocks),
        (Callback::ThreadLocal, Action::Panic) => false,
        (Callback::ItemDrop | Callback::CaptureDrop, Action::Do(_)) => true,
        (callback, Action::Do(_)) if callback.is_drop() => on.has(Feature::DropsUseCaches),
        (Callback::Listener, Action::Do(step))
            if matches!(**step, Step::DropCache(_) | Step::Clone(..) | Step::Build(..)) =>
        {
            on.has(Feature::ListenersDropHandles)
        }
        _ => true,
    }
}

/// Draws an object to keep, and where.
fn keep(on: Features) -> BoxedStrategy<Step> {
    let mut all = vec![(Keep::Guard, Storage::Held), (Keep::Cache(0), Storage::Held), (Keep::Item(0), Storage::Held)];
    all.push((Keep::Group(0), Storage::Held));
    if on.has(Feature::Chains) {
        all.push((Keep::Reader, Storage::Held));
    }
    all.extend([(Keep::Charge, Storage::Held), (Keep::Charged, Storage::Held), (Keep::Value(0, 0), Storage::Held)]);
    for storage in [Storage::Early, Storage::Late] {
        all.extend([(Keep::Charge, storage), (Keep::Charged, storage), (Keep::Value(0, 0), storage)]);
        all.extend([(Keep::Group(0), storage), (Keep::Item(0), storage)]);
        if on.has(Feature::GuardsInThreadLocals) {
            all.extend([(Keep::Guard, storage), (Keep::Guard, storage)]);
            if on.has(Feature::Chains) {
                all.push((Keep::Reader, storage));
            }
        }
        if on.has(Feature::HandlesInThreadLocals) {
            all.push((Keep::Cache(0), storage));
        }
    }
    if on.has(Feature::LeakedGuards) {
        all.push((Keep::Guard, Storage::Leak));
    }
    (proptest::sample::select(all), 0..ITEMS)
        .prop_map(|((keep, storage), at)| {
            let keep = match keep {
                Keep::Cache(_) => Keep::Cache(at % CACHES),
                Keep::Group(_) => Keep::Group(at % GROUPS),
                Keep::Item(_) => Keep::Item(at),
                Keep::Value(..) => Keep::Value(at % CACHES, u32::from(at)),
                other => other,
            };
            Step::Keep(keep, storage)
        })
        .boxed()
}

/// Draws a scope. Only families have [`Scope::Threads`].
fn scope(on: Features) -> impl Strategy<Value = Scope> {
    let reader = u32::from(on.has(Feature::Chains));
    prop_oneof![
        1 => Just(Scope::Guard),
        reader => Just(Scope::Reader),
        2 => (0..CACHES).prop_map(Scope::Pinned),
        1 => (0..CACHES).prop_map(Scope::Iter),
        1 => (0..LISTS, 0..GROUPS, 0..3u8).prop_map(|(l, g, n)| Scope::Prepared(l, g, n)),
        1 => prop_oneof![2 => Just(Scope::NoReclaim), 1 => Just(Scope::Callback)],
        3 => Just(Scope::Thread),
    ]
}

/// Draws any step, with nested ones up to two levels deep.
pub fn step(mix: &Mix) -> BoxedStrategy<Step> {
    let (on, [.., arms, keeps]) = (mix.on, mix.weights);
    let flat = prop_oneof![100 => leaf(mix), arms => arm(mix), keeps => keep(on), 3 => Just(Step::Release)].boxed();
    let inner = prop_oneof![
        4 => flat.clone(),
        1 => (scope(on), vec(flat.clone(), 1..6)).prop_map(|(scope, steps)| Step::Within(scope, steps)),
    ];
    prop_oneof![
        60 => flat,
        10 => (scope(on), vec(inner, 1..10)).prop_map(|(scope, steps)| Step::Within(scope, steps)),
        1 => Just(Step::DropRuntime),
    ]
    .boxed()
}
