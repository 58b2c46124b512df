// SPDX-License-Identifier: GPL-2.0

//! Where an entry of lowwater's lists belongs inside the kernel: its memory is charged to the
//! current control group and lies on some node, and its list is that of this group and node.
//!
//! The same names are in `crates/shrinker/tests/one_cache.rs` for user space; a name that one of
//! them gains is needed in the other.

use super::sys::NoMemory;
use core::{ops::Deref, ptr::NonNull};
use kernel::{ffi::c_void, prelude::*, sync::Arc};
use lowwater_lru_core::{Handle, Memcg, NodeId};

extern "C" {
    /// The node of an object's memory.
    fn lowwater_node_of(object: *const c_void) -> i32;
}

/// The kernel's `Arc`, as a handle by which lowwater's lists own an entry.
pub(crate) struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Returns whether both are handles on the same object.
    pub(crate) fn ptr_eq(a: &Self, b: &Self) -> bool {
        Arc::ptr_eq(&a.0, &b.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

// SAFETY: An `Arc`'s content neither moves nor is freed while a reference exists, and `into_raw`
// keeps its reference.
unsafe impl<T> Handle for Shared<T> {
    type Target = T;

    #[inline]
    fn into_raw(self) -> NonNull<T> {
        let raw = Arc::into_raw(self.0).cast_mut();
        // SAFETY: `Arc::into_raw` returns a pointer to an object, which is not null.
        unsafe { NonNull::new_unchecked(raw) }
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: By the safety requirements, `raw` came from `Arc::into_raw`, once.
        Self(unsafe { Arc::from_raw(raw.as_ptr()) })
    }
}

/// Returns lowwater's group for the current task's control group, by `get_mem_cgroup_from_mm`: that
/// of the task that owns its memory.
///
/// [`alloc`] charges the current task's control group, which is another one if the task is moved
/// between the two calls, or shares its memory with a task of another control group. Then the entry
/// is on the list of one group and charged to another: a limit of the latter does not reclaim it,
/// reclaim of the machine does.
pub(crate) fn current_group() -> Result<Memcg, NoMemory> {
    super::groups::current()
}

/// Allocates an object, charged to the current control group. `make` gets the node of its memory.
pub(crate) fn alloc<T>(make: impl FnOnce(NodeId) -> T) -> Result<Shared<T>, NoMemory> {
    let place = kernel::sync::UniqueArc::<T>::new_uninit(GFP_KERNEL_ACCOUNT)?;
    let at: *const _ = &*place;
    // SAFETY: The object was allocated by kmalloc.
    let node = unsafe { lowwater_node_of(at.cast()) };
    Ok(Shared(place.write(make(NodeId::new(node as u16))).into()))
}

/// Iterates over all nodes of the machine.
pub(crate) fn nodes() -> impl Iterator<Item = NodeId> {
    super::kernel_lru::NodeId::all().map(|node| NodeId::new(node.index() as u16))
}
