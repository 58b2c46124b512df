//! The generators of programs.
//!
//! They are strategies of proptest, whose own reduction is not used: `driver.rs` removes steps.
//! Steps that should be frequent have larger weights; `family` has sequences that random steps
//! rarely form.
//!
//! A change of a weight changes all programs: a seed that has failed before then gives another
//! program.

mod cache;
mod family;
mod list;
mod mix;
mod runtime;
mod step;

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

use crate::feature::{Feature, Features};
use crate::program::{Program, RuntimeChoices};
use crate::step::{Step, CACHES};
use cache::choices;
use family::family;
use mix::{mix, Mix};
use step::step;

/// Draws a step, or a family of steps.
fn some_steps(mix: &Mix) -> BoxedStrategy<Vec<Step>> {
    prop_oneof![100 => step(mix).prop_map(|step| vec![step]), mix.families => family(mix)].boxed()
}

/// Draws programs with some of these features, with fewer than `steps` steps or families for each
/// thread.
pub fn programs(on: Features, is_threaded: bool, steps: usize) -> BoxedStrategy<Program> {
    mix(on).prop_flat_map(move |mix| mixed(&mix, is_threaded, steps)).boxed()
}

/// Draws a program: the runtime, the steps of the first thread and of further threads, and the
/// order of the end.
fn mixed(mix: &Mix, is_threaded: bool, steps: usize) -> BoxedStrategy<Program> {
    let on = mix.on;
    let budgets = if on.has(Feature::Pressure) {
        prop_oneof![4 => Just(1u32 << 20), 1 => Just(0), 1 => Just(16 << 10), 1 => 64..2048u32, 1 => 1..64u32].boxed()
    } else {
        Just(1u32 << 20).boxed()
    };
    let gaps = weighted(0.1, (0..32u8, 0..64u8));
    let shape = (budgets, gaps, weighted(0.2, 0..500u16), 1..4u8, any::<bool>(), any::<bool>()).prop_map(
        |(budget_kib, watermarks, direct_us, nodes, is_manual, keeps_runtime)| RuntimeChoices {
            budget_kib,
            watermarks,
            direct_us,
            nodes,
            is_manual,
            keeps_runtime,
        },
    );
    let threads = if is_threaded && on.has(Feature::Threads) { 1..4 } else { 0..1 };
    let beside = vec(vec(some_steps(mix), 1..steps).prop_map(|steps| steps.concat()), threads);
    let ending = Just([0u8, 1, 2, 3, 4, 5]).prop_shuffle();
    // Caches are built first: most other steps need one.
    let first = vec((0..CACHES, choices(on)).prop_map(|(c, choices)| Step::Build(c, choices)), 1..4);
    (shape, first, vec(some_steps(mix), 1..steps), beside, ending)
        .prop_map(|(shape, mut first, steps, beside, ending)| {
            first.extend(steps.concat());
            Program { shape, steps: first, beside, ending }
        })
        .boxed()
}
