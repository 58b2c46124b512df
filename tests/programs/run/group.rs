//! Runs a program's steps on memory groups: creation, lookup, limits, going offline, and the
//! offline hook.
//!
//! Slots 0 to 5 of `World::groups` are for groups of the runtime's tree, the others for groups of
//! `World::other`, which are foreign to the runtime. `World::group` returns the root for an empty
//! slot, `tree_group` for a foreign group as well.
//!
//! A change must ensure that a step that may evict entries calls `World::set_lossy` first: the
//! model then permits missing entries.

use std::sync::Arc;

use lowwater::{ByteSize, Memcg, MemcgTree};
use lowwater_lru_core::OfflineHook;

use super::runtime::{captured, tree_group};
use crate::callback::{enter, Callback};
use crate::step::{GroupLimit, Step};
use crate::token::{fail, Token};
use crate::world::{at, swap, World};

/// An offline hook that checks its arguments; its token detects a call after the hook's drop.
struct Hook(Token);

impl OfflineHook for Hook {
    fn offline(&self, dying: &Memcg, parent: &Memcg) {
        self.0.check("passed to the offline hook");
        if dying.is_online() || !parent.is_online() {
            fail("a hook is called for an online group, or an offline parent");
        }
        enter(Callback::Offline);
    }
}

/// Runs a step on groups.
pub fn groups(world: &Arc<World>, step: &Step) {
    // The last one is a path, which only `Runtime::group` takes.
    const NAMES: [&str; 4] = ["a", "b", "c", "d/e"];
    match step {
        // Slots from 6 on: a group of the other tree.
        Step::Make(place @ 6.., parent, name) => {
            let other = world
                .other
                .lock()
                .unwrap()
                .get_or_insert_with(|| MemcgTree::try_new(usize::from(*name)).expect("memory is available"))
                .root()
                .clone();
            let parent = Some(world.group(*parent)).filter(|parent| parent.is_in_tree_of(&other)).unwrap_or(other);
            let group = match ["a", "b", "c"].get(usize::from(*name)) {
                Some(name) => parent.create(name).ok().or_else(|| parent.child(name)),
                // The root, or the group in the parent's slot. The root's id equals that of the
                // first tree's root: code that compares ids only confuses the two.
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
            let (group, bytes) = (tree_group(world, *group), ByteSize::kib((*kib).into()));
            world.set_lossy();
            match limit {
                GroupLimit::Min => group.set_min(bytes),
                GroupLimit::Low => group.set_low(bytes),
                GroupLimit::High => group.set_high(bytes),
                // The root's limit is the budget, which has its own step.
                GroupLimit::Max if group == world.root => {}
                GroupLimit::Max => {
                    let _raising = world.bounds.raise(&group, bytes);
                    group.set_max(bytes);
                }
            }
        }
        Step::End(group) => {
            let Some(runtime) = world.runtime() else { return };
            let _ended = runtime.end_group(&world.group(*group));
        }
        Step::Offline(group) => drop(world.group(*group).offline()),
        Step::DropGroup(group) => {
            let Some(runtime) = world.runtime() else { return };
            world.set_lossy();
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
            let hook = is_on.then(|| match world.hook.lock().unwrap().is_some() {
                true => runtime.tree().add_hook(Arc::new(Hook(captured()))),
                false => runtime.tree().try_add_boxed_hook(Box::new(Hook(captured()))).expect("memory is available"),
            });
            if let Some(before) = swap(&world.hook, hook) {
                runtime.tree().remove_hook(before);
            }
        }
        _ => unreachable!("{step:?}"),
    }
}
