//! The sweep: lists that have been empty for a while are given back.
//!
//! A group that used a list once and does not any more would keep 64 bytes and a slot for it until the group or the list
//! ends. So the reclaimer, when it has nothing else to do, goes round the groups. What it finds empty it marks, and what it
//! finds marked, since nothing was added between two rounds, it gives back: a list that fills and empties all the time is not
//! made again and again.
//!
//! It also joins what was split and is quiet ([`split`](super::split)), and begins to count anew how often adds had to wait.
//!
//! Nobody registers: every group chains its own lists ([`Pairs`](super::Pairs)).

use super::chain::Chain;
use super::locked::Idleness;
use super::raw::RawListLru;
use crate::fallible::try_push;
use crate::rcu::{flush, pin};
use crate::Memcg;
use alloc::vec::Vec;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Lists that were given back.
    pub given_back: u64,
    /// Empty lists that the next sweep gives back if they stay so.
    pub marked: u64,
}

/// Gives back the lists of `root` and the groups below it that nothing was added to since the last sweep, and that hold
/// nothing: of all [`ListLru`](crate::ListLru)s and nodes, children's before their parents'.
///
/// The parts of a list that was [split](super#a-list-that-is-split) are joined when all but the busiest were little used since
/// the last sweep, and not at the first one after the split.
///
/// A list somebody [prepared](crate::ListLru::prepare) stays for as long as that is kept, an ancestor's as long as a child's.
/// Without memory for a list of the groups only the first in the order of the tree are looked at. O(groups + their lists); holds a group's chain of lists while it is there, so that first adds of that group wait.
///
/// ```
/// use lowwater_lru_core::{linked, list_lru, Links, ListLru, MemcgTree, NodeId};
///
/// struct Page(Links);
/// linked!(impl[] for Page { 0, handle: Box<Page> });
///
/// let tree = MemcgTree::default();
/// let lru = ListLru::<Page>::new();
/// let before = lru.footprint();
/// drop(lru.prepare(tree.root(), NodeId::ZERO)?);
/// assert_eq!(list_lru::sweep(tree.root()).marked, 1);
/// assert_eq!(list_lru::sweep(tree.root()).given_back, 1);
/// assert_eq!(lru.footprint(), before);
/// # Ok::<(), lowwater_lru_core::AllocError>(())
/// ```
pub fn sweep(root: &Memcg) -> Swept {
    // The other way round than pre-order, children come before their parents.
    let mut groups = Vec::new();
    for memcg in root.descendants() {
        if try_push(&mut groups, memcg).is_err() {
            break;
        }
    }
    let mut swept = Swept::default();
    for memcg in groups.iter().rev() {
        sweep_group(memcg, &mut swept);
    }
    // What waits for its readers shall not wait for more of its kind.
    flush();
    swept
}

pub(super) fn sweep_group(memcg: &Memcg, swept: &mut Swept) {
    let guard = pin();
    let mut chain = Chain::lock(memcg);
    if chain.is_closed() {
        return; // Its end is under way, which deals with all its lists.
    }
    let mut next = chain.first();
    while !next.is_null() {
        // SAFETY: what is on the chain is live, and not freed before we leave the read side.
        let one = unsafe { &*next };
        // SAFETY: it is on this chain.
        next = unsafe { chain.after(next) };
        // SAFETY: it is in its owner's table, so the owner does not finish dropping before it has had this chain's lock.
        let owner = unsafe { RawListLru::of(one) };
        match owner.sweep(one, &mut chain, &guard) {
            Idleness::Busy => owner.shrink_table(&guard),
            Idleness::Marked => swept.marked += 1,
            // The owner may be gone from here on.
            Idleness::Idle => swept.given_back += 1,
        }
    }
}
