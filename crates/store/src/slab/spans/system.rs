//! Spans of chunks, each one mapping of [`BLOCK`] bytes from the system.
//!
//! For Linux with `std`, except under loom and miri; in other builds [`spans`](super) allocates
//! each chunk separately. All chunks of one [`Spans`] have the same size, and up to 32 of them fill
//! a span. A change must keep the bits of a span consistent with the memory's state: a chunk is
//! allocated, spare (free, with its memory) or neither (free, without memory: never used, or
//! returned to the system).

use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use lowwater_base::mapped_memory::{map_aligned, HUGE};
use rustix::mm::{madvise, munmap, Advice};

/// Bytes of a span.
pub(super) const BLOCK: usize = HUGE;
/// No span, in a link.
const NONE: u32 = u32::MAX;
/// Beyond `SPARE_MAX` spare chunks, or 1/`SPARE_PARTS` of all mapped chunks if that is less, some
/// are returned to the system.
const SPARE_MAX: usize = 32;
const SPARE_PARTS: usize = 16;
/// The number of spans that are searched for spare chunks when there is one too many.
const LOOKS_MAX: usize = 64;

/// The spans of one owner; see the module.
pub(super) struct Spans {
    /// The spans by number; some numbers are unused.
    blocks: Vec<Block>,
    /// The first span of each list of spans with a free chunk: those with spare chunks, which are
    /// used first, and those without. Full spans are on no list.
    with_room: [u32; 2],
    /// The first number without a span; the others are linked to it.
    unused: u32,
    /// The number of mapped spans.
    mapped: usize,
    /// Up to this number of mapped spans, a span that is new, or full again after it had holes,
    /// uses no huge page.
    small: usize,
    /// The number of spare chunks.
    spare: usize,
    /// Bytes of one chunk; 0 until the first chunk becomes spare.
    chunk: usize,
    /// The span that was last searched for spare chunks.
    last_searched: usize,
}

/// A span.
struct Block {
    /// Null if there is no span of this number.
    base: *mut u8,
    /// One bit for each allocated chunk.
    allocated: u32,
    /// One bit for each free chunk that still has its memory.
    spare: u32,
    /// True if memory of the span was returned since it was last full. It then uses no huge page:
    /// the system would gradually build a huge page from the rest, and allocate memory for the
    /// holes.
    has_holes: bool,
    /// The neighbors on a list of spans with room; `next` also links unused numbers.
    prev: u32,
    next: u32,
}

// SAFETY: a `Spans` is the only owner of its mappings, which any thread may map and unmap.
unsafe impl Send for Spans {}

impl Spans {
    pub(super) const fn new(small: usize) -> Self {
        Self {
            blocks: Vec::new(),
            with_room: [NONE; 2],
            unused: NONE,
            mapped: 0,
            small,
            spare: 0,
            chunk: 0,
            last_searched: 0,
        }
    }

    /// Returns the bytes of the bookkeeping and of the spare chunks.
    pub(super) fn footprint(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.spare * self.chunk
    }

    /// Allocates a chunk of `bytes` bytes, and returns it with the number of its span: a spare
    /// chunk if there is one, else one of a span with room, else one of a new span. `None` without
    /// memory.
    pub(super) fn get(&mut self, bytes: usize) -> Option<(NonNull<u8>, u32)> {
        if self.with_room == [NONE; 2] {
            self.add()?;
        }
        let at = self.with_room.into_iter().find(|&at| at != NONE)?;
        self.unlink(at);
        let block = &mut self.blocks[at as usize];
        let chunk = match block.spare {
            0 => block.allocated.trailing_ones(),
            spare => spare.trailing_zeros(),
        };
        self.spare -= (block.spare >> chunk & 1) as usize;
        block.spare &= !(1 << chunk);
        block.allocated |= 1 << chunk;
        // SAFETY: the bit is that of a chunk inside the span.
        let base = unsafe { block.base.add(chunk as usize * bytes) };
        if block.allocated != all(bytes) {
            self.link(at);
        } else if core::mem::take(&mut block.has_holes) {
            block.ask_for_huge(self.mapped > self.small);
        }
        Some((NonNull::new(base)?, at))
    }

    /// Frees a chunk, which becomes spare. Unmaps the span if no chunk of it is allocated any more.
    ///
    /// # Safety
    ///
    /// `base` came from [`get`](Self::get) with these `bytes` and this span, and no other code uses
    /// the chunk.
    pub(super) unsafe fn put(&mut self, base: NonNull<u8>, bytes: usize, at: u32) {
        let block = &mut self.blocks[at as usize];
        let was_full = block.allocated == all(bytes);
        if !was_full {
            self.unlink(at);
        }
        let block = &mut self.blocks[at as usize];
        let chunk = (base.as_ptr().addr() - block.base.addr()) / bytes;
        block.allocated &= !(1 << chunk);
        if block.allocated == 0 {
            self.spare -= core::mem::take(&mut block.spare).count_ones() as usize;
            let base = core::mem::replace(&mut block.base, ptr::null_mut());
            block.next = core::mem::replace(&mut self.unused, at);
            self.mapped -= 1;
            // SAFETY: the span was mapped with this size, and none of its chunks is allocated.
            if unsafe { munmap(base.cast(), BLOCK) }.is_err() {
                // The process has as many mappings as it may have, and this would split one. Only
                // the address space is lost.
                // SAFETY: as above; no code uses the span any more.
                let _given_back = unsafe { madvise(base.cast(), BLOCK, Advice::LinuxDontNeed) };
            }
            return;
        }
        block.spare |= 1 << chunk;
        self.spare += 1;
        self.chunk = bytes;
        self.link(at);
        let most = SPARE_MAX.min(self.mapped * (BLOCK / bytes) / SPARE_PARTS);
        if self.spare > most {
            self.give_some_spare_back(most / 2);
        }
    }

    /// Returns spare chunks of the next span that has some to the system, but keeps `keep` in all
    /// spans together.
    fn give_some_spare_back(&mut self, keep: usize) {
        for _ in 0..LOOKS_MAX.min(self.blocks.len()) {
            self.last_searched = (self.last_searched + 1) % self.blocks.len();
            if self.blocks[self.last_searched].spare != 0 {
                return self.give_spare_back(self.last_searched, keep);
            }
        }
    }

    /// Returns all spare chunks to the system.
    pub(super) fn give_all_spare_back(&mut self) {
        (0..self.blocks.len()).for_each(|at| self.give_spare_back(at, 0));
    }

    /// Returns spare chunks of one span to the system until `keep` are left in all spans together.
    /// One system call for each run of adjacent chunks.
    fn give_spare_back(&mut self, at: usize, keep: usize) {
        let mut spare = self.blocks[at].spare;
        while spare != 0 && self.spare - (spare.count_ones() as usize) < keep {
            spare &= spare - 1;
        }
        if spare == 0 {
            return;
        }
        self.unlink(at as u32);
        self.blocks[at].spare &= !spare;
        self.link(at as u32);
        let block = &mut self.blocks[at];
        self.spare -= spare.count_ones() as usize;
        if !core::mem::replace(&mut block.has_holes, true) {
            block.ask_for_huge(false);
        }
        while spare != 0 {
            let first = spare.trailing_zeros();
            let nr = (spare >> first).trailing_ones();
            spare &= !(run(nr) << first);
            // SAFETY: the chunk is inside the span.
            let base = unsafe { block.base.add(first as usize * self.chunk) };
            // SAFETY: the chunks are inside the span and not allocated, so no code uses them.
            let _given_back = unsafe { madvise(base.cast(), nr as usize * self.chunk, Advice::LinuxDontNeed) };
        }
    }

    /// Maps a new span, with no chunk allocated. `None` without memory.
    fn add(&mut self) -> Option<()> {
        let at = if self.unused == NONE {
            self.blocks.try_reserve(1).ok()?;
            u32::try_from(self.blocks.len()).ok()?
        } else {
            self.unused
        };
        let base = map_aligned(BLOCK)?.as_ptr();
        self.mapped += 1;
        let block = Block { base, allocated: 0, spare: 0, has_holes: false, prev: NONE, next: NONE };
        block.ask_for_huge(self.mapped > self.small);
        if at as usize == self.blocks.len() {
            self.blocks.push(block);
        } else {
            self.unused = core::mem::replace(&mut self.blocks[at as usize], block).next;
        }
        self.link(at);
        Some(())
    }

    /// Links a span, which must have room, to the head of the list for its state.
    fn link(&mut self, at: u32) {
        let list = self.blocks[at as usize].list();
        let next = core::mem::replace(&mut self.with_room[list], at);
        (self.blocks[at as usize].prev, self.blocks[at as usize].next) = (NONE, next);
        if next != NONE {
            self.blocks[next as usize].prev = at;
        }
    }

    /// Unlinks a span, which must be on the list for its state: called before its bits change.
    fn unlink(&mut self, at: u32) {
        let list = self.blocks[at as usize].list();
        let (prev, next) = (self.blocks[at as usize].prev, self.blocks[at as usize].next);
        match prev {
            NONE => self.with_room[list] = next,
            prev => self.blocks[prev as usize].next = next,
        }
        if next != NONE {
            self.blocks[next as usize].prev = prev;
        }
    }
}

impl Block {
    /// Returns the list of a span with room: with spare chunks or without.
    fn list(&self) -> usize {
        usize::from(self.spare == 0)
    }

    /// Advises the system whether to use a huge page. The span must be mapped. Some systems use
    /// huge pages unless told not to, so both cases are advised.
    fn ask_for_huge(&self, is_wanted: bool) {
        let advice = if is_wanted { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: neither advice changes the contents or ownership of the span. If it is refused,
        // only speed or memory use suffers.
        let _advised = unsafe { madvise(self.base.cast(), BLOCK, advice) };
    }
}

/// Returns the bits of all chunks of a span.
fn all(bytes: usize) -> u32 {
    run((BLOCK / bytes) as u32)
}

/// Returns a mask of the lowest `nr` bits; `nr` is at least 1.
fn run(nr: u32) -> u32 {
    u32::MAX >> (32 - nr)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = BLOCK / 32;

    /// The huge page advice of the mapping that begins at `base`.
    fn flags(base: NonNull<u8>) -> alloc::string::String {
        let all = std::fs::read_to_string("/proc/self/smaps").expect("a process may read its own maps");
        let is_begin = |line: &&str| {
            line.split_once('-')
                .is_some_and(|(from, _)| u64::from_str_radix(from, 16).is_ok_and(|from| from <= base.as_ptr() as u64))
        };
        let lines: Vec<_> = all.lines().collect();
        let at = lines.iter().rposition(is_begin).expect("the span is mapped");
        let flags = lines[at..].iter().find_map(|line| line.strip_prefix("VmFlags:")).unwrap_or_default();
        flags.split_whitespace().filter(|flag| ["hg", "nh"].contains(flag)).collect()
    }

    #[test]
    fn a_span_that_returned_memory_uses_no_huge_page() {
        let mut blocks = Spans::new(0);
        let out: Vec<_> = (0..32).map(|_| blocks.get(CHUNK).expect("memory")).collect();
        let first = out[0].0;
        if flags(first) != "hg" {
            return std::println!("skipped: this system has no huge pages, or does not tell");
        }
        for &(base, at) in &out[10..12] {
            // SAFETY: the chunk came from `blocks`, and is returned once.
            unsafe { blocks.put(base, CHUNK, at) };
        }
        assert_eq!(flags(first), "hg", "nothing was given back yet");
        blocks.give_all_spare_back();
        assert_eq!(flags(first), "nh");
        blocks.get(CHUNK).expect("memory");
        assert_eq!(flags(first), "nh");
        blocks.get(CHUNK).expect("memory");
        assert_eq!(flags(first), "hg", "it is full");
        for (base, at) in out {
            // SAFETY: all chunks are allocated again, and each is returned once.
            unsafe { blocks.put(base, CHUNK, at) };
        }
    }

    #[test]
    fn the_number_of_spare_chunks_stays_within_bounds_if_all_are_in_one_span() {
        let mut blocks = Spans::new(usize::MAX);
        let out: Vec<_> = (0..5 * 32).map(|_| blocks.get(CHUNK).expect("memory")).collect();
        let mut least = usize::MAX;
        for (nr, &(base, at)) in (1..).zip(&out[64..95]) {
            // SAFETY: the chunk came from `blocks`, and is returned once.
            unsafe { blocks.put(base, CHUNK, at) };
            least = least.min(if nr < 5 { usize::MAX } else { blocks.spare });
            assert!(blocks.spare <= 10, "one in 16 at most, not {}", blocks.spare);
        }
        assert_eq!(least, 5, "half of them");
        for (base, at) in
            out.into_iter().enumerate().filter_map(|(nr, chunk)| (!(64..95).contains(&nr)).then_some(chunk))
        {
            // SAFETY: the chunk came from `blocks`, and was not returned above.
            unsafe { blocks.put(base, CHUNK, at) };
        }
        assert!(blocks.mapped == 0 && blocks.spare == 0);
    }

    #[test]
    fn spare_chunks_are_used_before_unmapped_ones() {
        let mut blocks = Spans::new(usize::MAX);
        let out: Vec<_> = (0..3 * 32).map(|_| blocks.get(CHUNK).expect("memory")).collect();
        // The seventh is one too many: the span that is searched next loses its only spare chunk,
        // and the others keep the six that are allowed.
        for at in [0, 1, 2, 64, 65, 66, 32] {
            // SAFETY: the chunk came from `blocks`, and is returned once.
            unsafe { blocks.put(out[at].0, CHUNK, out[at].1) };
        }
        assert_eq!(blocks.spare, 6);
        for left in (0..6).rev() {
            let got = blocks.get(CHUNK).expect("memory");
            assert!(blocks.spare == left && got.1 != 1, "{} chunks are spare, and {left} would do", blocks.spare);
        }
        assert_eq!(blocks.get(CHUNK).expect("memory"), out[32], "the unmapped chunk is allocated last");
        assert!(blocks.with_room == [NONE; 2] && blocks.mapped == 3);
        for (base, at) in out {
            // SAFETY: all chunks are allocated again, and each is returned once.
            unsafe { blocks.put(base, CHUNK, at) };
        }
        assert!(blocks.with_room == [NONE; 2] && blocks.mapped == 0 && blocks.spare == 0);
    }
}
