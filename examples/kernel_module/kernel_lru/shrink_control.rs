// SPDX-License-Identifier: GPL-2.0

//! The request that is passed to a shrinker, and its answers.
//!
//! The types have the names and meaning of those of `lowwater-shrinker`, so a cache compiles with
//! either. A change must be made in both.

use super::{MemCgroup, NodeId};
use core::marker::PhantomData;
use kernel::bindings;

/// Rights of the reclaiming thread, from its `gfp_mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reclaim(u32);

impl Reclaim {
    /// May sleep on a lock.
    #[doc(alias = "__GFP_DIRECT_RECLAIM")]
    pub(crate) const MAY_BLOCK: Self = Self(1 << bindings::___GFP_DIRECT_RECLAIM_BIT);
    /// May start I/O and wait for it.
    #[doc(alias = "__GFP_IO")]
    pub(crate) const MAY_IO: Self = Self(1 << bindings::___GFP_IO_BIT);
    /// May take the cache's locks: the reclaiming thread holds none of them.
    #[doc(alias = "__GFP_FS")]
    pub(crate) const MAY_FS: Self = Self(1 << bindings::___GFP_FS_BIT);

    /// Returns whether all rights of `other` are included.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One request to a shrinker: the group, the node, the number of objects, the rights.
///
/// C header: [`include/linux/shrinker.h`](srctree/include/linux/shrinker.h)
///
/// # Invariants
///
/// `raw` is valid for `'a`, and not used by another thread; its group is null or alive for `'a`,
/// and its node is one that the machine can have.
pub(crate) struct ShrinkControl<'a> {
    raw: *mut bindings::shrink_control,
    call: PhantomData<&'a mut bindings::shrink_control>,
}

impl<'a> ShrinkControl<'a> {
    /// Wraps the request of a call from C.
    ///
    /// # Safety
    ///
    /// `raw` is the argument of a callback that lasts for `'a`, of a shrinker that is NUMA-aware.
    pub(super) unsafe fn from_raw(raw: *mut bindings::shrink_control) -> Self {
        // INVARIANT: C passes each request to one thread, holds its group during the call, and
        // calls a NUMA-aware shrinker for nodes of the machine.
        Self {
            raw,
            call: PhantomData,
        }
    }

    /// Returns the group to reclaim from.
    ///
    /// Shrinkers that are not memcg-aware get the root or `None`.
    pub(crate) fn memcg(&self) -> Option<&'a MemCgroup> {
        // SAFETY: By the type invariant, the request is valid.
        let memcg = unsafe { (*self.raw).memcg };
        // SAFETY: By the type invariant, the group is null or alive for `'a`.
        unsafe { MemCgroup::from_raw(memcg) }
    }

    /// Returns the node to reclaim from.
    #[doc(alias = "nid")]
    pub(crate) fn node(&self) -> NodeId {
        // INVARIANT: By the type invariant, the machine can have the node.
        // SAFETY: By the type invariant, the request is valid.
        NodeId(unsafe { (*self.raw).nid })
    }

    /// Returns the rights of the reclaiming thread.
    #[doc(alias = "gfp_mask")]
    pub(crate) fn flags(&self) -> Reclaim {
        // SAFETY: By the type invariant, the request is valid.
        Reclaim(unsafe { (*self.raw).gfp_mask })
    }

    /// Returns the number of objects to scan; 0 while counting.
    pub(crate) fn nr_to_scan(&self) -> u64 {
        // SAFETY: By the type invariant, the request is valid.
        unsafe { (*self.raw).nr_to_scan as u64 }
    }

    /// Reports how many objects were scanned, which may be more or fewer than requested.
    ///
    /// 0 together with [`Scan::Freed`] is answered as [`Scan::Stop`], so that the kernel's loop
    /// ends.
    pub(crate) fn set_nr_scanned(&mut self, objects: u64) {
        // C subtracts the number from a signed one, and repeats the scan until nothing is left: a
        // number that is negative there would let it repeat for ever.
        let objects = (objects as usize).min(usize::MAX / 4);
        // SAFETY: By the type invariant, the request is valid and not shared.
        unsafe { (*self.raw).nr_scanned = objects };
    }
}

/// The number of objects that a shrinker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// No objects, and none will be added without a list that goes from empty to non-empty.
    ///
    /// The shrinker is not called again for this group and node until then.
    #[doc(alias = "SHRINK_EMPTY")]
    Empty,
    /// Unknown, or none at the moment.
    ///
    /// Nothing is scanned; the shrinker is called again in the next pass.
    Unknown,
    /// This number of objects; `Objects(0)` means [`Count::Empty`].
    Objects(u64),
}

impl Count {
    /// Returns the number of objects; 0 if it is unknown.
    pub(crate) const fn objects(self) -> u64 {
        match self {
            Self::Objects(objects) => objects,
            Self::Empty | Self::Unknown => 0,
        }
    }

    /// Converts the number to the value that C expects.
    pub(super) fn into_raw(self) -> usize {
        match self {
            Self::Empty | Self::Objects(0) => usize::MAX - 1, // SHRINK_EMPTY
            Self::Unknown => 0,
            // C multiplies the number by up to 4, and adds what earlier calls left over, in signed
            // arithmetic.
            Self::Objects(objects) => objects.min(usize::MAX as u64 / 16) as usize,
        }
    }
}

/// The outcome of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// This number of objects was freed; 0 if all were scanned and none could be freed yet.
    Freed(u64),
    /// No progress is possible in this context.
    ///
    /// The rest is left to later calls.
    #[doc(alias = "SHRINK_STOP")]
    Stop,
}

impl Scan {
    /// Converts the outcome to the value that C expects.
    ///
    /// A scan that reports no scanned object would be repeated for ever: it is answered as
    /// [`Scan::Stop`].
    pub(super) fn into_raw(self, sc: &ShrinkControl<'_>) -> usize {
        // SAFETY: By the type invariant, the request is valid.
        let scanned = unsafe { (*sc.raw).nr_scanned };
        match self {
            Self::Freed(freed) if scanned > 0 => freed as usize,
            Self::Freed(_) | Self::Stop => usize::MAX, // SHRINK_STOP
        }
    }
}
