// SPDX-License-Identifier: GPL-2.0

//! The `kmem_cache` of a list's objects.
//!
//! The kernel finds an object's memory control group by its slab page, so objects of a `list_lru`
//! must come from such a cache. A change must ensure that it is destroyed after its last object.

use core::{alloc::Layout, mem, ptr::NonNull};
use kernel::{alloc::Flags, bindings, prelude::*};

/// A slab cache for the objects of one list.
///
/// Its objects are charged to the allocating task's memory control group, and are counted as
/// reclaimable memory (`SReclaimable` in `/proc/meminfo`).
///
/// C header: [`include/linux/slab.h`](srctree/include/linux/slab.h)
///
/// # Invariants
///
/// `0` is a cache made by `__kmem_cache_create_args`, and not destroyed before `self`.
pub(super) struct SlabCache(NonNull<bindings::kmem_cache>);

// SAFETY: The functions of a `kmem_cache` may be called on any thread.
unsafe impl Send for SlabCache {}
// SAFETY: The functions of a `kmem_cache` may be called on several threads at once.
unsafe impl Sync for SlabCache {}

impl SlabCache {
    /// Creates a cache for objects of this layout.
    ///
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for objects of more than 4 GiB. `ENOMEM` if there is no memory, and for objects
    /// that are larger than the largest slab: C does not tell the two apart.
    pub(super) fn new(name: &CStr, layout: Layout) -> Result<Self> {
        let size = u32::try_from(layout.size()).map_err(|_| EINVAL)?;
        // SAFETY: All fields are plain C; unused ones are documented to be zero.
        let mut args: bindings::kmem_cache_args = unsafe { mem::zeroed() };
        args.align = layout.align() as u32;
        #[cfg(CONFIG_MEMCG)]
        let account = 1 << bindings::_slab_flag_bits__SLAB_ACCOUNT;
        #[cfg(not(CONFIG_MEMCG))]
        let account = 0;
        #[cfg(not(CONFIG_SLUB_TINY))]
        let reclaim = 1 << bindings::_slab_flag_bits__SLAB_RECLAIM_ACCOUNT;
        #[cfg(CONFIG_SLUB_TINY)]
        let reclaim = 0;
        let flags = account | reclaim;
        // SAFETY: The name is a C string, which the kernel copies, and the arguments are valid.
        let cache = unsafe {
            bindings::__kmem_cache_create_args(name.as_char_ptr(), size, &mut args, flags)
        };
        // INVARIANT: The cache was made above.
        Ok(Self(NonNull::new(cache).ok_or(ENOMEM)?))
    }

    /// Allocates an object, and with it the lists of the current group, so that the object can be
    /// added to `lru` without an allocation.
    ///
    /// # Safety
    ///
    /// `lru` is initialized.
    pub(super) unsafe fn alloc<T>(
        &self,
        lru: *mut bindings::list_lru,
        flags: Flags,
    ) -> Option<NonNull<T>> {
        // SAFETY: `Flags` consists of the `u32` that C uses (in the `kernel` crate: `as_raw`).
        let gfp = unsafe { mem::transmute::<Flags, u32>(flags) };
        // SAFETY: The cache is alive by the type invariant, `lru` by the safety requirements.
        let object = unsafe { bindings::kmem_cache_alloc_lru_noprof(self.0.as_ptr(), lru, gfp) };
        NonNull::new(object.cast())
    }

    /// Frees an object.
    ///
    /// # Safety
    ///
    /// The object came from [`alloc`](Self::alloc) of this cache, and is not used any more.
    pub(super) unsafe fn free<T>(&self, object: NonNull<T>) {
        // SAFETY: The cache is alive by the type invariant; the object is its own, and unused, by
        // the safety requirements.
        unsafe { bindings::kmem_cache_free(self.0.as_ptr(), object.as_ptr().cast()) }
    }
}

impl Drop for SlabCache {
    fn drop(&mut self) {
        // SAFETY: The cache is alive by the type invariant, and not used after this.
        unsafe { bindings::kmem_cache_destroy(self.0.as_ptr()) }
    }
}
