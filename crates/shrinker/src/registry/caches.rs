//! Kinds of caches: what a shrinker's objects are.

use bitflags::bitflags;

bitflags! {
    /// Kinds of a shrinker's objects, with the numbers of `/proc/sys/vm/drop_caches`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(hidden)]
    pub struct Caches: u8 {
        /// Data that can be read or made again: pages, values.
        #[doc(alias = "pagecache")]
        const DATA = 1;
        /// Objects that describe: names, handles, metadata. The default.
        #[doc(alias = "slab")]
        const OBJECTS = 2;
    }
}
