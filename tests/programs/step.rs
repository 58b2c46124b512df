//! Steps of programs, and how they are drawn.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

use crate::callback::{self, Callback, Deed};
use crate::feature::{Feature, Features};

/// Places for caches, groups, lists, items.
pub const CACHES: u8 = 4;
pub const GROUPS: u8 = 8;
pub const LISTS: u8 = 3;
pub const ITEMS: u8 = 16;
/// Keys that the model knows; callbacks write others.
pub const KEYS: u32 = 24;

/// A time for an entry.
#[derive(Clone, Copy, Debug)]
pub enum Life {
    Default,
    Forever,
    Live(u8),
    Idle(u8),
}

/// How a cache is built.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Of types of keys and values.
    pub kind: u8,
    pub eviction: u8,
    pub hashing: u8,
    pub life: Life,
    pub weight: u16,
    pub listens: bool,
    pub costs: bool,
    pub seeks: Option<u8>,
    pub group: Option<u8>,
    /// The listener drops the handle in this place when it is called first.
    pub ends: Option<u8>,
}

/// How a value is loaded.
#[derive(Clone, Copy, Debug)]
pub enum Loading {
    Value,
    TryOk,
    TryErr,
    /// As a future that is pending so often, and dropped after two polls.
    #[cfg_attr(not(feature = "async"), expect(dead_code, reason = "without the feature it is a load as others"))]
    Async(u8),
}

/// What a computation answers.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    Put,
    Update,
    Remove,
    Keep,
}

/// Which limit of a group.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    Min,
    Low,
    High,
    Max,
}

/// What a walk does with an item.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    Isolate,
    Rotate,
    Skip,
    Retry,
    RemoveRetry,
    Stop,
    RemoveStop,
}

/// What is kept across steps, on this thread.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    Guard,
    Reader,
    Cache(u8),
    Group(u8),
    Item(u8),
}

/// Where it is kept.
#[derive(Clone, Copy, Debug)]
pub enum Shelf {
    /// Until [`Step::Release`].
    Held,
    /// In a thread-local that is made before those of the library.
    Early,
    /// In one that is made when it is needed.
    Late,
    /// Nowhere: it is forgotten.
    Leak,
}

/// What is held for some steps.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    Guard,
    Reader,
    Pinned(u8),
    Iter(u8),
    Prepared(u8, u8, u8),
    NoReclaim,
    /// On another thread, which is waited for.
    Thread,
    /// Each step on a thread of its own, at the same time.
    Threads,
}

/// One step. Numbers name places; where nothing is, nothing is done.
#[derive(Clone, Debug)]
pub enum Step {
    Build(u8, Choices),
    Clone(u8, u8),
    DropCache(u8),
    Insert {
        cache: u8,
        key: u32,
        group: Option<u8>,
        life: Life,
    },
    Many {
        cache: u8,
        count: u16,
        group: Option<u8>,
    },
    Get(u8, u32),
    Peek(u8, u32),
    Contains(u8, u32),
    Remove(u8, u32),
    Touch(u8, u32, Life),
    Load(u8, u32, Loading),
    Compute {
        cache: u8,
        key: u32,
        answer: Answer,
        group: Option<u8>,
        life: Life,
    },
    Retain(u8, u32),
    Clear(u8),
    /// Removes every key, drops what can be dropped, and puts others: memory that a reader still has is used again.
    Churn(u8),
    Collect(u8),
    Visit(u8, u8),
    Save(u8),
    LoadSaved(u8),
    Look(u8),
    Budget(u16),
    Reclaim(u8, u16),
    DropCaches,
    Shrink(u8, u8, u8),
    Direct(u8),
    PayDebts(u8, u8),
    Sweep,
    Survey,
    DebtListener(bool),
    Charge(u8, u16),
    Uncharge,
    DrainStock,
    Make(u8, u8, u8),
    Find(u8, u8),
    Limits(u8, Limit, u16),
    End(u8),
    Offline(u8),
    DropGroup(u8),
    ForgetGroup(u8),
    LookAtGroup(u8),
    Hook(bool),
    MakeList(u8, u8),
    DropList(u8),
    Register(u8, u8),
    Unregister(u8),
    Item(u8),
    DropItem(u8),
    Add {
        list: u8,
        item: u8,
        group: u8,
        node: u8,
    },
    AddBox {
        list: u8,
        group: u8,
        node: u8,
        count: u8,
    },
    Del(u8, u8),
    DelWhose(u8, u8),
    DelMany(u8),
    Replace(u8, u8, u8),
    TouchItem(u8, u8),
    Walk {
        list: u8,
        group: Option<u8>,
        node: u8,
        nr: u8,
        turns: Vec<Turn>,
    },
    AddIsolated(u8, u8, u8),
    PopIsolated,
    DropIsolated,
    Index(u32, u8),
    Chain(u32, u8),
    Rest(u8),
    Arm {
        callback: Callback,
        after: u8,
        deed: Deed,
    },
    Keep(Keep, Shelf),
    Release,
    DropRuntime,
    /// Checks that the keeper ends dropped groups.
    Keeper,
    Within(Scope, Vec<Step>),
}

/// The runtime that a program begins with.
#[derive(Clone, Debug)]
pub struct Shape {
    pub budget_kib: u32,
    pub nodes: u8,
    /// Is the runtime there until all else has gone?
    pub keeps_runtime: bool,
}

/// A program: steps of the first thread, and of those beside it.
#[derive(Clone, Debug)]
pub struct Program {
    pub shape: Shape,
    pub steps: Vec<Step>,
    pub beside: Vec<Vec<Step>>,
    /// In which order everything is dropped at the end.
    pub ending: [u8; 6],
}

impl Program {
    /// The program with those of its steps alone, which are counted with all steps inside of others.
    pub fn only(&self, keeps: &dyn Fn(usize) -> bool) -> Self {
        fn only(steps: &[Step], at: &mut usize, keeps: &dyn Fn(usize) -> bool) -> Vec<Step> {
            let mut kept = Vec::new();
            for step in steps {
                let keeps_it = keeps(*at);
                *at += 1;
                match step {
                    Step::Within(scope, steps) => {
                        let inner = only(steps, at, keeps);
                        if keeps_it {
                            kept.push(Step::Within(*scope, inner));
                        } else {
                            kept.extend(inner);
                        }
                    }
                    step if keeps_it => kept.push(step.clone()),
                    _ => {}
                }
            }
            kept
        }
        let mut at = 0;
        let steps = only(&self.steps, &mut at, keeps);
        let beside = self.beside.iter().map(|steps| only(steps, &mut at, keeps)).collect();
        Self { steps, beside, ..self.clone() }
    }

    /// How many steps there are, those inside of others included.
    pub fn len(&self) -> usize {
        let count = std::cell::Cell::new(0);
        self.only(&|at| {
            count.set(at + 1);
            true
        });
        count.get()
    }
}

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

fn choices(on: Features) -> impl Strategy<Value = Choices> {
    let hashing = if on.has(Feature::LyingHashers) { 0..12u8 } else { 0..11 };
    let weights = prop_oneof![Just(0u16), 0..200u16, Just(4000u16), Just(40_000)];
    let booleans = (any::<bool>(), any::<bool>());
    let group = weighted(0.3, 0..GROUPS);
    let end = u32::from(on.has(Feature::ListenersDropHandles));
    let ends = prop_oneof![9 => Just(None), end => (0..CACHES).prop_map(Some)];
    let parts = (0..5u8, 0..8u8, hashing, life(on), weights, booleans, weighted(0.2, 0..9u8), (group, ends));
    parts.prop_map(|(kind, eviction, hashing, life, weight, (listens, costs), seeks, (group, ends))| Choices {
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
    })
}

fn caches(on: Features) -> BoxedStrategy<Step> {
    let (c, k, g) = (0..CACHES, 0..KEYS, || weighted(0.4, 0..GROUPS));
    let answer = prop_oneof![Just(Answer::Put), Just(Answer::Update), Just(Answer::Remove), Just(Answer::Keep)];
    let loading = prop_oneof![
        Just(Loading::Value),
        Just(Loading::TryOk),
        Just(Loading::TryErr),
        (0..3u8).prop_map(Loading::Async)
    ];
    let (c, k) = (|| c.clone(), || k.clone());
    prop_oneof![
        4 => (c(), choices(on)).prop_map(|(c, choices)| Step::Build(c, choices)),
        1 => (c(), c()).prop_map(|(from, to)| Step::Clone(from, to)),
        1 => c().prop_map(Step::DropCache),
        12 => (c(), k(), g(), life(on)).prop_map(|(cache, key, group, life)| Step::Insert { cache, key, group, life }),
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

fn runtimes(on: Features) -> BoxedStrategy<Step> {
    let (g, n) = (|| 0..GROUPS, || 0..3u8);
    let limit = prop_oneof![Just(Limit::Min), Just(Limit::Low), Just(Limit::High), Just(Limit::Max)];
    let calm = prop_oneof![
        1 => Just(Step::Sweep),
        1 => Just(Step::Survey),
        1 => Just(Step::DrainStock),
        1 => any::<bool>().prop_map(Step::DebtListener),
        1 => any::<bool>().prop_map(Step::Hook),
        2 => (g(), 0..5000u16).prop_map(|(g, bytes)| Step::Charge(g, bytes)),
        2 => Just(Step::Uncharge),
        5 => (g(), g(), 0..4u8).prop_map(|(g, parent, name)| Step::Make(g, parent, name)),
        2 => (g(), 0..4u8).prop_map(|(g, name)| Step::Find(g, name)),
        1 => g().prop_map(Step::ForgetGroup),
        1 => g().prop_map(Step::LookAtGroup),
    ];
    let pressure = prop_oneof![
        2 => (g(), limit, 0..600u16).prop_map(|(g, limit, kib)| Step::Limits(g, limit, kib)),
        1 => (1..3000u16).prop_map(Step::Budget),
        2 => (g(), 0..200u16).prop_map(|(g, kib)| Step::Reclaim(g, kib)),
        1 => Just(Step::DropCaches),
        1 => (g(), n(), 0..12u8).prop_map(|(g, node, priority)| Step::Shrink(g, node, priority)),
        1 => g().prop_map(Step::Direct),
        1 => (g(), n()).prop_map(|(g, node)| Step::PayDebts(g, node)),
    ];
    let end = prop_oneof![g().prop_map(Step::End), g().prop_map(Step::Offline), g().prop_map(Step::DropGroup)];
    prop_oneof![
        12 => calm,
        if on.has(Feature::Pressure) { 6 } else { 0 } => pressure,
        if on.has(Feature::GroupsEnd) { 2 } else { 0 } => end,
    ]
    .boxed()
}

fn lists(on: Features) -> BoxedStrategy<Step> {
    let (l, i, g, n) = (|| 0..LISTS, || 0..ITEMS, || 0..GROUPS, || 0..3u8);
    let turn = prop_oneof![
        Just(Turn::Isolate),
        Just(Turn::Rotate),
        Just(Turn::Skip),
        Just(Turn::Retry),
        Just(Turn::RemoveRetry),
        Just(Turn::Stop),
        Just(Turn::RemoveStop),
    ];
    let has_shrinkers = on.has(Feature::Shrinkers);
    let shrinker = move |step: Step| if has_shrinkers { step } else { Step::Sweep };
    prop_oneof![
        3 => (l(), 0..4u8).prop_map(|(l, how)| Step::MakeList(l, how)),
        1 => l().prop_map(Step::DropList),
        2 => (l(), 0..8u8).prop_map(move |(l, how)| shrinker(Step::Register(l, how))),
        2 => l().prop_map(move |l| shrinker(Step::Unregister(l))),
        5 => i().prop_map(Step::Item),
        1 => i().prop_map(Step::DropItem),
        10 => (l(), i(), g(), n()).prop_map(|(list, item, group, node)| Step::Add { list, item, group, node }),
        3 => (l(), g(), n(), 1..40u8)
            .prop_map(|(list, group, node, count)| Step::AddBox { list, group, node, count }),
        3 => (l(), i()).prop_map(|(l, i)| Step::Del(l, i)),
        1 => (l(), i()).prop_map(|(l, i)| Step::DelWhose(l, i)),
        1 => l().prop_map(Step::DelMany),
        1 => (l(), i(), i()).prop_map(|(l, i, by)| Step::Replace(l, i, by)),
        1 => (l(), i()).prop_map(|(l, i)| Step::TouchItem(l, i)),
        4 => (l(), weighted(0.8, g()), n(), 0..30u8, vec(turn, 1..5))
            .prop_map(|(list, group, node, nr, turns)| Step::Walk { list, group, node, nr, turns }),
        1 => (l(), g(), n()).prop_map(|(l, g, n)| Step::AddIsolated(l, g, n)),
        1 => Just(Step::PopIsolated),
        1 => Just(Step::DropIsolated),
    ]
    .boxed()
}

/// What a program is made of: each has its own mix, so that some do much of what is rare.
#[derive(Clone, Debug)]
struct Mix {
    on: Features,
    /// Weights of caches, the runtime, lists, indexes, chains, armed callbacks, things that are kept.
    weights: [u32; 7],
    /// The callbacks that are armed.
    callbacks: Vec<Callback>,
    /// The weight of families of steps, beside 100 for single steps.
    families: u32,
}

fn mix(on: Features) -> impl Strategy<Value = Mix> {
    // Two of three features, and a family of steps in three out of four.
    let masks = (any::<u32>(), any::<u32>()).prop_map(|(a, b)| a | b);
    let weight = || prop_oneof![1 => Just(0u32), 3 => 1..30u32];
    let weights = (5..40u32, weight(), weight(), weight(), weight(), 1..25u32, 1..25u32);
    let callbacks = vec(proptest::sample::select(callback::ALL.to_vec()), 1..6);
    let families = prop_oneof![Just(0u32), 2..20u32];
    (masks, weights, callbacks, families).prop_map(move |(mask, (a, b, c, d, e, f, g), callbacks, families)| Mix {
        on: on.and(mask),
        weights: [a, b, c, d, e, f, g],
        callbacks,
        families,
    })
}

/// A step that holds no others.
fn leaf(mix: &Mix) -> BoxedStrategy<Step> {
    let (on, [of_caches, of_runtimes, of_lists, indexes, chains, ..]) = (mix.on, mix.weights);
    let times = u32::from(on.has(Feature::Times));
    prop_oneof![
        of_caches => caches(on),
        of_runtimes => runtimes(on),
        of_lists => lists(on),
        if on.has(Feature::Index) { indexes } else { 0 } => (0..KEYS, 0..8u8).prop_map(|(k, how)| Step::Index(k, how)),
        if on.has(Feature::Chains) { chains } else { 0 } => (0..KEYS, 0..10u8).prop_map(|(k, how)| Step::Chain(k, how)),
        times => (0..12u8).prop_map(Step::Rest),
    ]
    .boxed()
}

fn arm(mix: &Mix) -> BoxedStrategy<Step> {
    let on = mix.on;
    let deed = prop_oneof![
        if on.has(Feature::Panics) { 20 } else { 0 } => Just(Deed::Panic),
        if on.has(Feature::Reentry) { 30 } else { 0 } => leaf(mix).prop_map(|step| Deed::Do(Box::new(step))),
        1 => Just(Deed::Do(Box::new(Step::Sweep))),
    ];
    let always = (0..CACHES, 0..2 * KEYS, any::<bool>()).prop_map(|(c, k, removes)| {
        let insert = Step::Insert { cache: c, key: k % KEYS, group: None, life: Life::Default };
        let step = if removes { Step::Remove(c, k % KEYS) } else { insert };
        Step::Arm { callback: Callback::SharedDrop, after: 0, deed: Deed::Always(Box::new(step)) }
    });
    let uses = u32::from(on.has(Feature::DropsUseCaches));
    let callbacks = proptest::sample::select(mix.callbacks.clone());
    let armed = (callbacks, 0..6u8, deed).prop_map(|(callback, after, deed)| Step::Arm { callback, after, deed });
    let armed = armed.prop_map(move |step| if is_on(on, &step) { step } else { Step::Sweep });
    prop_oneof![15 => armed, uses => always].boxed()
}

/// Do the switches allow what is armed?
fn is_on(on: Features, step: &Step) -> bool {
    let Step::Arm { callback, deed, .. } = step else { return true };
    match (callback, deed) {
        (callback, Deed::Do(_)) if callback.is_locked() => false,
        (Callback::ItemDrop, Deed::Panic) => on.has(Feature::ItemDropPanics),
        (Callback::CaptureDrop, Deed::Panic) => on.has(Feature::CapturePanics),
        (Callback::WalkLocked | Callback::Occupied, Deed::Panic) => on.has(Feature::PanicsUnderLocks),
        (Callback::ThreadLocal, Deed::Panic) => false,
        (Callback::ItemDrop | Callback::CaptureDrop, Deed::Do(_)) => true,
        (callback, Deed::Do(_)) if callback.is_drop() => on.has(Feature::DropsUseCaches),
        (Callback::Listener, Deed::Do(step))
            if matches!(**step, Step::DropCache(_) | Step::Clone(..) | Step::Build(..)) =>
        {
            on.has(Feature::ListenersDropHandles)
        }
        _ => true,
    }
}

fn keep(on: Features) -> BoxedStrategy<Step> {
    let mut all = vec![(Keep::Guard, Shelf::Held), (Keep::Cache(0), Shelf::Held), (Keep::Item(0), Shelf::Held)];
    all.push((Keep::Group(0), Shelf::Held));
    if on.has(Feature::Chains) {
        all.push((Keep::Reader, Shelf::Held));
    }
    for shelf in [Shelf::Early, Shelf::Late] {
        all.extend([(Keep::Group(0), shelf), (Keep::Item(0), shelf)]);
        if on.has(Feature::GuardsInThreadLocals) {
            all.extend([(Keep::Guard, shelf), (Keep::Guard, shelf)]);
            if on.has(Feature::Chains) {
                all.push((Keep::Reader, shelf));
            }
        }
        if on.has(Feature::HandlesInThreadLocals) {
            all.push((Keep::Cache(0), shelf));
        }
    }
    if on.has(Feature::LeakedGuards) {
        all.push((Keep::Guard, Shelf::Leak));
    }
    (proptest::sample::select(all), 0..ITEMS)
        .prop_map(|((keep, shelf), at)| {
            let keep = match keep {
                Keep::Cache(_) => Keep::Cache(at % CACHES),
                Keep::Group(_) => Keep::Group(at % GROUPS),
                Keep::Item(_) => Keep::Item(at),
                other => other,
            };
            Step::Keep(keep, shelf)
        })
        .boxed()
}

fn scope(on: Features) -> impl Strategy<Value = Scope> {
    let reader = u32::from(on.has(Feature::Chains));
    prop_oneof![
        1 => Just(Scope::Guard),
        reader => Just(Scope::Reader),
        2 => (0..CACHES).prop_map(Scope::Pinned),
        1 => (0..CACHES).prop_map(Scope::Iter),
        1 => (0..LISTS, 0..GROUPS, 0..3u8).prop_map(|(l, g, n)| Scope::Prepared(l, g, n)),
        1 => Just(Scope::NoReclaim),
        3 => Just(Scope::Thread),
    ]
}

fn step(mix: &Mix) -> BoxedStrategy<Step> {
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

/// A family: steps that are rarely drawn one after the other, and of which defects are made.
fn family(mix: &Mix) -> BoxedStrategy<Vec<Step>> {
    let on = mix.on;
    let on = |feature| u32::from(on.has(feature));
    prop_oneof![
        1 => Just(vec![Step::Keeper]),
        3 * on(Feature::Chains) => moves_between_chains(),
        3 * on(Feature::TwoTrees) => two_trees_in_a_list(mix.on),
        2 * on(Feature::CapturePanics) => keeper_drops_captures(),
        2 * on(Feature::ListenersDropHandles) => caches_end_each_other(),
    ]
    .boxed()
}

/// A reader of the first table stands on names while they move to the second, which is dropped.
fn moves_between_chains() -> BoxedStrategy<Vec<Step>> {
    let names = vec((0..KEYS, any::<bool>()), 1..6).prop_map(|names| {
        // A new name, or the one that is there.
        let names =
            names.into_iter().map(|(key, is_new)| [is_new.then_some(Step::Chain(key, 4)), Some(Step::Chain(key, 0))]);
        names.flatten().flatten().collect::<Vec<_>>()
    });
    let change = prop_oneof![
        3 => Just(5u8),
        3 => Just(7),
        1 => Just(6),
        1 => 0..10u8,
    ];
    let changes = vec((0..KEYS, change).prop_map(|(key, how)| Step::Chain(key, how)), 2..7);
    (names, changes, any::<bool>())
        .prop_map(|(mut steps, mut changes, on_thread)| {
            if on_thread {
                changes = vec![Step::Within(Scope::Thread, changes)];
            }
            steps.push(Step::Within(Scope::Reader, changes));
            steps
        })
        .boxed()
}

/// Groups of two trees, which have the same ids, in one list.
fn two_trees_in_a_list(on: Features) -> BoxedStrategy<Vec<Step>> {
    let groups = || proptest::sample::select(vec![0u8, 1, 6, 7]);
    let end = if on.has(Feature::GroupsEnd) { 2 } else { 0 };
    let some = (groups(), 0..3u8, 1..12u8);
    let turns = vec(prop_oneof![Just(Turn::Isolate), Just(Turn::Skip), Just(Turn::Rotate)], 1..4);
    (0..LISTS, 0..4u8, 0..4u8)
        .prop_flat_map(move |(list, how, name)| {
            let add = move |(group, node, count)| Step::AddBox { list, group, node, count };
            let walk = move |((group, node, nr), turns)| Step::Walk { list, group: Some(group), node, nr, turns };
            let step = prop_oneof![
                6 => some.clone().prop_map(add),
                3 => (some.clone(), turns.clone()).prop_map(walk),
                end => groups().prop_map(Step::Offline),
            ];
            vec(step, 3..12).prop_map(move |steps| {
                let mut all = vec![Step::MakeList(list, how), Step::Find(0, 0), Step::Find(1, 1)];
                all.extend([Step::Make(6, 0, name), Step::Make(7, 0, 1)]);
                all.extend(steps);
                all
            })
        })
        .boxed()
}

fn listening(ends: u8) -> Choices {
    Choices {
        kind: 0,
        eviction: ends,
        hashing: 2,
        life: Life::Default,
        weight: 100,
        listens: true,
        costs: false,
        seeks: None,
        group: None,
        ends: Some(ends),
    }
}

fn in_group(cache: u8, group: u8, keys: u32) -> impl Iterator<Item = Step> {
    (0..keys).map(move |key| Step::Insert { cache, key, group: Some(group), life: Life::Default })
}

/// The keeper's thread drops the last handle on a cache, and with it what panics in its `Drop`.
fn keeper_drops_captures() -> BoxedStrategy<Vec<Step>> {
    (0..CACHES, 0..6u8, 0..4u8, 0..3u8)
        .prop_map(|(cache, group, name, after)| {
            let mut steps = vec![Step::Find(group, name), Step::Build(cache, listening(cache))];
            steps.extend(in_group(cache, group, 3));
            steps.push(Step::Arm { callback: Callback::CaptureDrop, after, deed: Deed::Panic });
            steps.extend([Step::DropGroup(group), Step::Keeper]);
            steps
        })
        .boxed()
}

/// Two caches whose listeners drop each other's last handle, on two threads.
fn caches_end_each_other() -> BoxedStrategy<Vec<Step>> {
    (0..CACHES, 1..CACHES, 0..3u8)
        .prop_map(|(one, further, how)| {
            let other = (one + further) % CACHES;
            let mut steps = vec![Step::Find(0, 0), Step::Find(1, 1)];
            steps.extend([Step::Build(one, listening(other)), Step::Build(other, listening(one))]);
            steps.extend(in_group(one, 0, 3).chain(in_group(other, 1, 3)));
            let all = u16::MAX;
            let threads = match how {
                0 => vec![Step::Reclaim(0, all), Step::Reclaim(1, all)],
                1 => vec![Step::Reclaim(0, all), Step::DropGroup(1)],
                _ => vec![Step::DropGroup(1), Step::DropGroup(0), Step::Reclaim(0, all)],
            };
            steps.push(Step::Within(Scope::Threads, threads));
            steps.push(Step::Keeper);
            steps
        })
        .boxed()
}

/// A step, or a family of steps.
fn some_steps(mix: &Mix) -> BoxedStrategy<Vec<Step>> {
    prop_oneof![100 => step(mix).prop_map(|step| vec![step]), mix.families => family(mix)].boxed()
}

/// Programs with these features, of so many steps at most.
pub fn programs(on: Features, is_threaded: bool, steps: usize) -> BoxedStrategy<Program> {
    mix(on).prop_flat_map(move |mix| mixed(&mix, is_threaded, steps)).boxed()
}

fn mixed(mix: &Mix, is_threaded: bool, steps: usize) -> BoxedStrategy<Program> {
    let on = mix.on;
    let budgets = if on.has(Feature::Pressure) {
        prop_oneof![3 => Just(1u32 << 20), 1 => Just(16 << 10), 1 => 64..2048u32, 1 => 1..64u32].boxed()
    } else {
        Just(1u32 << 20).boxed()
    };
    let shape = (budgets, 1..4u8, any::<bool>()).prop_map(|(budget_kib, nodes, keeps_runtime)| Shape {
        budget_kib,
        nodes,
        keeps_runtime,
    });
    let threads = if is_threaded && on.has(Feature::Threads) { 1..4 } else { 0..1 };
    let beside = vec(vec(some_steps(mix), 1..steps).prop_map(|steps| steps.concat()), threads);
    let ending = Just([0u8, 1, 2, 3, 4, 5]).prop_shuffle();
    // Something to work with comes first.
    let first = vec((0..CACHES, choices(on)).prop_map(|(c, choices)| Step::Build(c, choices)), 1..4);
    (shape, first, vec(some_steps(mix), 1..steps), beside, ending)
        .prop_map(|(shape, mut first, steps, beside, ending)| {
            first.extend(steps.concat());
            Program { shape, steps: first, beside, ending }
        })
        .boxed()
}
