//! Random programs over the whole public interface of a runtime, with a model that says what is right.
//!
//! A program is a list of steps, drawn from a seed. It runs in a process of its own: what aborts or
//! hangs is found as what panics is, and made simpler (proptest's trees, walked from outside).
//! `ci/programs.sh` runs them for as long as one wants, also under AddressSanitizer.
//!
//! | module | |
//! |---|---|
//! | `feature` | switches for what programs may do |
//! | `step`, `program` | steps; a program of them |
//! | `strategy` | how programs are drawn |
//! | `run` | runs them |
//! | `world` | what they work with |
//! | `model` | what caches must answer while one thread uses them |
//! | `token` | values that know whether they are alive |
//! | `callback` | what happens inside of callbacks: panics, and further steps |
//! | `cache`, `key`, `value` | caches of all types behind one trait |
//! | `item`, `object` | what foreign lists, indexes and chains hold |
//! | `storage` | what threads hold across steps, in thread-locals too |
//! | `case`, `driver` | a program from its seed to its end; many of them in processes |
//!
//! # Families
//!
//! Every second program has families of steps (`strategy::family`): steps that are seldom drawn one
//! after the other. Each of these defects was put back into the library, and found by a build
//! without sanitizers, beside other work on two processors:
//!
//! | feature, family | defect | found as | after |
//! |---|---|---|---|
//! | `Chains`, `moves_between_chains` | [1] | canary of a dropped object | 243 programs, 23 s |
//! | `TwoTrees`, `two_trees_in_a_list` | [2] | counts that are not those of the boxes alive | 5, 5 s |
//! | `CapturePanics`, `keeper_drops_captures` | [3] | the housekeeper's thread panicked | 71, 9 s |
//! | `ListenersDropHandles`, `caches_end_each_other` | [4] | deadline | 19, 2 s and the deadline's 30 |
//!
//! 1. The end of a table drops objects under readers of another table.
//! 2. Lists are found by the group's id alone.
//! 3. The housekeeper drops the last handle on a cache outside of what catches panics.
//! 4. The end of a registration waits inside a callback of another one.

#![forbid(unsafe_code)]

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
mod run;
mod step;
mod storage;
mod strategy;
mod token;
mod value;
mod world;

#[test]
fn programs() {
    driver::parent();
}

/// Does nothing but in processes that [`programs`] starts.
#[test]
fn child() {
    driver::child();
}
