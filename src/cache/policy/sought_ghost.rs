//! The ghost for which an insert looks: its hash is computed well before the ghost is read.
//!
//! A change must ensure that it stays small, as an insert passes it by value.

/// The ghost for which an insert looks.
#[derive(Clone, Copy)]
pub(crate) struct SoughtGhost {
    /// The hash of the ghost in the ghost table (`GhostSalt::hash`).
    pub(crate) hash: u64,
    /// The number of ghost hits that it represents.
    pub(super) weight: u32,
}
