//! A random history without evictions, compared with a plain map.
//!
//! Results of all operations are compared step by step; evictions are tested elsewhere (`orders`).
//!
//! A new operation is added to the histories and to the map.

use super::cache_of;
use crate::cache::{Computed, Op};
use crate::ByteSize;
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u8, usize),
    Get(u64),
    Remove(u64),
    Compute(u64, Op<u8>),
    Load(u64, u8),
    EndGroup(usize),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..8_u64;
    let long = Some(Duration::from_secs(3_600));
    let op = prop_oneof![
        any::<u8>().prop_map(Op::Put),
        any::<u8>().prop_map(move |v| Op::PutFor(v, long)),
        any::<u8>().prop_map(Op::Update),
        Just(Op::Touch(long)),
        Just(Op::Remove),
        Just(Op::Keep),
    ];
    prop_oneof![
        6 => (key.clone(), any::<u8>(), 0..3_usize).prop_map(|(k, v, g)| Step::Insert(k, v, g)),
        4 => key.clone().prop_map(Step::Get),
        2 => key.clone().prop_map(Step::Remove),
        4 => (key.clone(), op).prop_map(|(k, op)| Step::Compute(k, op)),
        2 => (key, any::<u8>()).prop_map(|(k, v)| Step::Load(k, v)),
        1 => (0..3_usize).prop_map(Step::EndGroup),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_random_history_equals_a_map(steps in prop::collection::vec(step(), 1..100)) {
        let cache = cache_of(ByteSize::mib(1));
        let runtime = cache.runtime().clone();
        let group = |g: usize| runtime.group(&format!("g{g}")).unwrap();
        let mut map = HashMap::<u64, u8>::new();
        for step in steps {
            match step {
                Step::Insert(k, v, g) => {
                    let old = cache.entry(k).group(&group(g)).insert(vec![v]).unwrap();
                    prop_assert_eq!(old, map.insert(k, v).map(|v| vec![v]));
                }
                Step::Get(k) => prop_assert_eq!(cache.get(&k), map.get(&k).map(|&v| vec![v])),
                Step::Remove(k) => prop_assert_eq!(cache.remove(&k), map.remove(&k).map(|v| vec![v])),
                Step::Load(k, v) => {
                    let there = *map.entry(k).or_insert(v);
                    prop_assert_eq!(cache.get_or_insert_with(k, || vec![v]), vec![there]);
                }
                Step::Compute(k, op) => {
                    let done = cache.entry(k).and_compute(|current| {
                        assert_eq!(current.map(|c| c.value()[0]), map.get(&k).copied());
                        match op {
                            Op::Put(v) => Op::Put(vec![v]),
                            Op::PutFor(v, time) => Op::PutFor(vec![v], time),
                            Op::Update(v) => Op::Update(vec![v]),
                            Op::Touch(time) => Op::Touch(time),
                            Op::Remove => Op::Remove,
                            Op::Keep => Op::Keep,
                        }
                    });
                    let expected = match op {
                        Op::Put(v) | Op::PutFor(v, _) | Op::Update(v) => {
                            map.insert(k, v).map_or(Computed::Inserted, |old| Computed::Replaced(vec![old]))
                        }
                        Op::Remove => map.remove(&k).map_or(Computed::Kept, |old| Computed::Removed(vec![old])),
                        Op::Touch(_) | Op::Keep => Computed::Kept,
                    };
                    prop_assert_eq!(done.unwrap(), expected);
                }
                Step::EndGroup(g) => runtime.end_group(&group(g)).unwrap(),
                Step::Clear => {
                    cache.clear();
                    map.clear();
                }
            }
            prop_assert_eq!(cache.len(), map.len());
            cache.inner.core.queues.assert_valid();
        }
    }
}
