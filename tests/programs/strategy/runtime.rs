//! Generators of steps on a runtime and its groups.
//!
//! Limits are drawn near the bytes that programs use, so that they cause evictions.
//!
//! A step that is added belongs into one of three parts: steps that evict nothing (`calm`), steps
//! that may evict (`pressure`), and steps that end groups (`end`).

use proptest::prelude::*;

use crate::feature::{Feature, Features};
use crate::step::{GroupLimit, Step, GROUPS};

/// Draws a step on the runtime and its groups.
pub fn runtimes(on: Features) -> BoxedStrategy<Step> {
    let (g, n) = (|| 0..GROUPS, || 0..3u8);
    let limit =
        prop_oneof![Just(GroupLimit::Min), Just(GroupLimit::Low), Just(GroupLimit::High), Just(GroupLimit::Max)];
    let calm = prop_oneof![
        1 => Just(Step::Sweep),
        1 => Just(Step::Survey),
        1 => Just(Step::DrainStock),
        1 => any::<bool>().prop_map(Step::DebtListener),
        1 => any::<bool>().prop_map(Step::Hook),
        2 => (g(), 0..5000u16).prop_map(|(g, bytes)| Step::Charge(g, bytes)),
        2 => Just(Step::Uncharge),
        1 => (g(), 0..4u8, 0..5000u16).prop_map(|(g, how, bytes)| Step::TryCharge(g, how, bytes)),
        2 => (g(), 0..5000u16).prop_map(|(g, bytes)| Step::Guard(g, bytes)),
        2 => (0..4u8, 0..5000u16).prop_map(|(how, bytes)| Step::Resize(how, bytes)),
        1 => prop_oneof![4 => Just(Step::DropGuard), 1 => Just(Step::LeakGuard)],
        2 => Just(Step::Charged),
        1 => Just(Step::DropCharged),
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
        1 => g().prop_map(Step::Wake),
        1 => g().prop_map(Step::ShrinkLeastUseful),
        1 => (g(), n()).prop_map(|(g, node)| Step::PayDebts(g, node)),
    ];
    let tenants = prop_oneof![
        1 => (0..3u8, 0..20u8, prop_oneof![1 => Just(0u16), 2 => 1..400u16])
            .prop_map(|(parent, idle, kib)| Step::MakeTenants(parent, idle, kib)),
        3 => (g(), 0..4u8).prop_map(|(g, name)| Step::Tenant(g, name)),
    ];
    let end = prop_oneof![g().prop_map(Step::End), g().prop_map(Step::Offline), g().prop_map(Step::DropGroup)];
    prop_oneof![
        12 => calm,
        if on.has(Feature::Pressure) { 6 } else { 0 } => pressure,
        if on.has(Feature::GroupsEnd) { 2 } else { 0 } => end,
        u32::from(on.has(Feature::GroupsEnd) && on.has(Feature::Pressure)) => tenants,
    ]
    .boxed()
}
