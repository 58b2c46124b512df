//! Where full chunks come from: blocks of 2 MiB from the system, to which chunks go back when they are empty.
//!
//! The allocator would keep what is freed. A block is one mapping however its chunks come and go, and can be one huge page.
//!
//! To give memory back takes a call that reaches every processor which runs a thread of ours, and the next use of it a fault for each page.
//! So some empty chunks are kept for the next that are wanted: 32 of them, or a sixteenth of all that is mapped. When a block is
//! empty it goes back at once, and its spare chunks with it: mostly they were emptied one after the other.

#[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
mod system;

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;
use lowwater_base::poison::unpoison;
use lowwater_base::slots::ChunkLayout;

/// Memory of one chunk.
pub(crate) struct Memory {
    pub(crate) base: NonNull<u8>,
    pub(crate) bytes: usize,
    #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
    block: Option<u32>,
}

/// A slab's blocks.
pub(crate) struct Spans {
    #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
    system: system::Spans,
}

impl Spans {
    /// None. The first `small` blocks that there will be at one time ask for no huge pages: what is not used of those that follow is then a
    /// part of what is.
    pub(crate) const fn new(small: usize) -> Self {
        #[cfg(not(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri))))]
        let _ = small;
        Self {
            #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
            system: system::Spans::new(small),
        }
    }

    /// Bytes that it takes to know the blocks.
    pub(crate) fn footprint(&self) -> usize {
        #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
        return self.system.footprint();
        #[cfg(not(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri))))]
        0
    }

    /// Memory of so many bytes, aligned to a full chunk.
    pub(crate) fn get(&mut self, bytes: usize, geometry: &ChunkLayout) -> Option<Memory> {
        #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
        if bytes == geometry.full && bytes <= system::BLOCK {
            let (base, block) = self.system.get(bytes)?;
            return Some(Memory { base, bytes, block: Some(block) });
        }
        let layout = Layout::from_size_align(bytes, geometry.full).ok()?;
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { alloc(layout) })?;
        Some(Memory {
            base,
            bytes,
            #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
            block: None,
        })
    }

    /// Gives the spare chunks' memory back to the system.
    pub(crate) fn give_spare_back(&mut self) {
        #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
        self.system.give_all_spare_back();
    }

    /// Takes memory back.
    ///
    /// # Safety
    ///
    /// It came from [`get`](Self::get) of this, with the same geometry, and nobody uses it any more.
    pub(crate) unsafe fn put(&mut self, memory: Memory, geometry: &ChunkLayout) {
        // SAFETY: the memory came from here.
        unsafe { unpoison(memory.base.as_ptr(), memory.bytes) };
        #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
        if let Some(block) = memory.block {
            // SAFETY: it came from that block, and nobody uses it, says the caller.
            return unsafe { self.system.put(memory.base, memory.bytes, block) };
        }
        let layout = Layout::from_size_align(memory.bytes, geometry.full).expect("as when it was got");
        // SAFETY: it was allocated with this layout, and nobody uses it, says the caller.
        unsafe { dealloc(memory.base.as_ptr(), layout) };
    }
}
