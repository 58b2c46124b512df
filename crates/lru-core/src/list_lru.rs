//! Shell; being written.

/// A group's own view of its lists.
#[derive(Debug, Default)]
pub(crate) struct Pairs;

impl Pairs {
    pub(crate) fn new() -> Self {
        Self
    }
}

/// Moves the lists of a dying group to its parent.
pub(crate) fn reparent_group(_dying: &crate::Memcg) {}

/// Somebody above who must know which lists hold something.
pub trait Occupancy: Send + Sync {
    /// A list of `memcg` on `node` went from empty to not empty; `memcg` is the group whose list it is.
    fn occupied(&self, memcg: &crate::Memcg, node: crate::NodeId);
}
