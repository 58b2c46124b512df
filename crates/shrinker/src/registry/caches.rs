//! Kinds of caches, by the kind of their objects, so that a call can drop one kind only.
//!
//! The numbers are Linux's and part of the interface: a change of a number breaks callers, and a
//! new kind gets the next free bit.

use bitflags::bitflags;

bitflags! {
    /// Kinds of a shrinker's objects, with the numbers of `/proc/sys/vm/drop_caches`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(hidden)]
    pub struct Caches: u8 {
        /// Data that can be read or computed again: pages, values.
        #[doc(alias = "pagecache")]
        const DATA = 1;
        /// Metadata: names, handles, descriptors. The default.
        #[doc(alias = "slab")]
        const OBJECTS = 2;
    }
}
