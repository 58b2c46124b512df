//! Generators of steps on foreign lists.
//!
//! Items are added to groups of both trees, which may have equal ids: a list must not confuse them.
//! A change must keep both trees.

use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

use crate::feature::{Feature, Features};
use crate::step::{Step, WalkTurn, GROUPS, ITEMS, LISTS};

/// Draws a step on lists and foreign shrinkers.
pub fn lists(on: Features) -> BoxedStrategy<Step> {
    let (l, i, g, n) = (|| 0..LISTS, || 0..ITEMS, || 0..GROUPS, || 0..3u8);
    let turn = prop_oneof![
        Just(WalkTurn::Isolate),
        Just(WalkTurn::Rotate),
        Just(WalkTurn::Skip),
        Just(WalkTurn::Retry),
        Just(WalkTurn::RemoveRetry),
        Just(WalkTurn::Stop),
        Just(WalkTurn::RemoveStop),
    ];
    let has_shrinkers = on.has(Feature::Shrinkers);
    let shrinker = move |step: Step| if has_shrinkers { step } else { Step::Sweep };
    prop_oneof![
        3 => (l(), 0..4u8).prop_map(|(l, how)| Step::MakeList(l, how)),
        1 => l().prop_map(Step::DropList),
        2 => (l(), 0..8u8).prop_map(move |(l, how)| shrinker(Step::Register(l, how))),
        2 => l().prop_map(move |l| shrinker(Step::Unregister(l))),
        1 => l().prop_map(move |l| shrinker(Step::UnregisterNowait(l))),
        1 => (g(), 0..300u16).prop_map(|(g, kib)| Step::Miss(g, kib)),
        2 => (l(), g(), n(), 0..12u8).prop_map(|(list, group, node, nr)| Step::IsolateOldest { list, group, node, nr }),
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
