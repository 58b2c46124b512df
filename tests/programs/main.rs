//! Random programs over the whole public interface of a runtime, with a model that says what is right.
//!
//! A program is a list of steps, drawn from a seed. It runs in a process of its own: what aborts or
//! hangs is found as what panics is, and made simpler (proptest's trees, walked from outside).
//! `ci/programs.sh` runs them for as long as one wants, also under AddressSanitizer.
//!
//! | module | |
//! |---|---|
//! | `feature` | switches for what programs may do |
//! | `step` | steps, and how they are drawn |
//! | `run` | runs them |
//! | `world` | what they work with |
//! | `model` | what caches must answer while one thread uses them |
//! | `token` | values that know whether they are alive |
//! | `callback` | what happens inside of callbacks: panics, and further steps |
//! | `cache`, `key`, `value` | caches of all types behind one trait |
//! | `item`, `object` | what foreign lists, indexes and chains hold |
//! | `shelf` | what threads keep, and let go of when they end |
//! | `case`, `driver` | a program from its seed to its end; many of them in processes |

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
mod run;
mod shelf;
mod step;
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
