//! Tests of the count of foreground calls, which is not public.

use super::*;
use crate::control::Reclaim;
use crate::work::Work;
use lowwater_lru_core::{MemcgTree, NodeId};

#[test]
fn a_pass_in_the_foreground_is_noted_once_whatever_part_it_goes_over() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 2);
    let noted = |flags| {
        let before = registry.foreground_calls();
        registry.shrink(tree.root(), NodeId::ZERO, 12, flags, &mut Work::unlimited());
        let of_a_node = registry.foreground_calls() - before;
        registry.shrink_selected(&Select::all(), 12, flags, &mut Work::unlimited());
        (of_a_node, registry.foreground_calls() - before - of_a_node)
    };
    assert_eq!(noted(Reclaim::FOREGROUND), (1, 1));
    assert_eq!(noted(Reclaim::KSWAPD), (0, 0));
}
