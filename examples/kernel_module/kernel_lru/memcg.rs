// SPDX-License-Identifier: GPL-2.0

//! Memory control groups and nodes, as the kernel passes them to a shrinker.
//!
//! Both are only passed on to the C functions. A change must ensure that no value outlives the call
//! in which the kernel passed it.

use kernel::{bindings, types::Opaque};

/// A memory control group.
///
/// C header: [`include/linux/memcontrol.h`](srctree/include/linux/memcontrol.h)
///
/// # Invariants
///
/// A reference is valid for as long as its lifetime: the shrinker's caller holds the group.
#[repr(transparent)]
pub(crate) struct MemCgroup(Opaque<bindings::mem_cgroup>);

impl MemCgroup {
    /// Returns the group behind a pointer, or `None` for the root of a kernel without groups.
    ///
    /// # Safety
    ///
    /// `raw` is null or a group that is valid for `'a`.
    pub(super) unsafe fn from_raw<'a>(raw: *mut bindings::mem_cgroup) -> Option<&'a Self> {
        // INVARIANT: By the safety requirements, the group is valid for `'a`.
        // SAFETY: By the safety requirements `raw` is null or valid for `'a`; `MemCgroup` is
        // transparent over `Opaque`, which has no requirements on its content.
        unsafe { raw.cast::<Self>().as_ref() }
    }

    /// Returns the pointer that C functions accept: null for `None`.
    pub(crate) fn as_ptr(this: Option<&Self>) -> *mut bindings::mem_cgroup {
        this.map_or(core::ptr::null_mut(), |memcg| memcg.0.get())
    }
}

/// The number of a NUMA node.
///
/// # Invariants
///
/// The node is one of those that the machine can have, for each of which every `list_lru` has a
/// list. Without `CONFIG_NUMA` that is node 0 alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeId(pub(super) i32);

impl NodeId {
    /// Iterates over all nodes that the machine can have.
    ///
    /// Their numbers may have gaps, in which there are no lists.
    pub(crate) fn all() -> impl Iterator<Item = NodeId> {
        #[cfg(CONFIG_NUMA)]
        // SAFETY: The number is constant after boot.
        let nodes = unsafe { bindings::nr_node_ids };
        #[cfg(not(CONFIG_NUMA))]
        let nodes = 1;
        // INVARIANT: The machine can have the node.
        (0..nodes as i32)
            .filter(|node| Self::is_possible(*node))
            .map(NodeId)
    }

    /// Returns whether the machine can have the node.
    #[cfg(CONFIG_NUMA)]
    fn is_possible(node: i32) -> bool {
        // SAFETY: The mask is constant after boot.
        let mask = unsafe { bindings::node_states[bindings::node_states_N_POSSIBLE as usize] };
        let (word, bit) = (node as u32 / u64::BITS, node as u32 % u64::BITS);
        mask.bits[word as usize] & (1 << bit) != 0
    }

    /// Returns whether the machine can have the node: it has one.
    #[cfg(not(CONFIG_NUMA))]
    fn is_possible(_node: i32) -> bool {
        true
    }

    /// Returns the number.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
