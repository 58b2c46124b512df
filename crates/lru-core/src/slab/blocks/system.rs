//! Blocks that are mapped from the system.

use crate::mapping::{map_aligned, HUGE};
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use rustix::mm::{madvise, munmap, Advice};

pub(super) const BLOCK: usize = HUGE;
const NONE: u32 = u32::MAX;
/// Spare chunks, at most, and of all chunks that are mapped one in so many.
const SPARE_MAX: usize = 32;
const SPARE_PARTS: usize = 16;
/// Blocks that one chunk which is too many looks at for spare ones.
const LOOKS_MAX: usize = 64;

pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// The first that has room; the others are joined to it.
    roomy: u32,
    /// The first number without a block; the others are joined to it.
    unused: u32,
    mapped: usize,
    /// Of so many none asks for a huge page.
    small: usize,
    /// Chunks that are spare.
    spare: usize,
    /// Bytes of one.
    chunk: usize,
    /// The block that is looked at next for spare ones.
    hand: usize,
}

struct Block {
    /// Null: none.
    base: *mut u8,
    /// One bit for each chunk that is out.
    out: u32,
    /// One bit for each chunk that is not, and has its memory still.
    spare: u32,
    prev: u32,
    next: u32,
}

// SAFETY: a block is memory that nobody else knows; it may be mapped and unmapped from any thread.
unsafe impl Send for Blocks {}

impl Blocks {
    pub(super) const fn new(small: usize) -> Self {
        Self { blocks: Vec::new(), roomy: NONE, unused: NONE, mapped: 0, small, spare: 0, chunk: 0, hand: 0 }
    }

    pub(super) fn footprint(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.spare * self.chunk
    }

    pub(super) fn get(&mut self, bytes: usize) -> Option<(NonNull<u8>, u32)> {
        if self.roomy == NONE {
            self.add()?;
        }
        let at = self.roomy;
        let block = &mut self.blocks[at as usize];
        let chunk = match block.spare {
            0 => block.out.trailing_ones(),
            spare => spare.trailing_zeros(),
        };
        self.spare -= (block.spare >> chunk & 1) as usize;
        block.spare &= !(1 << chunk);
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
            self.spare -= core::mem::take(&mut block.spare).count_ones() as usize;
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
        block.spare |= 1 << chunk;
        self.spare += 1;
        self.chunk = bytes;
        if was_full {
            self.link(at);
        }
        if self.spare > SPARE_MAX.min(self.mapped * (BLOCK / bytes) / SPARE_PARTS) {
            self.give_some_spare_back();
        }
    }

    /// The spare chunks of the next block that has some.
    fn give_some_spare_back(&mut self) {
        for _ in 0..LOOKS_MAX.min(self.blocks.len()) {
            self.hand = (self.hand + 1) % self.blocks.len();
            if self.blocks[self.hand].spare != 0 {
                return self.give_spare_back(self.hand);
            }
        }
    }

    pub(super) fn give_all_spare_back(&mut self) {
        (0..self.blocks.len()).for_each(|at| self.give_spare_back(at));
    }

    /// A call for each run of chunks.
    fn give_spare_back(&mut self, at: usize) {
        let block = &mut self.blocks[at];
        let mut spare = core::mem::take(&mut block.spare);
        self.spare -= spare.count_ones() as usize;
        while spare != 0 {
            let first = spare.trailing_zeros();
            let nr = (spare >> first).trailing_ones();
            spare &= !(run(nr) << first);
            // SAFETY: the chunk is inside the block.
            let base = unsafe { block.base.add(first as usize * self.chunk) };
            // SAFETY: the chunks are inside the block, and not out, so nobody uses them.
            let _given_back = unsafe { madvise(base.cast(), nr as usize * self.chunk, Advice::LinuxDontNeed) };
        }
    }

    fn add(&mut self) -> Option<()> {
        let at = if self.unused == NONE {
            self.blocks.try_reserve(1).ok()?;
            u32::try_from(self.blocks.len()).ok()?
        } else {
            self.unused
        };
        let base = map_aligned(BLOCK)?.as_ptr();
        self.mapped += 1;
        // Some systems give huge pages to all who ask for none.
        let advice = if self.mapped > self.small { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: it was just mapped. If the advice is not taken it is slower, or larger, and nothing else.
        let _advised = unsafe { madvise(base.cast(), BLOCK, advice) };
        let block = Block { base, out: 0, spare: 0, prev: NONE, next: NONE };
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
    run((BLOCK / bytes) as u32)
}

/// So many bits, at least one.
fn run(nr: u32) -> u32 {
    u32::MAX >> (32 - nr)
}
