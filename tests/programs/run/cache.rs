//! Steps on caches, and their results in the model.
//!
//! If one thread runs all steps, hashes are consistent and the step is not inside of a callback,
//! the result is compared with the `Model`; otherwise only the tokens are checked.
//!
//! A step that is added must update the model.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lowwater::Memcg;

use super::panic::or_panicked;
use super::runtime::tree_group;
use lowwater::cache::Origin;

use crate::cache::{self, AnyCache, Loaded, Outcome};
use crate::callback::{is_inside, is_loading};
use crate::model::Model;
use crate::reload::Kept;
use crate::step::{ComputeAnswer, GroupLimit, Life, Loading, Step, KEYS};
use crate::token::{fail, Tag};
use crate::world::{at, swap, World};

/// The first key of callbacks, and of the records that `Step::Churn` inserts outside of callbacks:
/// the model does not contain these keys.
pub const WILD: u32 = 100;

/// The entries of such steps that fit into half of the largest budget: each has 160 KB at most.
const MANY_MAX: u32 = 3000;

/// The time after which a step inserts no more.
const MANY_TIME: Duration = Duration::from_millis(200);

/// Returns the number to be added to a step's key: [`WILD`] inside of a callback, otherwise 0.
pub fn wild() -> u32 {
    if is_inside() {
        WILD
    } else {
        0
    }
}

/// Calls `f` with the model, if the model can check this step: one thread runs all steps, hashes
/// are consistent, and the step is not inside of a callback, where keys are others.
fn model(world: &World, cache: &dyn AnyCache, f: impl FnOnce(&mut Model)) {
    if world.is_alone() && cache.is_honest() && !is_inside() {
        f(&mut world.model.lock().unwrap());
    }
}

/// Steps that create, clone and drop handles of caches.
pub fn handles(world: &Arc<World>, step: &Step) {
    match step {
        Step::Build(place, choices) => {
            let Some(runtime) = world.runtime() else { return };
            let group = choices.group.map(|group| world.group(group));
            times(world, choices.life);
            if choices.computes_times {
                times(world, Life::Live(0));
            }
            if matches!(choices.limit, Some((GroupLimit::High | GroupLimit::Max, _))) {
                world.set_lossy();
            }
            let id = world.next_cache();
            world.model.lock().unwrap().built(id, choices);
            let tenants = [place, &place.wrapping_add(1)].map(|place| tree_group(world, *place));
            let built = cache::build(&runtime, id, choices, group.as_ref(), tenants);
            let may_fail = choices.limit.is_some();
            if built.is_none() && !may_fail && group.is_none_or(|group| group.is_in_tree_of(&world.root)) {
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
                // There may be more entries than in the model, from inserts by callbacks.
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

/// Makes the model lossy if an entry gets a time to live or to idle.
fn times(world: &World, life: Life) {
    if world.clock.is_none() && !matches!(life, Life::Default | Life::Forever) {
        world.set_lossy();
    }
}

/// Steps on one key: lookups, inserts, loads, computes, removals.
pub fn keys(world: &Arc<World>, step: &Step) {
    match step {
        Step::GetMany(cache, keys) => {
            let Some(cache) = world.cache(*cache) else { return };
            let found = cache.get_many(keys);
            model(world, &*cache, |model| {
                for (key, found) in keys.iter().zip(found) {
                    model.seen(cache.id(), *key, found.map(|tag| tag.version), "get_many");
                }
            });
        }
        Step::GetOrRefresh(cache, key) => {
            let Some(cache) = world.cache(*cache) else { return };
            let found = cache.get_or_refresh(*key);
            let id = cache.id();
            model(world, &*cache, |model| {
                found.as_ref().inspect(|found| model.seen_stale(id, *key, found.1));
                model.seen(id, *key, found.as_ref().map(|found| found.0.version), "refresh");
            });
            let Some((Tag { version, .. }, _, Some(reload))) = found else { return };
            let removals = world.model.lock().unwrap().removals(id, *key);
            let kept = Kept { cache: id, key: *key, version, removals, reload };
            // Callbacks use other keys, which the model does not have.
            if !is_inside() {
                world.reloads.lock().unwrap().push(kept);
            }
        }
        Step::Reload(form) => {
            if is_inside() {
                return;
            }
            let kept = world.reloads.lock().unwrap().pop();
            let Some(Kept { cache, key, version, removals, reload }) = kept else { return };
            let tag = Tag::new(cache, key);
            let is_certain = |world: &World| world.is_alone();
            let uncertain = || {
                if is_certain(world) {
                    world.model.lock().unwrap().maybe_put(tag);
                }
            };
            let origin = or_panicked(|| reload.end(tag, *form), uncertain);
            if is_certain(world) {
                world.model.lock().unwrap().reloaded(tag, origin.as_ref(), version, removals);
            }
        }
        Step::LoadMany { cache, keys, fills, fails, is_async } => {
            let Some(cache) = world.cache(*cache) else { return };
            // A repeated key has one tag.
            let tag_of = |key: &u32| Tag::new(cache.id(), key + wild());
            let tags: Vec<Tag> = keys.iter().map(tag_of).collect();
            let tags: Vec<Tag> =
                tags.iter().map(|tag| *tags.iter().find(|other| other.key == tag.key).unwrap()).collect();
            let uncertain = || model(world, &*cache, |model| tags.iter().for_each(|tag| model.maybe_put(*tag)));
            let loaded = or_panicked(|| cache.load_many(&tags, *fills, *fails, *is_async), uncertain);
            model(world, &*cache, |model| match loaded {
                // Some key was absent. Those before it may have been found, and lookups change
                // nothing that the model has.
                None if *fails => {}
                None => fail("a load of many keys has failed, which its loader has not"),
                Some(loaded) => tags.iter().zip(loaded).for_each(|(tag, loaded)| was_loaded(model, *tag, &loaded)),
            });
        }
        Step::Insert { cache, key, group, life, sets } => {
            let Some(cache) = world.cache(*cache) else { return };
            times(world, *life);
            let (group, tag) = (group.map(|group| world.group(group)), Tag::new(cache.id(), key + wild()));
            insert(world, &*cache, tag, group.as_ref(), *life, *sets);
        }
        Step::Many { cache, count, group } => {
            let Some(cache) = world.cache(*cache) else { return };
            let group = group.map(|group| world.group(group));
            // Many entries may fill the budget, so that others are evicted.
            let inserted = world.many.fetch_add(u32::from(*count), SeqCst) + u32::from(*count);
            if inserted > MANY_MAX {
                world.set_lossy();
            }
            // Above the keys of steps and of callbacks.
            let begin = Instant::now();
            for key in 0..u32::from(*count) {
                let tag = Tag::new(cache.id(), 2 * WILD + wild() * 10 + key);
                let _inserted = cache.insert(tag, group.as_ref(), Life::Default);
                // An insert that finds only entries whose keys lie scans all of them.
                if begin.elapsed() > MANY_TIME {
                    break;
                }
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
            model(world, &*cache, |model| match is_there {
                true => model.has(cache.id(), *key, "contains"),
                false => model.seen(cache.id(), *key, None, "contains"),
            });
        }
        Step::Remove(cache, key) => {
            let Some(cache) = world.cache(*cache) else { return };
            let key = key + wild();
            let uncertain = || model(world, &*cache, |model| model.maybe_removed(cache.id(), key));
            let found = or_panicked(|| cache.remove(key), uncertain);
            model(world, &*cache, |model| {
                if found.is_some() {
                    model.removed_by_call(cache.id(), key);
                }
                model.seen(cache.id(), key, found.map(|tag| tag.version), "remove");
                model.removed(cache.id(), key);
            });
        }
        Step::Touch(cache, key, life) => {
            let Some(cache) = world.cache(*cache) else { return };
            times(world, *life);
            let is_there = cache.touch(*key, *life);
            model(world, &*cache, |model| match is_there {
                true => {
                    model.has(cache.id(), *key, "touch");
                    // A touch sets a time to live, whatever the life.
                    let life = match *life {
                        Life::Live(ms) | Life::Idle(ms) => Life::Live(ms),
                        Life::Default | Life::Forever => Life::Forever,
                    };
                    model.touched(cache.id(), *key, life);
                }
                false => model.seen(cache.id(), *key, None, "touch"),
            });
        }
        Step::Load(cache, key, how) => {
            // Loaders of two threads may request each other's keys: `tests/loads.rs` tests such
            // loads, which are left out here.
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

fn insert(world: &Arc<World>, cache: &dyn AnyCache, tag: Tag, group: Option<&Memcg>, life: Life, sets: bool) {
    let uncertain = || model(world, cache, |model| model.maybe_put(tag));
    // The old version of a `set` is not known, only whether there was one.
    let insert = || match sets {
        true => cache.set(tag, group, life).map(|has_replaced| has_replaced.then_some(None)),
        false => cache.insert(tag, group, life).map(|old| old.map(Some)),
    };
    let inserted = or_panicked(insert, uncertain);
    model(world, cache, |model| match inserted {
        Ok(old) => {
            match old {
                Some(None) => model.has(tag.home, tag.key, "set"),
                old => model.seen(tag.home, tag.key, old.flatten().map(|old| old.version), "insert"),
            }
            model.put(tag, life);
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
        Some(found) => was_loaded(model, tag, &found),
        // Pending, or failed: then the value was absent.
        None if how.polls.is_some() => model.maybe_put(tag),
        None => model.seen(tag.home, tag.key, None, "load"),
    });
}

/// Compares the result of a load with the model, and notes a value that was loaded.
fn was_loaded(model: &mut Model, tag: Tag, loaded: &Loaded) {
    let is_ours = loaded.tag.version == tag.version;
    match &loaded.origin {
        // A repeated key: its value is in the model already.
        _ if is_ours && model.has_version(tag) => {}
        None if is_ours => {
            model.seen(tag.home, tag.key, None, "load");
            // The value may have found no room, and then is returned but not cached.
            if model.is_lossy {
                model.maybe_put(tag);
            } else {
                model.put(tag, Life::Default);
            }
        }
        Some(Origin::Loaded) if is_ours => model.loaded(tag),
        Some(Origin::Rejected(_)) if is_ours && model.is_lossy => {}
        None | Some(Origin::Cached | Origin::Stale) if !is_ours => {
            model.seen(tag.home, tag.key, Some(loaded.tag.version), "load");
        }
        // Nothing else uses the keys of the model at the same time.
        origin => fail(&format!("a load of {tag:?} has returned {:?} with the origin {origin:?}", loaded.tag)),
    }
}

/// Runs an `and_compute` with the given answer, and compares the result with the model.
fn compute(
    world: &Arc<World>,
    cache: &dyn AnyCache,
    tag: Tag,
    answer: ComputeAnswer,
    group: Option<&Memcg>,
    life: Life,
) {
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
            Outcome::Inserted | Outcome::Replaced(_)
                if matches!(answer, ComputeAnswer::Put | ComputeAnswer::Update) =>
            {
                let old = if let Outcome::Replaced(old) = outcome { Some(old.version) } else { None };
                if old != there.map(|there| there.version) {
                    fail(&format!("compute of {tag:?} was shown {there:?} and replaced {old:?}"));
                }
                model.computed(tag, life);
            }
            Outcome::Removed(old) if matches!(answer, ComputeAnswer::Remove) => {
                if there != Some(old) {
                    fail(&format!("compute of {tag:?} was shown {there:?} and removed {old:?}"));
                }
                model.removed(tag.home, tag.key);
            }
            Outcome::Kept if matches!(answer, ComputeAnswer::Keep | ComputeAnswer::Remove) => {}
            Outcome::Refused => {}
            _ => fail(&format!("compute of {tag:?} did something else than {answer:?}")),
        }
    });
}

/// Steps on all entries: clear, retain, iteration, save and load.
pub fn whole(world: &Arc<World>, step: &Step) {
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
                // The model does not have the versions of the saved entries.
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
        // Callbacks must not remove the model's keys, so they only collect.
        Step::Clear(_) | Step::Churn(_) if is_inside() => cache.collect(),
        Step::Churn(_) => {
            for key in 0..KEYS {
                or_panicked(|| cache.remove(key), || uncertain(key));
                gone(key);
            }
            // Memory that was freed although a reader uses it is overwritten by these records.
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
