//! The listener trait: a list reports that it became non-empty. Higher layers implement the trait;
//! lists only call it.
//!
//! Numbers such as R3 are those of docs/INVARIANTS.md.
//!
//! It is a trait, and not a bitmap, so that this crate does not depend on the shrinkers that use
//! it. A change must ensure that the call happens under the list's lock and after the count was
//! stored: the protocol below depends on both.

use crate::{Memcg, NodeId};

/// A listener that tracks which groups hold items on which node, such as a shrinker's bitmap.
///
/// # Protocol: no item may be missed
///
/// A listener sets a bit when it is called, and clears it only together with a re-check by
/// [`count_one`](crate::ListLru::count_one). An add stores the count and then loads the bit, to set
/// it if necessary; a clear stores the bit and then loads the count. Each side stores one location
/// and then loads the other, so each needs a full fence in between. Both fences are the listener's
/// duty: the first action in [`occupied`](Self::occupied), and between its clear and its count.
///
/// The call is made under the list's lock. So it happens before the offline of its group is over,
/// and always names a group whose list is not drained yet. The listener must not wait for anything
/// that waits for a list, must not call the list, and must not drop another list with items of this
/// group; nor, if the list has shards, be the first to add to another list for this group, or for
/// one below it, whose first item may create this group's list as well: a sweep, which joins the
/// shards, holds a lock of the group. A listener that panics loses no item:
/// the item is on the list already. When a group goes offline, all its lists are joined to the
/// parent's first, and then the first panic is resumed.
pub trait Occupancy: Send + Sync {
    /// Called when the list of `memcg` on `node` goes from empty to non-empty. `memcg` is the group
    /// of the list, which may differ from the group that was passed to `add`: a dying group's
    /// objects go to its parent's list (`docs/INVARIANTS.md`, R3).
    #[doc(alias = "set_shrinker_bit")]
    fn occupied(&self, memcg: &Memcg, node: NodeId);
}
