//! Runs steps, and compares what comes of them with the model.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lowwater::{Bytes, Isolated, Memcg, MemcgTree, Runtime};
use lowwater_lru_core::chains::Reader;
use lowwater_lru_core::{pin, OfflineHook};
use lowwater_shrinker::budget::Kick;
use lowwater_shrinker::{DebtListener, Reclaim, Work};

use crate::cache::{self, AnyCache, Outcome};
use crate::callback::{enter, is_inside, is_loading, Armed, Callback, Mischief};
use crate::item::{Foreign, Lists, Shared};
use crate::model::Model;
use crate::shelf::{self, Kept};
use crate::step::{Answer, Keep, Life, Limit, Loading, Scope, Shelf, Step, KEYS, LISTS};
use crate::token::{fail, Tag, Token};
use crate::world::{at, swap, World};

/// What callbacks put goes under other keys, which the model does not know.
const WILD: u32 = 100;

/// Runs steps one after the other.
pub fn all(world: &Arc<World>, steps: &[Step]) {
    for step in steps {
        or_mischief(|| run(world, step));
        check(world);
    }
}

/// Runs what may panic on purpose.
pub fn or_mischief(f: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { return };
    if payload.downcast_ref::<Mischief>().is_none() {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("of unknown type");
        fail(&format!("a panic that is not ours: {text}"));
    }
}

/// What holds after every step.
fn check(world: &World) {
    let found = world.for_ever.lock().unwrap().clone();
    found.iter().for_each(|token| token.check("borrowed under a guard that was forgotten"));
    let root = &world.root;
    if !world.model.lock().unwrap().is_lossy && root.usage() > root.max() {
        fail(&format!("the usage {} is above the budget {}", root.usage(), root.max()));
    }
    if world.is_alone() && !is_inside() && world.on.has(crate::feature::Feature::TwoTrees) {
        counts(world);
    }
}

/// Each list counts the boxes of each group exactly, of both trees.
fn counts(world: &World) {
    let mut groups: Vec<Memcg> = world.places_of_groups();
    groups.push(world.root.clone());
    groups.extend(world.other.lock().unwrap().as_ref().map(|other| other.root().clone()));
    groups.retain(Memcg::is_online);
    for lists in (0..LISTS).filter_map(|list| world.list(list)) {
        let wrong = || lists.wrong_count(&groups);
        // A group may end on the keeper's thread, or a shrinker take items out.
        until(PATIENCE, || wrong().is_none(), || wrong().unwrap_or_else(|| "a list was slow to count right".into()));
    }
}

/// Runs one step, perhaps inside of a callback.
pub fn run(world: &Arc<World>, step: &Step) {
    match step {
        Step::Build(..) | Step::Clone(..) | Step::DropCache(_) | Step::Look(_) => handles(world, step),
        Step::Insert { .. } | Step::Many { .. } | Step::Get(..) | Step::Peek(..) | Step::Contains(..) => {
            keys(world, step)
        }
        Step::Remove(..) | Step::Touch(..) | Step::Load(..) | Step::Compute { .. } => keys(world, step),
        Step::Retain(..)
        | Step::Clear(_)
        | Step::Churn(_)
        | Step::Collect(_)
        | Step::Visit(..)
        | Step::Save(_)
        | Step::LoadSaved(_) => {
            whole(world, step);
        }
        Step::Budget(_)
        | Step::Reclaim(..)
        | Step::DropCaches
        | Step::Shrink(..)
        | Step::Direct(_)
        | Step::PayDebts(..) => {
            pressure(world, step);
        }
        Step::Sweep | Step::Survey | Step::DebtListener(_) | Step::DrainStock | Step::DropRuntime => {
            runtimes(world, step)
        }
        Step::Charge(..) | Step::Uncharge => charges(world, step),
        Step::Make(..) | Step::Find(..) | Step::Limits(..) | Step::End(_) | Step::Offline(_) | Step::DropGroup(_) => {
            groups(world, step);
        }
        Step::ForgetGroup(_) | Step::LookAtGroup(_) | Step::Hook(_) => groups(world, step),
        Step::Index(key, how) => world.store.step(&world.root, key + wild(), *how),
        Step::Chain(key, how) => world.tables.step(*key, *how),
        Step::Rest(ms) => std::thread::sleep(Duration::from_millis((*ms).into())),
        Step::Arm { callback, after, deed } => {
            if *callback == Callback::KeyHash {
                // An entry whose key cannot be hashed may stay where it is.
                world.is_lossy();
            }
            world.arm(Armed { callback: *callback, after: *after, deed: deed.clone() });
        }
        Step::Keep(what, shelf) => keep(world, *what, *shelf),
        Step::Release => shelf::release(),
        // What a forgotten guard holds back keeps groups from going.
        Step::Keeper if world.has_leaked.load(SeqCst) => {}
        Step::Keeper => drop(world.runtime().inspect(keeper_works)),
        Step::Within(scope, steps) => within(world, *scope, steps),
        _ => lists(world, step),
    }
}

fn wild() -> u32 {
    if is_inside() {
        WILD
    } else {
        0
    }
}

/// The model, if it knows what happens now: not inside of callbacks, whose writes are to other keys.
fn model(world: &World, cache: &dyn AnyCache, f: impl FnOnce(&mut Model)) {
    if world.is_alone() && cache.is_honest() && !is_inside() {
        f(&mut world.model.lock().unwrap());
    }
}

/// Runs what may panic on purpose, and `then` if it did.
fn or_panicked<R>(f: impl FnOnce() -> R, then: impl FnOnce()) -> R {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(payload) => {
            then();
            resume_unwind(payload)
        }
    }
}

fn handles(world: &Arc<World>, step: &Step) {
    match step {
        Step::Build(place, choices) => {
            let Some(runtime) = world.runtime() else { return };
            let group = choices.group.map(|group| world.group(group));
            if !matches!(choices.life, Life::Default | Life::Forever) {
                world.is_lossy();
            }
            let built = cache::build(&runtime, world.next_cache(), choices, group.as_ref());
            if built.is_none() && group.is_none_or(|group| group.is_in_tree_of(&world.root)) {
                fail(&format!("a cache cannot be built: {choices:?}"));
            }
            drop(swap(at(&world.caches, *place), built));
        }
        Step::Clone(from, to) => {
            let handle = world.cache(*from);
            drop(swap(at(&world.caches, *to), handle));
        }
        Step::DropCache(place) => drop(swap(at(&world.caches, *place), None)),
        Step::Look(place) => {
            let Some(cache) = world.cache(*place) else { return };
            cache.look(&world.group(*place));
            let len = cache.len();
            model(world, &*cache, |model| {
                // What callbacks put is not known here.
                if model.must_have(cache.id()).is_some_and(|must| len < must) {
                    fail(&format!(
                        "cache {} has {len} entries, {:?} were put",
                        cache.id(),
                        model.must_have(cache.id())
                    ));
                }
            });
        }
        _ => unreachable!("{step:?}"),
    }
}

fn times(world: &World, life: Life) {
    if !matches!(life, Life::Default | Life::Forever) {
        world.is_lossy();
    }
}

fn keys(world: &Arc<World>, step: &Step) {
    match step {
        Step::Insert { cache, key, group, life } => {
            let Some(cache) = world.cache(*cache) else { return };
            times(world, *life);
            let (group, tag) = (group.map(|group| world.group(group)), Tag::new(cache.id(), key + wild()));
            insert(world, &*cache, tag, group.as_ref(), *life);
        }
        Step::Many { cache, count, group } => {
            let Some(cache) = world.cache(*cache) else { return };
            let group = group.map(|group| world.group(group));
            // Many of one key's weight may come near the budget.
            world.is_lossy();
            for key in 0..u32::from(*count) {
                let tag = Tag::new(cache.id(), 2 * WILD + wild() * 10 + key);
                let _inserted = cache.insert(tag, group.as_ref(), Life::Default);
            }
        }
        Step::Get(cache, key) | Step::Peek(cache, key) => {
            let Some(cache) = world.cache(*cache) else { return };
            let (found, how) = match step {
                Step::Get(..) => (cache.get(*key), "get"),
                _ => (cache.peek(*key), "peek"),
            };
            model(world, &*cache, |model| model.seen(cache.id(), *key, found.map(|tag| tag.version), how));
        }
        Step::Contains(cache, key) => {
            let Some(cache) = world.cache(*cache) else { return };
            let is_there = cache.contains(*key);
            if !is_there {
                model(world, &*cache, |model| model.seen(cache.id(), *key, None, "contains"));
            }
        }
        Step::Remove(cache, key) => {
            let Some(cache) = world.cache(*cache) else { return };
            let key = key + wild();
            let uncertain = || model(world, &*cache, |model| model.maybe_removed(cache.id(), key));
            let found = or_panicked(|| cache.remove(key), uncertain);
            model(world, &*cache, |model| {
                model.seen(cache.id(), key, found.map(|tag| tag.version), "remove");
                model.removed(cache.id(), key);
            });
        }
        Step::Touch(cache, key, life) => {
            let Some(cache) = world.cache(*cache) else { return };
            times(world, *life);
            cache.touch(*key, *life);
        }
        Step::Load(cache, key, how) => {
            // Two threads whose loaders load what the other does would wait for each other.
            if is_loading() && !world.is_alone() {
                return;
            }
            let Some(cache) = world.cache(*cache) else { return };
            load(world, &*cache, Tag::new(cache.id(), key + wild()), *how);
        }
        Step::Compute { cache, key, answer, group, life } => {
            let Some(cache) = world.cache(*cache) else { return };
            times(world, *life);
            let (group, tag) = (group.map(|group| world.group(group)), Tag::new(cache.id(), key + wild()));
            compute(world, &*cache, tag, *answer, group.as_ref(), *life);
        }
        _ => unreachable!("{step:?}"),
    }
}

fn insert(world: &Arc<World>, cache: &dyn AnyCache, tag: Tag, group: Option<&Memcg>, life: Life) {
    let uncertain = || model(world, cache, |model| model.maybe_put(tag));
    let inserted = or_panicked(|| cache.insert(tag, group, life), uncertain);
    model(world, cache, |model| match inserted {
        Ok(old) => {
            model.seen(tag.home, tag.key, old.map(|old| old.version), "insert");
            model.put(tag);
        }
        Err(()) => {
            let is_foreign = group.is_some_and(|group| !group.is_in_tree_of(&world.root));
            if !model.is_lossy && !is_foreign {
                fail(&format!("{tag:?} is refused though there is room"));
            }
        }
    });
}

fn load(world: &Arc<World>, cache: &dyn AnyCache, tag: Tag, how: Loading) {
    let uncertain = || model(world, cache, |model| model.maybe_put(tag));
    let found = or_panicked(|| cache.load(tag, how), uncertain);
    model(world, cache, |model| match found {
        Some(found) if found.version == tag.version => {
            model.seen(tag.home, tag.key, None, "load");
            // It may have found no room.
            if model.is_lossy {
                model.maybe_put(tag);
            } else {
                model.put(tag);
            }
        }
        Some(found) => model.seen(tag.home, tag.key, Some(found.version), "load"),
        None if matches!(how, Loading::Async(_)) => model.maybe_put(tag),
        None => model.seen(tag.home, tag.key, None, "load"),
    });
}

fn compute(world: &Arc<World>, cache: &dyn AnyCache, tag: Tag, answer: Answer, group: Option<&Memcg>, life: Life) {
    let uncertain = || {
        model(world, cache, |model| {
            model.maybe_put(tag);
            model.maybe_removed(tag.home, tag.key);
        });
    };
    let computed = or_panicked(|| cache.compute(tag, answer, group, life), uncertain);
    let Ok((outcome, there)) = computed else { return };
    model(world, cache, |model| {
        model.seen(tag.home, tag.key, there.map(|there| there.version), "compute");
        match outcome {
            Outcome::Inserted | Outcome::Replaced(_) if matches!(answer, Answer::Put | Answer::Update) => {
                let old = if let Outcome::Replaced(old) = outcome { Some(old.version) } else { None };
                if old != there.map(|there| there.version) {
                    fail(&format!("compute of {tag:?} was shown {there:?} and replaced {old:?}"));
                }
                model.put(tag);
            }
            Outcome::Removed(old) if matches!(answer, Answer::Remove) => {
                if there != Some(old) {
                    fail(&format!("compute of {tag:?} was shown {there:?} and removed {old:?}"));
                }
                model.removed(tag.home, tag.key);
            }
            Outcome::Kept if matches!(answer, Answer::Keep | Answer::Remove) => {}
            Outcome::Refused => {}
            _ => fail(&format!("compute of {tag:?} did something else than {answer:?}")),
        }
    });
}

fn whole(world: &Arc<World>, step: &Step) {
    let (Step::Retain(place, _)
    | Step::Clear(place)
    | Step::Churn(place)
    | Step::Collect(place)
    | Step::Visit(place, _)) = step
    else {
        let (Step::Save(place) | Step::LoadSaved(place)) = step else { unreachable!("{step:?}") };
        let Some(cache) = world.cache(*place) else { return };
        if matches!(step, Step::Save(_)) {
            let saved = cache.save();
            world.saved.lock().unwrap().push(saved);
        } else {
            let saved = world.saved.lock().unwrap().pop();
            if let Some(saved) = saved {
                // What comes back is older than what the model knows.
                world.model.lock().unwrap().ignore(cache.id());
                cache.load_saved(saved);
            }
        }
        return;
    };
    let Some(cache) = world.cache(*place) else { return };
    let uncertain = |key: u32| model(world, &*cache, |model| model.maybe_removed(cache.id(), key));
    let gone = |key: u32| model(world, &*cache, |model| model.removed(cache.id(), key));
    let all_uncertain = || (0..KEYS).for_each(uncertain);
    match step {
        Step::Retain(_, modulus) => {
            or_panicked(|| cache.retain(&mut |key| is_inside() && key < WILD || key % modulus == 0), all_uncertain);
            (0..KEYS).filter(|key| key % modulus != 0).for_each(gone);
        }
        // Others' keys are not for callbacks to remove.
        Step::Clear(_) | Step::Churn(_) if is_inside() => cache.collect(),
        Step::Churn(_) => {
            for key in 0..KEYS {
                or_panicked(|| cache.remove(key), || uncertain(key));
                gone(key);
            }
            for _ in 0..2 {
                cache.collect();
                for key in 0..KEYS {
                    let _put = cache.insert(Tag::new(cache.id(), WILD + key), None, Life::Forever);
                    cache.remove(WILD + key);
                }
            }
        }
        Step::Clear(_) => {
            or_panicked(|| cache.clear(), all_uncertain);
            (0..KEYS).for_each(gone);
        }
        Step::Collect(_) => cache.collect(),
        Step::Visit(_, parts) => cache.visit(*parts),
        _ => unreachable!("{step:?}"),
    }
}

fn pressure(world: &Arc<World>, step: &Step) {
    let Some(runtime) = world.runtime() else { return };
    match step {
        Step::Budget(kib) => {
            world.is_lossy();
            runtime.set_budget(Bytes::kib((*kib).into()));
        }
        Step::Reclaim(group, kib) => {
            world.is_lossy();
            runtime.reclaim(&world.group(*group), Bytes::kib((*kib).into()));
        }
        Step::DropCaches => {
            world.is_lossy();
            runtime.drop_caches();
        }
        Step::Shrink(group, node, priority) => {
            world.is_lossy();
            let (group, node, mut work) = (tree_group(world, *group), node_of(&runtime, *node), Work::unlimited());
            runtime.registry().shrink(&group, node, *priority, Reclaim::FOREGROUND, &mut work);
        }
        Step::Direct(group) => {
            world.is_lossy();
            runtime.registry().direct_reclaim(&tree_group(world, *group), Reclaim::FOREGROUND, &|| {
                enter(Callback::Done);
                false
            });
        }
        Step::PayDebts(group, node) => {
            world.is_lossy();
            let (group, node, mut work) = (tree_group(world, *group), node_of(&runtime, *node), Work::objects(1000));
            runtime.registry().pay_debts(&group, node, &mut work);
        }
        _ => unreachable!("{step:?}"),
    }
}

fn node_of(runtime: &Runtime, node: u8) -> lowwater::NodeId {
    World::node(node % runtime.topology().nodes() as u8)
}

/// A group of the first runtime.
fn tree_group(world: &World, group: u8) -> Memcg {
    let group = world.group(group);
    if group.is_in_tree_of(&world.root) {
        group
    } else {
        world.root.clone()
    }
}

struct Debts(Token);

impl DebtListener for Debts {
    fn owes(&self, _: &Memcg, _: lowwater::NodeId, _: Kick) {
        self.0.check("told of debts");
        enter(Callback::Debt);
    }
}

fn captured() -> Token {
    Token::new(Tag::new(0, 0), Callback::CaptureDrop)
}

fn runtimes(world: &Arc<World>, step: &Step) {
    if matches!(step, Step::DropRuntime) {
        return drop(swap(&world.runtime, None));
    }
    let Some(runtime) = world.runtime() else { return };
    match step {
        Step::Sweep => drop(runtime.registry().sweep()),
        Step::Survey => {
            drop((runtime.registry().snapshot(), runtime.registry().survey(), runtime.stats()));
            let _ = (runtime.registry().footprint(), runtime.tree().footprint(), format!("{runtime:?}"));
        }
        Step::DebtListener(is_on) => {
            runtime.registry().set_debt_listener(is_on.then(|| Arc::new(Debts(captured())) as Arc<dyn DebtListener>));
        }
        Step::DrainStock => runtime.tree().drain_stock(),
        _ => unreachable!("{step:?}"),
    }
}

fn charges(world: &Arc<World>, step: &Step) {
    match step {
        Step::Charge(group, bytes) => {
            let Some(runtime) = world.runtime() else { return };
            let (group, bytes) = (tree_group(world, *group), Bytes::new((*bytes).into()));
            // Inside of a panic it is not known whether it was charged.
            if runtime.charge(&group, bytes).is_ok() {
                world.charges.lock().unwrap().push((group, bytes));
            }
        }
        Step::Uncharge => {
            let charge = world.charges.lock().unwrap().pop();
            if let Some((group, bytes)) = charge {
                group.uncharge(bytes);
            }
        }
        _ => unreachable!("{step:?}"),
    }
}

struct Hook(Token);

impl OfflineHook for Hook {
    fn offline(&self, dying: &Memcg, parent: &Memcg) {
        self.0.check("told of a group's end");
        if dying.is_online() || !parent.is_online() {
            fail("a hook is told of a group that is online, or a parent that is not");
        }
        enter(Callback::Offline);
    }
}

fn groups(world: &Arc<World>, step: &Step) {
    const NAMES: [&str; 4] = ["a", "b", "c", "d/e"];
    match step {
        // The last places are for groups of another tree.
        Step::Make(place @ 6.., parent, name) => {
            let other = world.other.lock().unwrap().get_or_insert_with(MemcgTree::default).root().clone();
            let parent = Some(world.group(*parent)).filter(|parent| parent.is_in_tree_of(&other)).unwrap_or(other);
            let group = match ["a", "b", "c"].get(usize::from(*name)) {
                Some(name) => parent.create(name).ok().or_else(|| parent.child(name)),
                // The root itself, whose id is that of the first tree's.
                None => Some(parent),
            };
            drop(swap(at(&world.groups, *place), group));
        }
        Step::Make(place, parent, name) => {
            let name = NAMES[usize::from(*name)];
            let made = match world.runtime() {
                Some(runtime) if name.len() > 1 => runtime.group(name).ok(),
                _ => tree_group(world, *parent).create(name.get(..1).unwrap_or(name)).ok(),
            };
            if let Some(made) = made {
                drop(swap(at(&world.groups, *place % 6), Some(made)));
            }
        }
        Step::Find(place, name) => {
            let Some(runtime) = world.runtime() else { return };
            let name = NAMES[usize::from(*name)];
            let found = runtime.find_group(name).or_else(|| runtime.group(name).ok());
            drop(swap(at(&world.groups, *place % 6), found));
        }
        Step::Limits(group, limit, kib) => {
            let (group, bytes) = (tree_group(world, *group), Bytes::kib((*kib).into()));
            world.is_lossy();
            match limit {
                Limit::Min => group.set_min(bytes),
                Limit::Low => group.set_low(bytes),
                Limit::High => group.set_high(bytes),
                // The root's is the budget, which has a step of its own.
                Limit::Max if group == world.root => {}
                Limit::Max => group.set_max(bytes),
            }
        }
        Step::End(group) => {
            let Some(runtime) = world.runtime() else { return };
            let _ended = runtime.end_group(&world.group(*group));
        }
        Step::Offline(group) => drop(world.group(*group).offline()),
        Step::DropGroup(group) => {
            let Some(runtime) = world.runtime() else { return };
            world.is_lossy();
            let _dropped = runtime.drop_group(&world.group(*group));
        }
        Step::ForgetGroup(group) => drop(swap(at(&world.groups, *group), None)),
        Step::LookAtGroup(group) => {
            let group = world.group(*group);
            let _ =
                (group.path(), group.usage(), group.in_stock(), group.nearest_online(), group.depth(), group.state());
            let _ = (group.descendants().count(), group.children().len(), group.child("a"), group.parent().cloned());
            let _ = group.protection(&world.root);
        }
        Step::Hook(is_on) => {
            let Some(runtime) = world.runtime() else { return };
            let hook = is_on.then(|| runtime.tree().add_hook(Arc::new(Hook(captured()))));
            if let Some(before) = swap(&world.hook, hook) {
                runtime.tree().remove_hook(before);
            }
        }
        _ => unreachable!("{step:?}"),
    }
}

fn lists(world: &Arc<World>, step: &Step) {
    match step {
        Step::MakeList(place, how) => {
            let runtime = world.runtime().filter(|_| how % 2 != 0);
            let lists = match &runtime {
                // With the occupancy of a shrinker that nobody registers, or of one that is.
                Some(runtime) => {
                    let Ok(prepared) = runtime.registry().builder("foreign").seeks(u32::from(*how)).alloc() else {
                        return;
                    };
                    let lists = Arc::new(Lists::new(Some(prepared.occupancy())));
                    if *how == 3 && world.on.has(crate::feature::Feature::Shrinkers) {
                        let foreign = Foreign { lists: Arc::clone(&lists), how: 0, captured: captured() };
                        let registration = prepared.register(Arc::new(foreign));
                        drop(swap(at(&world.registrations, *place), Some(registration)));
                    }
                    lists
                }
                None => Arc::new(Lists::new(None)),
            };
            drop(swap(at(&world.lists, *place), Some(lists)));
        }
        Step::DropList(place) => drop(swap(at(&world.lists, *place), None)),
        Step::Register(place, how) => {
            let (Some(runtime), Some(lists)) = (world.runtime(), world.list(*place)) else { return };
            let builder = runtime.registry().builder("foreign").memcg_aware(how % 3 != 0).numa_aware(how % 4 != 0);
            let Ok(prepared) = builder.batch((*how).into()).alloc() else { return };
            let registration = prepared.register(Arc::new(Foreign { lists, how: *how, captured: captured() }));
            let before = swap(at(&world.registrations, *place), Some(registration));
            unregister(world, *place, before);
        }
        Step::Unregister(place) => unregister(world, *place, swap(at(&world.registrations, *place), None)),
        Step::Item(place) => drop(swap(at(&world.items, *place), Some(Shared::new((*place).into())))),
        Step::DropItem(place) => drop(swap(at(&world.items, *place), None)),
        Step::Add { list, item, group, node } => {
            let (Some(lists), Some(item)) = (world.list(*list), world.item(*item)) else { return };
            let _added = lists.shared.add(item, &world.group_of_lists(*group), World::node(*node));
        }
        Step::AddBox { list, group, node, count } => {
            let Some(lists) = world.list(*list) else { return };
            lists.add_boxes(&world.group_of_lists(*group), World::node(*node), *count);
        }
        Step::Del(list, item) => {
            let (Some(lists), Some(item)) = (world.list(*list), world.item(*item)) else { return };
            drop(lists.shared.del(&item));
        }
        Step::DelWhose(list, item) => {
            let (Some(lists), Some(item)) = (world.list(*list), world.item(*item)) else { return };
            let whose = lists.shared.whose(&item);
            let removed = lists.shared.del_whose(&item);
            if world.is_alone()
                && whose.is_some() != removed.is_some()
                && world.on.has(crate::feature::Feature::Shrinkers)
            {
                // A shrinker on another thread may have been faster.
                drop(whose);
            }
        }
        Step::DelMany(list) => {
            let Some(lists) = world.list(*list) else { return };
            let items: Vec<_> = (0..16).filter_map(|item| world.item(item)).collect();
            let mut gone = Isolated::new();
            lists.shared.del_many(items.iter().map(|item| &**item), &mut gone);
            put_aside(world, gone);
        }
        Step::Replace(list, item, by) => {
            let (Some(lists), Some(item), Some(by)) = (world.list(*list), world.item(*item), world.item(*by)) else {
                return;
            };
            let replaced = lists.shared.replace(&item, by);
            drop(replaced);
        }
        Step::TouchItem(list, item) => {
            let (Some(lists), Some(item)) = (world.list(*list), world.item(*item)) else { return };
            lists.shared.touch(&item);
        }
        Step::Walk { list, group, node, nr, turns } => {
            let Some(lists) = world.list(*list) else { return };
            let group = group.map(|group| world.group(group));
            let mut gone = Isolated::new();
            lists.walk(group.as_ref(), World::node(*node), (*nr).into(), turns, &mut gone);
            put_aside(world, gone);
            // A cheap look at what holds.
            for node in 0..3 {
                let _ = (lists.shared.count_node(World::node(node)), lists.shared.pairs(), lists.shared.footprint());
            }
        }
        Step::AddIsolated(list, group, node) => {
            let Some(lists) = world.list(*list) else { return };
            let mut isolated = std::mem::take(&mut *world.isolated.lock().unwrap());
            let _added = lists.shared.add_many(&mut isolated, &world.group_of_lists(*group), World::node(*node));
            put_aside(world, isolated);
        }
        Step::PopIsolated => {
            let item = world.isolated.lock().unwrap().pop();
            drop(item);
        }
        Step::DropIsolated => {
            let isolated = std::mem::take(&mut *world.isolated.lock().unwrap());
            drop(isolated);
        }
        _ => unreachable!("{step:?}"),
    }
}

fn put_aside(world: &World, isolated: Isolated<Shared>) {
    for item in isolated {
        item.token.check("put aside");
        let pushed = world.isolated.lock().unwrap().push(item);
        drop(pushed);
    }
}

/// Ends a registration; one whose callback runs on this thread is kept for later.
fn unregister(world: &World, place: u8, registration: Option<lowwater::Registration>) {
    let Some(Err((_, registration))) = registration.map(lowwater::Registration::unregister) else { return };
    let mut place = at(&world.registrations, place).lock().unwrap();
    if place.is_none() {
        *place = Some(registration);
    } else {
        std::mem::forget(registration);
    }
}

fn keep(world: &Arc<World>, what: Keep, shelf: Shelf) {
    if matches!(shelf, Shelf::Leak) {
        world.has_leaked.store(true, SeqCst);
        let found = world.store.found_for_ever();
        world.for_ever.lock().unwrap().extend(found);
    }
    let kept = match what {
        Keep::Guard => Some(Kept::Guard(pin())),
        Keep::Reader => Some(Kept::Reader(Reader::enter())),
        Keep::Cache(cache) => world.cache(cache).map(Kept::Cache),
        Keep::Group(group) => Some(Kept::Group(world.group(group))),
        Keep::Item(item) => world.item(item).map(Kept::Item),
    };
    if let Some(kept) = kept {
        shelf::keep(kept, shelf);
    }
}

fn within(world: &Arc<World>, scope: Scope, steps: &[Step]) {
    match scope {
        Scope::Guard => {
            let guard = pin();
            all(world, steps);
            drop(guard);
        }
        Scope::Reader => world.tables.found(|| all(world, steps)),
        Scope::Pinned(cache) => match world.cache(cache) {
            Some(cache) => cache.pinned(&mut |look| {
                all(world, steps);
                (0..KEYS).for_each(look);
            }),
            None => all(world, steps),
        },
        Scope::Iter(cache) => match world.cache(cache) {
            Some(cache) => cache.iter(&mut || all(world, steps)),
            None => all(world, steps),
        },
        Scope::Prepared(list, group, node) => {
            let lists = world.list(list);
            let group = world.group_of_lists(group);
            let prepared = lists.as_ref().map(|lists| lists.shared.prepare(&group, World::node(node)));
            all(world, steps);
            drop(prepared);
        }
        Scope::NoReclaim => {
            let runtime = world.runtime();
            let scope = runtime.as_ref().map(|runtime| runtime.registry().no_reclaim_scope());
            // A charge that may not reclaim may be refused.
            world.is_lossy();
            all(world, steps);
            drop(scope);
        }
        Scope::Thread => {
            let (world, steps) = (Arc::clone(world), steps.to_vec());
            join(std::thread::spawn(move || thread(&world, &steps)));
        }
        Scope::Threads => {
            let _together = world.together();
            let threads = steps.iter().map(|step| {
                let (world, step) = (Arc::clone(world), step.clone());
                std::thread::spawn(move || thread(&world, &[step]))
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().for_each(join);
        }
    }
}

/// How long is waited for what the library does on threads of its own.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// Waits until something holds.
pub fn until(patience: Duration, holds: impl Fn() -> bool, otherwise: impl Fn() -> String) {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > patience {
            fail(&otherwise());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The keeper ends a group that was dropped.
pub fn keeper_works(runtime: &Runtime) {
    if runtime.group("last").and_then(|last| runtime.drop_group(&last)).is_ok() {
        until(PATIENCE, || runtime.find_group("last").is_none(), || "a dropped group does not go".into());
    }
}

/// The body of each thread of a program.
pub fn thread(world: &Arc<World>, steps: &[Step]) {
    shelf::begin();
    all(world, steps);
    shelf::release();
}

/// Waits for a thread; a panic of ours in a thread-local's end is none.
pub fn join(thread: std::thread::JoinHandle<()>) {
    if let Err(payload) = thread.join() {
        if payload.downcast_ref::<Mischief>().is_none() {
            fail("a thread panicked");
        }
    }
}
