//! The mix of a program: the weights of its kinds of steps.
//!
//! Every program draws its own weights, so that some programs consist mostly of one kind; with
//! equal weights rare combinations would hardly occur.
//!
//! A new kind of steps must be able to get the weight 0.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::callback::{self, Callback};
use crate::feature::Features;

/// The mix of a program: each program has its own, so that some run many rare steps.
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

pub fn mix(on: Features) -> impl Strategy<Value = Mix> {
    // Two of three features, and a family of steps in three out of four.
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
