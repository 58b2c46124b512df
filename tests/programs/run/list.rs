//! Steps on foreign lists, shrinkers and items.
//!
//! Items are shared with the slots, or boxes that only their list owns. `Lists` counts the boxes of
//! each group; after each step `run.rs` compares these counts with the library's.
//!
//! A step that is added and adds boxes must count them (`Lists::add_boxes`).

use std::sync::Arc;

use lowwater::{ByteSize, Isolated};
use lowwater_shrinker::Miss;

use super::runtime::captured;
use crate::item::{Foreign, Lists, Shared};
use crate::step::Step;
use crate::world::{at, swap, World};

/// Runs a step on lists, items and foreign shrinkers.
pub fn lists(world: &Arc<World>, step: &Step) {
    match step {
        Step::MakeList(place, how) => {
            let runtime = world.runtime().filter(|_| how % 2 != 0);
            let lists = match &runtime {
                // The lists notify a shrinker: one that is never registered, or for 3 a registered
                // one.
                Some(runtime) => {
                    let builder = runtime.registry().builder("foreign").seeks(u32::from(*how)).reports_misses(true);
                    let Ok(prepared) = builder.alloc() else {
                        return;
                    };
                    let occupancy = match how {
                        1 => prepared.occupancy(),
                        _ => prepared.try_occupancy().expect("memory is available"),
                    };
                    let lists = Arc::new(Lists::new(Some(occupancy)));
                    drop(swap(&world.reporter, Some(Arc::new(prepared.miss_reporter()))));
                    if *how == 3 && world.features.has(crate::feature::Feature::Shrinkers) {
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
            let foreign = Arc::new(Foreign { lists, how: *how, captured: captured() });
            let registration = match how % 2 {
                0 => prepared.register(foreign),
                _ => prepared.try_register(foreign).expect("memory is available"),
            };
            let before = swap(at(&world.registrations, *place), Some(registration));
            unregister(world, *place, before);
        }
        Step::Unregister(place) => unregister(world, *place, swap(at(&world.registrations, *place), None)),
        Step::UnregisterNowait(place) => {
            let registration = swap(at(&world.registrations, *place), None);
            if let Some(registration) = registration {
                registration.unregister_nowait();
            }
        }
        Step::Miss(group, kib) => {
            let reporter = world.reporter.lock().unwrap().clone();
            let Some(reporter) = reporter else { return };
            let miss = Miss::at(ByteSize::kib((*kib).into())).cost(u32::from(*kib) + 1).weight(3);
            reporter.miss(&world.group(*group), miss);
            reporter.set_mean_cost(u32::from(*kib));
            let _ = reporter.id();
        }
        Step::IsolateOldest { list, group, node, nr } => {
            let Some(lists) = world.list(*list) else { return };
            lists.isolate_oldest(&world.group(*group), World::node(*node), (*nr).into());
        }
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
            // Not compared: a shrinker on another thread may remove the item in between.
            drop(lists.shared.memcg_of(&item));
            drop(lists.shared.del_with_memcg(&item));
        }
        Step::DelMany(list) => {
            let Some(lists) = world.list(*list) else { return };
            let items: Vec<_> = (0..16).filter_map(|item| world.item(item)).collect();
            let mut gone = Isolated::new();
            lists.shared.del_batch(items.iter().map(|item| &**item), &mut gone);
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
            lists.shared.promote(&item);
        }
        Step::Walk { list, group, node, nr, turns } => {
            let Some(lists) = world.list(*list) else { return };
            let group = group.map(|group| world.group(group));
            let mut gone = Isolated::new();
            lists.walk(group.as_ref(), World::node(*node), (*nr).into(), turns, &mut gone);
            put_aside(world, gone);
            // These must not panic in any state.
            for node in 0..3 {
                let _ = (lists.shared.count_node(World::node(node)), lists.shared.pairs(), lists.shared.footprint());
            }
        }
        Step::AddIsolated(list, group, node) => {
            let Some(lists) = world.list(*list) else { return };
            let mut isolated = std::mem::take(&mut *world.isolated.lock().unwrap());
            let _added = lists.shared.add_batch(&mut isolated, &world.group_of_lists(*group), World::node(*node));
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

/// Adds items to `World::isolated`.
fn put_aside(world: &World, isolated: Isolated<Shared>) {
    for item in isolated {
        item.token.check("put aside");
        let pushed = world.isolated.lock().unwrap().push(item);
        drop(pushed);
    }
}

/// Ends a registration. If that is refused, because its callback runs on this thread, puts it into
/// the slot, or leaks it if the slot is in use.
fn unregister(world: &World, place: u8, registration: Option<lowwater::Registration>) {
    let Some(Err((_, registration))) = registration.map(lowwater::Registration::unregister) else { return };
    let mut place = at(&world.registrations, place).lock().unwrap();
    if place.is_none() {
        *place = Some(registration);
    } else {
        std::mem::forget(registration);
    }
}
