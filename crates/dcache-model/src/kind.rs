//! The kind of an inode.
//!
//! The numbers are the type bits of a dentry's flags; 0 means negative and is no kind.
//!
//! The numbers of `kind_of` and `type_of` must agree, and stay below 4: `flag::TYPE` has two bits.

use crate::flag;

/// The kind of the inode that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file. It can have several names ([`Mount::link`](crate::Mount::link)).
    File,
    /// A directory: the only kind that has names below it.
    Directory,
    /// Anything else: a symbolic link, a device, a socket. It is not followed.
    Other,
}

/// Returns the kind that the flags of a dentry encode, `None` for a negative one.
#[inline]
#[doc(alias = "d_flags_for_inode")]
pub(crate) fn kind_of(flags: u32) -> Option<Kind> {
    match flags & flag::TYPE {
        0 => None,
        1 => Some(Kind::File),
        2 => Some(Kind::Directory),
        _ => Some(Kind::Other),
    }
}

/// Returns the type bits of the flags for a kind.
pub(crate) fn type_of(kind: Kind) -> u32 {
    match kind {
        Kind::File => 1,
        Kind::Directory => 2,
        Kind::Other => 3,
    }
}
