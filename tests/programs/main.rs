//! Random programs over the whole public interface of a runtime, compared with a model.
//!
//! A program is a list of steps, drawn from a seed. Programs run in child processes, so aborts and
//! hangs are found as well as panics. A failing program is reduced: the parent runs it again
//! without some of its steps. `ci/programs.sh` runs programs for any time, also under
//! AddressSanitizer.
//!
//! | module | contents |
//! |---|---|
//! | `feature` | switches for the features of programs |
//! | `step`, `program` | steps; a program of them |
//! | `strategy` | the generators of programs |
//! | `run` | runs steps |
//! | `world` | the objects that steps use |
//! | `model` | the correct results of caches while one thread uses them |
//! | `bounds` | the highest usage that each group may have, by the promises on budgets and readers |
//! | `time` | the times of entries in the model |
//! | `reload` | rights to reload entries |
//! | `token` | values that detect a use after their drop |
//! | `callback` | actions inside of callbacks: panics, and further steps |
//! | `cache`, `key`, `value` | caches of all types behind one trait |
//! | `item`, `object` | objects of foreign lists, indexes and chains |
//! | `access` | the way to a cache's entries: by the cache, or by views of tenants |
//! | `rcu` | a cell under RCU, and grace periods |
//! | `storage` | objects that threads hold across steps, in thread-locals too |
//! | `case`, `driver` | a program from its seed to its end; many of them in processes |
//!
//! # Families
//!
//! About every second program has families of steps (`strategy::family`): steps that are rarely
//! drawn in succession. Each of these defects was put back into the library, and a build without
//! sanitizers found it, beside other work on two processors:
//!
//! | feature, family | defect | found as | after |
//! |---|---|---|---|
//! | `Chains`, `moves_between_chains` | [1] | canary of a dropped object | 243 programs, 23 s |
//! | `TwoTrees`, `two_trees_in_a_list` | [2] | counts that are not those of the boxes alive | 5, 5 s |
//! | `CapturePanics`, `housekeeper_drops_captures` | [3] | the housekeeper's thread panicked | 71, 9 s |
//! | `ListenersDropHandles`, `caches_end_each_other` | [4] | deadline | 19, 2 s and a deadline of 30 s |
//!
//! 1. The end of a table drops objects under readers of another table.
//! 2. Lists are found by the group's id alone.
//! 3. The housekeeper drops the last handle of a cache outside of its panic handler.
//! 4. The end of a registration waits inside a callback of another one.
//!
//! # Bounds
//!
//! After each step `bounds` checks the usage of each group and the retired bytes, whatever the
//! model permits. These defects were put into the library, with the first seed 1:
//!
//! | defect | found as | after |
//! |---|---|---|
//! | each charge succeeds (`Memcg::add_usage`) | usage above the bound | 2 programs, 1 s |
//! | each charge succeeds but for the root's `max` | usage of a dropped group above 0 | 38, 5 s |
//! | an insert does not compare the retired bytes (`Retired::has_room_for`) | usage and retired bytes | 14, 2 s |
//!
//! # Left out
//!
//! A public operation that is added needs a step, and its result in the model. These have none:
//!
//! * Pressure of the machine, of control groups and of systemd, and `trim`: they read the machine.
//!   `tests/pressure.rs` and the tests of the crate `lowwater-pressure` use files of their own.
//! * `RuntimeBuilder::pressure`: the monitor changes the budget at times that no step knows, and so
//!   no bound is known. Steps check that `Runtime::pressure` is `None`.
//! * The async forms of `TenantView`'s methods for many keys, and those of `Refresh` except
//!   `load_with_async`: they only await the forms that have steps.
//! * Values inside of `Charged::new` are in no cache: such an entry is charged twice on purpose.
//! * `ExtendibleIndex::remove_slot` and `visit_evacuating`, `Slot::from_raw`: the first two are
//!   those of caches' evictions and compactions, and the last is unsafe.
//! * `ExtendibleIndex::assert_valid` after `remove_shown`, which leaves overflow counts too high.
//! * `RegistryConfig`, its policies, debugfs and the flags of `Reclaim`: a runtime chooses them,
//!   and the tests of the crate `lowwater-shrinker` compare all.
//! * `ShrinkControl::back_off`, `flags` and `set_nr_scanned`, `Shrinker::weigh_objects`,
//!   `Isolate::arc`, `HashChains::prefetch_first` and `Slab::drop_panics` have no step yet.
//! * Figures, metrics and `Debug` texts: steps call them, and their tests compare the numbers.
//! * Adapters, the server and the model of a dentry cache are tests of their own.

#![forbid(unsafe_code)]

mod access;
mod bounds;
mod cache;
mod callback;
mod case;
mod driver;
mod feature;
mod item;
mod key;
mod model;
mod object;
mod program;
mod rcu;
mod reload;
mod run;
mod step;
mod storage;
mod strategy;
mod time;
mod token;
mod value;
mod world;

#[test]
fn programs() {
    driver::parent();
}

/// Does nothing except in processes that [`programs`] starts.
#[test]
fn child() {
    driver::child();
}
