//! The mix of a program: the weights of its kinds of steps.
//!
//! Every program draws its own weights, so that some programs consist mostly of one kind; with
//! equal weights rare combinations would hardly occur.
//!
//! A new kind of steps should be able to get the weight 0. Caches, armed callbacks and kept objects
//! have at least a small one.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::callback::{self, Callback};
use crate::feature::Features;

/// The features, weights and callbacks of one program.
#[derive(Clone, Debug)]
pub struct Mix {
    pub on: Features,
    /// Weights of caches, the runtime, lists, indexes, chains, armed callbacks, kept objects.
    pub weights: [u32; 7],
    /// The callbacks that are armed.
    pub callbacks: Vec<Callback>,
    /// The weight of families of steps, against 100 for single steps.
    pub families: u32,
}

/// Draws a mix.
pub fn mix(on: Features) -> impl Strategy<Value = Mix> {
    // A feature is on in three of four programs, since a bit of `a | b` is; every second program
    // has families.
    let masks = (any::<u32>(), any::<u32>()).prop_map(|(a, b)| a | b);
    let weight = || prop_oneof![1 => Just(0u32), 3 => 1..30u32];
    let weights = (5..40u32, weight(), weight(), weight(), weight(), 1..25u32, 1..25u32);
    let callbacks = vec(proptest::sample::select(callback::ALL.to_vec()), 1..6);
    let families = prop_oneof![Just(0u32), 2..20u32];
    (masks, weights, callbacks, families).prop_map(move |(mask, (a, b, c, d, e, f, g), callbacks, families)| Mix {
        on: on.and(mask),
        weights: [a, b, c, d, e, f, g],
        callbacks,
        families,
    })
}
