//! What a cache offers to the runtime's housekeeper.

use std::time::Duration;

use lowwater_lru_core::{Memcg, NodeId};

/// What a cache has done for it. Called by one thread at a time, but for what is said to be called by others.
pub(crate) trait Chores: Send + Sync {
    /// Looks at the next few entries, and lets go of those whose time is over.
    fn let_expired_go(&self) -> Next;

    /// Lets go of a few entries of a group on a node, however much they are used. How many; 0 when there is none.
    fn let_group_go(&self, group: &Memcg, node: NodeId) -> u64;

    /// Is there any entry of a group on a node? Called by whichever thread, also while another lets go, under the keeper's lock: it runs
    /// nobody's code.
    fn has_any(&self, group: &Memcg, node: NodeId) -> bool;

    /// Forgets what was learnt of a group whose end has come. Called by whoever ends it, under the keeper's lock: it waits for nothing, and runs
    /// nobody's code.
    fn forget_group(&self, dying: &Memcg);

    /// Moves the next few entries together, if that is wanted.
    fn migrate(&self) -> Next;

    /// Gives memory back that what was let go of had; what must stay for a reader goes with a later [`let_expired_go`](Self::let_expired_go).
    fn settle(&self);
}

/// When there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Now, or when it has rested for so many times as long as it worked.
    Now { rest: u32 },
    /// In so long.
    In(Duration),
    /// When [`Keeper::nudge`](super::housekeeper::Keeper::nudge) is called.
    Told,
}

/// By which a cache is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChoresId(pub(crate) u64);
