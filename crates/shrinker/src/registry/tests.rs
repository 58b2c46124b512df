//! Tests of the count of foreground calls, which is not public.
//!
//! While the count grows, the reclaimer pays debts slowly (`reclaimer/pace.rs`): a counted pass of
//! the background would slow it down, and an uncounted one of the foreground would not. A pass over
//! two nodes is one call.
//!
//! A new call of the foreground is added to the test.

use super::*;
use crate::control::Reclaim;
use crate::work::Work;
use lowwater_lru_core::{MemcgTree, NodeId};

#[test]
fn a_foreground_pass_is_counted_once() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 2);
    let counted = |flags| {
        let before = registry.foreground_calls();
        registry.shrink(tree.root(), NodeId::ZERO, 12, flags, &mut Work::unlimited());
        let of_a_node = registry.foreground_calls() - before;
        registry.shrink_selected(&Select::all(), 12, flags, &mut Work::unlimited());
        (of_a_node, registry.foreground_calls() - before - of_a_node)
    };
    assert_eq!(counted(Reclaim::FOREGROUND), (1, 1));
    assert_eq!(counted(Reclaim::KSWAPD), (0, 0));
}
