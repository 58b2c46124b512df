//! One program from its seed to its end, and the checks of its end.
//!
//! `draw` makes the program of a seed; `run` executes it and checks at the end that no token is
//! alive and, if the program keeps its runtime, that nothing is charged. A failed check aborts the
//! process, since the library could catch a panic.
//!
//! A change must ensure that a seed always gives the same program.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

use lowwater::ByteSize;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::feature::Features;
use crate::item::Lists;
use crate::program::Program;
use crate::run::{self, until};
use crate::strategy::programs;
use crate::token::{self, fail};
use crate::world::{self, swap, World};

/// A bound of the steps and families that are drawn for each thread of a program.
const STEPS: usize = 120;

/// Returns the program of a seed.
pub fn draw(seed: u64, on: Features) -> Program {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let steps = if seed % 4 == 0 { STEPS / 4 } else { STEPS };
    // Every third program may have several threads.
    let tree = programs(on, seed % 3 == 0, steps).new_tree(&mut runner).expect("steps can be drawn");
    tree.current()
}

/// Runs a program, and aborts the process if a check fails or the program takes too long. Returns
/// false if the program has leaked a guard: what later programs retire would never be dropped.
pub fn run(program: Program, on: Features, deadline: Duration) -> bool {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // A wait at the end fails with its own message, before the program counts as hanging.
        let is_clean = run_here(&program, on, deadline / 5);
        let _sent = done.send(is_clean);
    });
    let is_clean = match ended.recv_timeout(deadline) {
        Ok(is_clean) => is_clean,
        Err(RecvTimeoutError::Disconnected) => fail("the program's thread panicked"),
        Err(RecvTimeoutError::Timeout) => {
            eprintln!("FAILED: not done after {deadline:?}: it hangs");
            std::process::abort();
        }
    };
    let _joined = thread.join();
    is_clean
}

fn run_here(program: &Program, on: Features, patience: Duration) -> bool {
    let mark = token::mark();
    let world = Arc::new(World::new(on, &program.shape, program.beside.is_empty()));
    world::set_current(Some(Arc::clone(&world)));
    let threads = program.beside.iter().chain([&program.steps]).map(|steps| {
        let (world, steps) = (Arc::clone(&world), steps.clone());
        std::thread::spawn(move || run::thread(&world, &steps))
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(run::join);
    valid(&world);
    end(&world, program, patience);
    let (has_leaked, may_leak) = (world.has_leaked.load(SeqCst), world.may_leak.load(SeqCst));
    world::set_current(None);
    drop(world);
    if !has_leaked && !may_leak {
        let alive = || token::alive_since(mark);
        let is_empty = || {
            // Values of cells wait for a batch.
            lowwater_rcu::flush();
            alive().is_empty()
        };
        until(patience, is_empty, || format!("not dropped: {:?}", alive()));
    }
    !has_leaked
}

/// Checks the structure of all lists and of the index.
fn valid(world: &World) {
    for lists in world.lists.iter().filter_map(|place| place.lock().unwrap().clone()) {
        let lists: &Lists = &lists;
        lists.shared.assert_valid();
        lists.boxed.assert_valid();
    }
    world.store.assert_valid();
}

/// Drops everything in the program's order, and checks that nothing stays charged.
fn end(world: &World, program: &Program, patience: Duration) {
    let keeps_runtime = program.shape.keeps_runtime;
    let runtime = world.runtime().filter(|_| keeps_runtime);
    // Armed actions may panic here, too, or insert objects again. So everything is dropped twice,
    // and the second time no action is armed.
    for _ in 0..2 {
        for part in program.ending {
            run::catch_intended(|| end_part(world, part));
        }
        world.armed.lock().unwrap().clear();
    }
    let charges = std::mem::take(&mut *world.charges.lock().unwrap());
    charges.iter().for_each(|(group, bytes)| group.uncharge(*bytes));
    let Some(runtime) = runtime else { return };
    if world.has_leaked.load(SeqCst) {
        return;
    }
    let leaked = ByteSize::new(world.leaked.load(SeqCst));
    let usage = || {
        runtime.tree().drain_stock();
        runtime.root().usage()
    };
    // A panic in a callback must not have ended the housekeeper.
    run::housekeeper_works(&runtime);
    until(patience, || usage() == leaked, || format!("{} are charged at the end, {leaked} were leaked", usage()));
    drop(runtime);
}

/// Drops one kind of objects; `part` is a number of `Program::ending`.
fn end_part(world: &World, part: u8) {
    match part {
        0 => {
            let reloads = std::mem::take(&mut *world.reloads.lock().unwrap());
            drop(reloads);
            let (guards, charged) = (
                std::mem::take(&mut *world.guards.lock().unwrap()),
                std::mem::take(&mut *world.charged.lock().unwrap()),
            );
            run::catch_intended(|| drop((guards, charged)));
            world.caches.iter().for_each(|place| run::catch_intended(|| drop(swap(place, None))));
        }
        1 => world.registrations.iter().for_each(|place| run::catch_intended(|| drop(swap(place, None)))),
        2 => {
            world.lists.iter().for_each(|place| run::catch_intended(|| drop(swap(place, None))));
            world.items.iter().for_each(|place| run::catch_intended(|| drop(swap(place, None))));
            let isolated = std::mem::take(&mut *world.isolated.lock().unwrap());
            drop(isolated);
        }
        3 => {
            drop(swap(&world.reporter, None));
            drop(swap(&world.tenants, None));
            drop(swap(&world.runtime, None));
            drop(swap(&world.other, None));
        }
        4 => {
            let groups: Vec<_> = world.groups.iter().filter_map(|place| swap(place, None)).collect();
            // A group with children cannot end: its error is ignored.
            groups.iter().for_each(|group| run::catch_intended(|| _ = group.offline()));
        }
        _ => {
            world.store.clear();
            world.tables.clear();
            let saved = std::mem::take(&mut *world.saved.lock().unwrap());
            drop(saved);
        }
    }
}
