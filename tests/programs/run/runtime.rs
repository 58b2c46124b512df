//! Steps on a runtime: pressure and maintenance.
//!
//! A step that is added and may evict entries must call `World::set_lossy` first: the model then
//! permits missing entries.

use std::sync::Arc;

use lowwater::{ByteSize, Memcg, Runtime};
use lowwater_shrinker::budget::Kick;
use lowwater_shrinker::{DebtListener, Reclaim, ReclaimReason, Work};

use crate::callback::{enter, Callback};
use crate::step::Step;
use crate::token::{fail, Tag, Token};
use crate::world::{swap, World};

/// Steps that make memory short: changed budgets and limits, reclaim, drops of caches.
pub fn pressure(world: &Arc<World>, step: &Step) {
    let Some(runtime) = world.runtime() else { return };
    match step {
        Step::Budget(kib) => {
            world.set_lossy();
            let budget = ByteSize::kib((*kib).into());
            let _raising = world.bounds.raise(&world.root, budget);
            runtime.set_budget(budget);
        }
        Step::Reclaim(group, kib) => {
            world.set_lossy();
            runtime.reclaim(&world.group(*group), ByteSize::kib((*kib).into()));
        }
        Step::Wake(group) => {
            world.set_lossy();
            let reclaimer = runtime.reclaimer();
            reclaimer.wake(&tree_group(world, *group), ReclaimReason::Limit);
            let _ = (reclaimer.stats(), reclaimer.watermarks());
        }
        Step::ShrinkLeastUseful(group) => {
            world.set_lossy();
            let (group, mut work) = (tree_group(world, *group), Work::objects(1000));
            runtime.registry().shrink_least_useful(&group, None, Reclaim::FOREGROUND, &mut work);
        }
        Step::DropCaches => {
            world.set_lossy();
            runtime.drop_caches();
        }
        Step::Shrink(group, node, priority) => {
            world.set_lossy();
            let (group, node, mut work) = (tree_group(world, *group), node_of(&runtime, *node), Work::unlimited());
            runtime.registry().shrink(&group, node, *priority, Reclaim::FOREGROUND, &mut work);
        }
        Step::Direct(group) => {
            world.set_lossy();
            runtime.registry().direct_reclaim(&tree_group(world, *group), Reclaim::FOREGROUND, &|| {
                enter(Callback::Done);
                false
            });
        }
        Step::PayDebts(group, node) => {
            world.set_lossy();
            let (group, node, mut work) = (tree_group(world, *group), node_of(&runtime, *node), Work::objects(1000));
            runtime.registry().pay_debts(&group, node, &mut work);
        }
        _ => unreachable!("{step:?}"),
    }
}

fn node_of(runtime: &Runtime, node: u8) -> lowwater::NodeId {
    World::node(node % runtime.topology().nodes() as u8)
}

/// Returns the group of a slot, or the root if it is foreign to the runtime.
pub fn tree_group(world: &World, group: u8) -> Memcg {
    let group = world.group(group);
    if group.is_in_tree_of(&world.root) {
        group
    } else {
        world.root.clone()
    }
}

/// A debt listener; its token detects a call after the listener's drop.
struct Debts(Token);

impl DebtListener for Debts {
    fn notify_debt(&self, _: &Memcg, _: lowwater::NodeId, _: Kick) {
        self.0.check("passed to the debt listener");
        enter(Callback::Debt);
    }
}

/// Creates a token for state that a shrinker, hook or listener captures.
pub fn captured() -> Token {
    Token::new(Tag::new(0, 0), Callback::CaptureDrop)
}

pub fn runtimes(world: &Arc<World>, step: &Step) {
    if matches!(step, Step::DropRuntime) {
        return drop(swap(&world.runtime, None));
    }
    let Some(runtime) = world.runtime() else { return };
    match step {
        Step::Sweep => drop(runtime.registry().sweep()),
        Step::Survey => {
            drop((runtime.registry().snapshot(), runtime.registry().survey(), runtime.stats()));
            let _ = (runtime.registry().footprint(), runtime.tree().footprint(), format!("{runtime:?}"));
            if runtime.pressure().is_some() {
                fail("a runtime without a source of pressure has a monitor");
            }
        }
        Step::DebtListener(is_on) => {
            runtime.registry().set_debt_listener(is_on.then(|| Arc::new(Debts(captured())) as Arc<dyn DebtListener>));
        }
        Step::DrainStock => runtime.tree().drain_stock(),
        _ => unreachable!("{step:?}"),
    }
}
