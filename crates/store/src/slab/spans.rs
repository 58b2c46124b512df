//! Memory of chunks. On Linux, full chunks of up to 2 MiB lie in spans: mappings of 2 MiB each. The
//! memory of empty chunks returns to the system. Larger chunks, those that are not full where there
//! is no shared one, and all chunks on other systems, come from the global allocator.
//!
//! A general allocator would keep freed chunks. A span stays a single mapping, however its chunks
//! are used, and can be one huge page.
//!
//! Returning memory takes a system call that reaches every processor that runs a thread of this
//! process, and the next use of the memory faults once per page. So some empty chunks are kept for
//! later allocations: about 32, or 1/16 of all mapped chunks if that is less; a few more while the
//! bounded search for a span with spare chunks finds none, or after a span was unmapped. An empty
//! span is unmapped at once, together with its spare chunks.
//!
//! A change must ensure that memory is returned under the owner's lock, and only if no slot or
//! segment of the chunk is allocated.

#[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
mod system;

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;
use lowwater_base::poison::unpoison;
use lowwater_base::slots::ChunkLayout;

/// The memory of one chunk.
pub(crate) struct Memory {
    pub(crate) base: NonNull<u8>,
    pub(crate) bytes: usize,
    /// The number of the chunk's span; `None` if the memory came from the global allocator.
    #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
    block: Option<u32>,
}

/// The spans of one owner: a slab, all shared chunks, or the pool of an index's segments.
pub(crate) struct Spans {
    #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
    system: system::Spans,
}

impl Spans {
    /// Creates an empty set of spans. A span that is mapped while fewer than `small` spans exist
    /// uses no huge page: the memory that huge pages leave unused is then a bounded fraction of
    /// all.
    pub(crate) const fn new(small: usize) -> Self {
        #[cfg(not(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri))))]
        let _ = small;
        Self {
            #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
            system: system::Spans::new(small),
        }
    }

    /// Returns the bytes of the bookkeeping and of the spare chunks.
    pub(crate) fn footprint(&self) -> usize {
        #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
        return self.system.footprint();
        #[cfg(not(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri))))]
        0
    }

    /// Allocates `bytes` bytes, aligned to a full chunk. `bytes` is not 0.
    pub(crate) fn get(&mut self, bytes: usize, geometry: &ChunkLayout) -> Option<Memory> {
        #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
        if bytes == geometry.full && bytes <= system::BLOCK {
            let (base, block) = self.system.get(bytes)?;
            return Some(Memory { base, bytes, block: Some(block) });
        }
        let layout = Layout::from_size_align(bytes, geometry.full).ok()?;
        // SAFETY: the size is not 0: the chunks of a `ChunkLayout` have at least 256 bytes.
        let base = NonNull::new(unsafe { alloc(layout) })?;
        Some(Memory {
            base,
            bytes,
            #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
            block: None,
        })
    }

    /// Returns the memory of the spare chunks to the system.
    pub(crate) fn give_spare_back(&mut self) {
        #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
        self.system.give_all_spare_back();
    }

    /// Frees the memory of a chunk.
    ///
    /// # Safety
    ///
    /// `memory` came from [`get`](Self::get) of this set with the same geometry, and no other code
    /// uses it.
    pub(crate) unsafe fn put(&mut self, memory: Memory, geometry: &ChunkLayout) {
        // SAFETY: the caller's clause: the memory came from this set, so it is `memory.bytes` long.
        unsafe { unpoison(memory.base.as_ptr(), memory.bytes) };
        #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
        if let Some(block) = memory.block {
            // SAFETY: the caller's clause: the memory came from that span, and no other code uses
            // it.
            return unsafe { self.system.put(memory.base, memory.bytes, block) };
        }
        let layout =
            Layout::from_size_align(memory.bytes, geometry.full).expect("the memory has the layout of its allocation");
        // SAFETY: it was allocated with this layout in `get`; the caller's clause: no other code
        // uses it.
        unsafe { dealloc(memory.base.as_ptr(), layout) };
    }
}
