//! Tests of the count of foreground calls, which is not public.
//!
//! The reclaimer reads the count to pace its debts, so a call that is counted twice slows it down.
//!
//! A new call of the foreground is added to the count's test.

use super::*;
use crate::control::Reclaim;
use crate::work::Work;
use lowwater_lru_core::{MemcgTree, NodeId};

#[test]
fn a_foreground_pass_is_counted_once() {
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
