//! Objects kept across steps, and steps inside of a scope: under a guard or reader, during an
//! iteration, without reclaim, on other threads.
//!
//! Scopes nest, so programs also run steps under several guards. A scope that is added must end
//! before the program's last checks.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;

use lowwater_rcu::pin;
use lowwater_shrinker::CallbackScope;
use lowwater_store::hash_chains::Reader;

use super::all;
use crate::bounds::Bounds;
use crate::callback::IntendedPanic;
use crate::step::{Keep, Scope, Step, Storage, KEYS};
use crate::storage::{self, Stored};
use crate::token::fail;
use crate::world::World;

/// Keeps an object in a storage of this thread, or leaks it.
pub fn keep(world: &Arc<World>, what: Keep, storage: Storage) {
    if matches!(storage, Storage::Leak) {
        world.has_leaked.store(true, SeqCst);
        let found = world.store.found_under_leaked();
        world.found_under_leaked.lock().unwrap().extend(found);
    }
    let kept = match what {
        Keep::Guard => Some(Stored::Guard(pin())),
        Keep::Reader => Some(Stored::Reader(Reader::enter())),
        Keep::Cache(cache) => world.cache(cache).map(Stored::Cache),
        Keep::Group(group) => Some(Stored::Group(world.group(group))),
        Keep::Item(item) => world.item(item).map(Stored::Item),
        Keep::Charge => world.guards.lock().unwrap().pop().map(Stored::Charge),
        Keep::Charged => world.charged.lock().unwrap().last().cloned().map(Stored::Charged),
        Keep::Value(cache, key) => world.cache(cache).and_then(|cache| cache.value(key)).map(Stored::Value),
    };
    if let Some(kept) = kept {
        storage::keep(kept, storage);
    }
}

/// Runs steps inside of a scope. If the scope's slot is empty, the steps run without it.
pub fn within(world: &Arc<World>, scope: Scope, steps: &[Step]) {
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
            world.set_lossy();
            all(world, steps);
            drop(scope);
        }
        Scope::Callback => {
            let scope = CallbackScope::enter();
            world.set_lossy();
            all(world, steps);
            drop(scope);
        }
        Scope::Thread => {
            let (world, steps, own) = (Arc::clone(world), steps.to_vec(), Bounds::own());
            join(std::thread::spawn(move || {
                // This thread waits.
                Bounds::inherit(own);
                thread(&world, &steps);
            }));
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

/// The body of each thread of a program.
pub fn thread(world: &Arc<World>, steps: &[Step]) {
    storage::begin();
    all(world, steps);
    storage::release();
}

/// Waits for a thread. An intended panic is no failure: a drop in `storage::release` may panic.
pub fn join(thread: std::thread::JoinHandle<()>) {
    if let Err(payload) = thread.join() {
        if payload.downcast_ref::<IntendedPanic>().is_none() {
            fail("a thread panicked");
        }
    }
}
