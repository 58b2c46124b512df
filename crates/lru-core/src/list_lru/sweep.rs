//! The sweep: frees lists that have been empty for a while.
//!
//! A group that no longer uses a list would keep 64 bytes and a table slot for it until the group
//! or the `ListLru` ends. So an idle reclaimer thread sweeps all groups. A sweep marks each empty
//! list, and frees each list that the previous sweep marked and that got no item since. With one
//! sweep instead of two, a list that fills and empties all the time would be freed and recreated
//! again and again.
//!
//! A sweep also joins the shards of lists that are no longer contended ([`shards`](super::shards)),
//! and resets the counts of adds that found the lock taken.
//!
//! A sweep needs no list of all `ListLru`s: every group chains its own lists
//! ([`chain`](super::chain)).
//!
//! A change must ensure that a list is freed only if it was empty at two sweeps in a row, and after
//! the lists of its group's children on the same node.

use super::chain::Chain;
use super::locked::Idleness;
use super::raw::RawListLru;
use crate::fallible::try_push;
use crate::rcu::{flush, pin};
use crate::Memcg;
use alloc::vec::Vec;

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The number of lists that were freed.
    pub given_back: u64,
    /// The number of empty lists that were marked. The next sweep frees those that stay empty, and
    /// for which neither a `Prepared` nor a child's list exists then.
    pub marked: u64,
}

/// Frees the lists of `root` and of the groups below it that are empty and got no item since the
/// last sweep: those of all [`ListLru`](crate::ListLru)s and nodes, children's before their
/// parents'.
///
/// The shards of a [split](super#a-list-that-is-split) list are joined if all but the busiest were
/// little used since the last sweep, but not by the first sweep after the split.
///
/// A list for which a [`Prepared`](crate::ListLru::prepare) exists stays as long as the `Prepared`,
/// and an ancestor's list as long as a child's. If there is no memory for the vector of groups,
/// only those that fit are swept, in tree order from `root` on. O(groups + their lists). Holds a
/// group's chain of lists while it sweeps that group, so that first adds of that group wait.
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
    // Reversed pre-order visits children before their parents.
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
    // Start freeing the retired lists now, instead of when enough of them have accumulated.
    flush();
    swept
}

/// Sweeps the lists of one group: those on its chain.
pub(super) fn sweep_group(memcg: &Memcg, swept: &mut Swept) {
    let guard = pin();
    let mut chain = Chain::lock(memcg);
    if chain.is_closed() {
        return; // The group is going offline, which handles all its lists.
    }
    let mut next = chain.first();
    while !next.is_null() {
        // SAFETY: a list on the chain is live, and `guard` keeps it from being freed.
        let one = unsafe { &*next };
        // SAFETY: the list is on this chain, and we hold the chain's lock.
        next = unsafe { chain.after(next) };
        // SAFETY: the list is in its owner's table, and an owner that drops waits for this chain's
        // lock, which we hold, so it is live.
        let owner = unsafe { RawListLru::of(one) };
        match owner.sweep(one, &mut chain, &guard) {
            // A list that stays on the chain keeps its owner live, so the owner's table can be
            // shrunk here.
            Idleness::Busy => owner.shrink_table(&guard),
            Idleness::Marked => swept.marked += 1,
            // The list is off the chain: its owner may be dropped from here on.
            Idleness::Idle => swept.given_back += 1,
        }
    }
}
