//! The trait by which a list tells those above that it holds something. The layers above implement it; this one only calls.

use crate::{Memcg, NodeId};

/// Somebody who must know which groups hold something on which node: a shrinker's map of bits.
///
/// # Who must not miss what
///
/// A listener remembers (a bit is set), and forgets only after it asked [`count_one`](crate::ListLru::count_one) again. Adding is:
/// count, then tell; forgetting is: clear, then count. Both are a store and then a load of what the other stores, so each side
/// needs a full fence in between, and both fences are the listener's: first thing in [`occupied`](Self::occupied), and between
/// its clearing and its count.
///
/// The call comes under the list's lock. So it comes before that group's offline is over, always
/// names a group whose list is not drained yet, and must neither wait for anything that waits for a
/// list nor call the list. A listener that panics loses no item: the item is on the list by then.
/// At a group's end all lists join the parent's first, and then the first panic goes on.
pub trait Occupancy: Send + Sync {
    /// The list of `memcg` on `node` went from empty to not empty. `memcg` is whose list it is, which need not be the group that
    /// was named in `add`: a dying group's objects go to its parent's list (R3).
    #[doc(alias = "set_shrinker_bit")]
    fn occupied(&self, memcg: &Memcg, node: NodeId);
}
