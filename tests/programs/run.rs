//! Runs steps, and compares their results with the model.
//!
//! A step names slots of the `World`. With an empty slot it does nothing, or uses the root instead
//! of a group. So every list of steps is a valid program, and steps can be removed to reduce a
//! failure.
//!
//! A step that is added must be valid in every state.

mod cache;
mod charge;
mod group;
mod list;
mod panic;
mod runtime;
mod scope;
mod tenants;
mod wait;

use panic::or_panicked;

pub use panic::catch_intended;
pub use scope::{join, thread};
pub use wait::{housekeeper_works, until};

use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;
use std::time::Duration;

use lowwater::runtime::ManualClock;
use lowwater::{ByteSize, Memcg};

use crate::callback::{is_inside, Armed, Callback};
use crate::step::{Step, LISTS};
use crate::storage;
use crate::world::World;
use cache::{handles, keys, whole, wild};
use charge::charges;
use group::groups;
use list::lists;
use runtime::{pressure, runtimes};
use scope::{keep, within};
use wait::PATIENCE;

/// Runs steps in succession, and checks invariants after each; an intended panic ends only its
/// step.
pub fn all(world: &Arc<World>, steps: &[Step]) {
    for step in steps {
        let running = world.bounds.run();
        catch_intended(|| run(world, step));
        drop(running);
        check(world);
    }
}

/// Checks the invariants after a step.
fn check(world: &World) {
    let found = world.found_under_leaked.lock().unwrap().clone();
    found.iter().for_each(|token| token.check("borrowed under a guard that was forgotten"));
    let charged: ByteSize = world.charges.lock().unwrap().iter().map(|(_, bytes)| *bytes).sum();
    let charged = charged + ByteSize::new(world.guarded.load(SeqCst));
    world.bounds.check(&world.root, world.runtime().as_ref(), &world.all_groups(), charged);
    if world.is_alone() && !is_inside() && world.features.has(crate::feature::Feature::TwoTrees) {
        counts(world);
    }
}

/// Checks that each list counts the boxes of each group exactly, of both trees.
fn counts(world: &World) {
    let mut groups: Vec<Memcg> = world.all_groups();
    groups.push(world.root.clone());
    groups.extend(world.other.lock().unwrap().as_ref().map(|other| other.root().clone()));
    groups.retain(Memcg::is_online);
    for lists in (0..LISTS).filter_map(|list| world.list(list)) {
        let wrong = || lists.wrong_count(&groups);
        // Waits: a group may end on the housekeeper's thread, or a shrinker may be removing items.
        until(PATIENCE, || wrong().is_none(), || wrong().unwrap_or_else(|| "a list was slow to count right".into()));
    }
}

/// Advances the clock, and tells the model the time.
fn advance(world: &World, clock: &ManualClock, ms: u16) {
    if is_inside() {
        // The deadline of an entry that is being inserted may be counted from before.
        world.set_lossy();
    }
    let tell = || world.model.lock().unwrap().now = clock.elapsed().as_millis() as u64;
    or_panicked(|| clock.advance(Duration::from_millis(ms.into())), tell);
    tell();
}

/// Runs one step.
pub fn run(world: &Arc<World>, step: &Step) {
    match step {
        Step::Build(..) | Step::Clone(..) | Step::DropCache(_) | Step::Look(_) => handles(world, step),
        Step::Advance(ms) => {
            let Some(clock) = &world.clock else { return };
            advance(world, clock, *ms);
        }
        Step::GetMany(..) | Step::LoadMany { .. } | Step::GetOrRefresh(..) | Step::Reload(_) => keys(world, step),
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
        | Step::Wake(_)
        | Step::ShrinkLeastUseful(_)
        | Step::Shrink(..)
        | Step::Direct(_)
        | Step::PayDebts(..) => {
            pressure(world, step);
        }
        Step::Sweep | Step::Survey | Step::DebtListener(_) | Step::DrainStock | Step::DropRuntime => {
            runtimes(world, step)
        }
        Step::Charge(..)
        | Step::Uncharge
        | Step::TryCharge(..)
        | Step::Guard(..)
        | Step::Resize(..)
        | Step::DropGuard
        | Step::LeakGuard
        | Step::Charged
        | Step::DropCharged => charges(world, step),
        Step::MakeTenants(..) | Step::Tenant(..) => tenants::tenants(world, step),
        Step::Make(..) | Step::Find(..) | Step::Limits(..) | Step::End(_) | Step::Offline(_) | Step::DropGroup(_) => {
            groups(world, step);
        }
        Step::ForgetGroup(_) | Step::LookAtGroup(_) | Step::Hook(_) => groups(world, step),
        Step::Index(key, how) => world.store.step(&world.root, key + wild(), *how),
        Step::Chain(key, how) => world.tables.step(*key, *how),
        Step::Rcu(how) => world.rcu.step(*how, world.is_alone()),
        Step::Rest(ms) => std::thread::sleep(Duration::from_millis((*ms).into())),
        Step::Arm { callback, after, action } => {
            if *callback == Callback::KeyHash {
                // An entry stays if its key cannot be hashed.
                world.set_lossy();
            }
            world.arm(Armed { callback: *callback, after: *after, action: action.clone() });
        }
        Step::Keep(what, storage) => keep(world, *what, *storage),
        Step::Release => storage::release(),
        // Objects held back by a leaked guard keep their groups alive.
        Step::Housekeeper if world.has_leaked.load(SeqCst) => {}
        Step::Housekeeper => drop(world.runtime().inspect(housekeeper_works)),
        Step::Within(scope, steps) => within(world, *scope, steps),
        _ => lists(world, step),
    }
}
