//! Errors of creating a group or taking it offline, and the bounds that they name.
//!
//! The errors are in a file of their own, because files from `table` up to `tree` return them.
//!
//! A change must ensure that the text of an error names the fault and, unless nothing helps, a
//! remedy.

/// The maximum number of levels below the root: bounds the loops and recursions over ancestors, and
/// fits the `u8` in which `group.rs` stores a depth.
pub(super) const DEPTH_MAX: usize = 128;
/// The maximum length of a group's name in bytes: Linux's for a directory, which a cgroup is there.
pub(super) const NAME_MAX: usize = 255;

/// A tree, a group or a hook could not be created, or a group not be taken offline; nothing has
/// changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemcgError {
    /// The parent is dying, or the group itself is about to end.
    #[error("the group or its parent is ending: try again later, or use an online ancestor")]
    Dying,
    /// An online sibling has this name.
    #[error("the parent already has a child of this name: get it with `child`, or choose another name")]
    NameTaken,
    /// The name is empty, too long, or contains a `/`.
    #[error("not a valid group name: use 1 to {} bytes without `/`", NAME_MAX)]
    BadName,
    /// Every id is in use.
    #[error("all group ids are in use: take groups offline, and uncharge the bytes of dying groups")]
    OutOfIds,
    /// The group would be more than [`DEPTH_MAX`](crate::Memcg::DEPTH_MAX) levels below the root.
    #[error("too deep: a group may be {} levels below the root", DEPTH_MAX)]
    TooDeep,
    /// The root cannot go offline.
    #[error("the root group cannot go offline: drop the tree instead")]
    Root,
    /// A child is online, or another thread's call that takes a child offline has not returned.
    #[error("the group still has children: take them offline first, and wait for those calls to return")]
    HasChildren,
    /// The group is dying already.
    #[error("the group has been taken offline already")]
    AlreadyDying,
    /// There is no memory for the group, its table slot, the tree or the hook.
    #[error("no memory for the group: reclaim some, and try again")]
    NoMemory,
    /// The group belongs to another tree. Returned by types that own a tree and take groups, such
    /// as lowwater's `Runtime`.
    #[error("the group belongs to another tree: call the owner of that tree")]
    Foreign,
    /// The [`MemcgTree`](crate::MemcgTree) has been dropped.
    #[error("the tree of this group was dropped: no group can be created or taken offline in it any more")]
    TreeGone,
}
