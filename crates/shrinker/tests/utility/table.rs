//! The table of pairs: choices after most pairs have gone.

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_shrinker::Reclaim;

use super::common::Shelf;
use super::{batches, world, Pool, N0, OBJECT};

#[test]
fn the_pair_without_hits_pays_after_most_pairs_have_gone() {
    const LIVE: usize = 40;
    for most in [LIVE, 500 * LIVE] {
        let (tree, registry) = world(1);
        tree.root().set_max(ByteSize::gib(1));
        let [filler, pool] = ["filler", "pool"].map(|name| Pool::with(&tree, &registry, name, Shelf::of_bytes(OBJECT)));
        let groups: Vec<_> = (0..most).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
        let is_live = |n: usize| n.is_multiple_of(most / LIVE);
        for (n, group) in groups.iter().enumerate() {
            if is_live(n) {
                let _ = group.try_charge(ByteSize::new(2_000 * OBJECT)).unwrap();
                pool.shelf.add(group, N0, 2_000);
            } else {
                filler.shelf.add(group, N0, 1);
            }
        }
        drop(filler);
        let live: Vec<_> = groups.iter().step_by(most / LIVE).collect();
        let (useless, useful) = live.split_last().unwrap();
        batches(100, &registry, tree.root(), Reclaim::KSWAPD);
        useful.iter().for_each(|group| pool.misses(group, 200));
        let held = |groups: &[&Memcg]| groups.iter().map(|group| pool.shelf.len(group, N0)).sum::<u64>();
        let before = [held(useful), held(&[useless])];
        batches(200, &registry, tree.root(), Reclaim::FOREGROUND);
        let paid = [before[0] - held(useful), before[1] - held(&[useless])];
        assert!(
            paid[1] > 1_000 && paid[1] > 10 * paid[0],
            "of {most}, those with misses and that without paid {paid:?}"
        );
    }
}
