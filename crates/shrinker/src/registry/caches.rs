//! Kinds of caches: what a shrinker's objects are.

use bitflags::bitflags;

bitflags! {
    /// What a shrinker's objects are, with the numbers of `/proc/sys/vm/drop_caches`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(hidden)]
    pub struct Caches: u8 {
        /// Data that can be read or made again: pages, values.
        #[doc(alias = "pagecache")]
        const DATA = 1;
        /// Objects that describe: names, handles, metadata. What a shrinker has if it does not say otherwise.
        #[doc(alias = "slab")]
        const OBJECTS = 2;
    }
}
