//! Where full chunks come from: blocks of 2 MiB from the system, to which each chunk goes back as soon as it is empty.
//!
//! The allocator would keep what is freed. A block is one mapping however its chunks come and go, and can be one huge page.

use super::chunk::Geometry;
use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;

/// Memory of one chunk.
pub(super) struct Memory {
    pub(super) base: NonNull<u8>,
    pub(super) bytes: usize,
    #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
    block: Option<u32>,
}

/// A slab's blocks.
pub(super) struct Blocks {
    #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
    system: system::Blocks,
}

impl Blocks {
    pub(super) const fn new() -> Self {
        Self {
            #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
            system: system::Blocks::new(),
        }
    }

    /// Bytes that it takes to know the blocks.
    pub(super) fn footprint(&self) -> usize {
        #[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
        return self.system.footprint();
        #[cfg(not(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri))))]
        0
    }

    /// Memory of so many bytes, aligned to a full chunk.
    pub(super) fn get(&mut self, bytes: usize, geometry: &Geometry) -> Option<Memory> {
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

    /// Gives memory back.
    ///
    /// # Safety
    ///
    /// It came from [`get`](Self::get) of this, with the same geometry, and nobody uses it any more.
    pub(super) unsafe fn put(&mut self, memory: Memory, geometry: &Geometry) {
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

#[cfg(all(target_os = "linux", feature = "std", not(lowwater_loom), not(miri)))]
mod system {
    use alloc::vec::Vec;
    use core::ptr::{self, NonNull};
    use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

    pub(super) const BLOCK: usize = 2 << 20;
    /// A slab that has more blocks asks for huge pages: a fifth of its memory at most is not used yet.
    const HUGE_FROM: usize = 4;
    const NONE: u32 = u32::MAX;

    pub(super) struct Blocks {
        blocks: Vec<Block>,
        /// The first that has room; the others are joined to it.
        roomy: u32,
        /// The first number without a block; the others are joined to it.
        unused: u32,
        mapped: usize,
    }

    struct Block {
        /// Null: none.
        base: *mut u8,
        /// One bit for each chunk that is out.
        out: u32,
        prev: u32,
        next: u32,
    }

    // SAFETY: a block is memory that nobody else knows; it may be mapped and unmapped from any thread.
    unsafe impl Send for Blocks {}

    impl Blocks {
        pub(super) const fn new() -> Self {
            Self { blocks: Vec::new(), roomy: NONE, unused: NONE, mapped: 0 }
        }

        pub(super) fn footprint(&self) -> usize {
            self.blocks.capacity() * size_of::<Block>()
        }

        pub(super) fn get(&mut self, bytes: usize) -> Option<(NonNull<u8>, u32)> {
            if self.roomy == NONE {
                self.add()?;
            }
            let at = self.roomy;
            let block = &mut self.blocks[at as usize];
            let chunk = block.out.trailing_ones();
            block.out |= 1 << chunk;
            // SAFETY: the bit is of a chunk inside the block.
            let base = unsafe { block.base.add(chunk as usize * bytes) };
            if block.out == all(bytes) {
                self.unlink(at);
            }
            Some((NonNull::new(base)?, at))
        }

        /// # Safety
        ///
        /// `base` came from [`get`](Self::get) with this block, and nobody uses it.
        pub(super) unsafe fn put(&mut self, base: NonNull<u8>, bytes: usize, at: u32) {
            let block = &mut self.blocks[at as usize];
            let was_full = block.out == all(bytes);
            let chunk = (base.as_ptr().addr() - block.base.addr()) / bytes;
            block.out &= !(1 << chunk);
            if block.out == 0 {
                let base = core::mem::replace(&mut block.base, ptr::null_mut());
                if !was_full {
                    self.unlink(at);
                }
                self.blocks[at as usize].next = core::mem::replace(&mut self.unused, at);
                self.mapped -= 1;
                // SAFETY: it was mapped with this size, and no chunk of it is out.
                let _unmapped = unsafe { munmap(base.cast(), BLOCK) };
                return;
            }
            // SAFETY: the chunk is inside the block, and nobody uses it, says the caller.
            let _given_back = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
            if was_full {
                self.link(at);
            }
        }

        fn add(&mut self) -> Option<()> {
            let at = if self.unused == NONE {
                self.blocks.try_reserve(1).ok()?;
                u32::try_from(self.blocks.len()).ok()?
            } else {
                self.unused
            };
            let base = map_aligned()?;
            self.mapped += 1;
            if self.mapped > HUGE_FROM {
                // SAFETY: it was just mapped. Without huge pages it is slower, and nothing else.
                let _advised = unsafe { madvise(base.cast(), BLOCK, Advice::LinuxHugepage) };
            }
            let block = Block { base, out: 0, prev: NONE, next: NONE };
            if at as usize == self.blocks.len() {
                self.blocks.push(block);
            } else {
                self.unused = core::mem::replace(&mut self.blocks[at as usize], block).next;
            }
            self.link(at);
            Some(())
        }

        fn link(&mut self, at: u32) {
            let next = core::mem::replace(&mut self.roomy, at);
            (self.blocks[at as usize].prev, self.blocks[at as usize].next) = (NONE, next);
            if next != NONE {
                self.blocks[next as usize].prev = at;
            }
        }

        fn unlink(&mut self, at: u32) {
            let (prev, next) = (self.blocks[at as usize].prev, self.blocks[at as usize].next);
            match prev {
                NONE => self.roomy = next,
                prev => self.blocks[prev as usize].next = next,
            }
            if next != NONE {
                self.blocks[next as usize].prev = prev;
            }
        }
    }

    /// The bits of all chunks of a block.
    fn all(bytes: usize) -> u32 {
        u32::MAX >> (32 - BLOCK / bytes)
    }

    /// A block that is aligned to its size.
    fn map_aligned() -> Option<*mut u8> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, where the system likes.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), 2 * BLOCK, prot, flags) }.ok()?.cast::<u8>();
        let before = base.addr().next_multiple_of(BLOCK) - base.addr();
        // SAFETY: `before` is less than a block, of the two that were mapped.
        let block = unsafe { base.add(before) };
        if before != 0 {
            // SAFETY: what is before the block is ours and not used. If it stays, it was never touched.
            let _unmapped = unsafe { munmap(base.cast(), before) };
        }
        // SAFETY: it is inside the mapping, or just behind it.
        let behind = unsafe { block.add(BLOCK) };
        // SAFETY: what is behind the block is ours and not used.
        let _unmapped = unsafe { munmap(behind.cast(), BLOCK - before) };
        Some(block)
    }
}
