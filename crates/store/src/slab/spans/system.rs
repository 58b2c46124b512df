//! Spans that are mapped from the system.

use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use lowwater_base::mapped_memory::{map_aligned, HUGE};
use rustix::mm::{madvise, munmap, Advice};

pub(super) const BLOCK: usize = HUGE;
const NONE: u32 = u32::MAX;
/// Spare chunks, at most, and of all chunks that are mapped one in so many.
const SPARE_MAX: usize = 32;
const SPARE_PARTS: usize = 16;
/// Spans that one chunk which is too many looks at for spare ones.
const LOOKS_MAX: usize = 64;

pub(super) struct Spans {
    blocks: Vec<Block>,
    /// The first that has room, of those with spare chunks, which go first, and of those without; the others are joined to it.
    roomy: [u32; 2],
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
    /// Was memory of it given back since it was last full? Then it asks for no huge page, or the system would make one of what is left
    /// by and by, and take memory for the holes.
    has_holes: bool,
    prev: u32,
    next: u32,
}

// SAFETY: a block is memory that nobody else knows; it may be mapped and unmapped from any thread.
unsafe impl Send for Spans {}

impl Spans {
    pub(super) const fn new(small: usize) -> Self {
        Self { blocks: Vec::new(), roomy: [NONE; 2], unused: NONE, mapped: 0, small, spare: 0, chunk: 0, hand: 0 }
    }

    pub(super) fn footprint(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.spare * self.chunk
    }

    pub(super) fn get(&mut self, bytes: usize) -> Option<(NonNull<u8>, u32)> {
        if self.roomy == [NONE; 2] {
            self.add()?;
        }
        let at = self.roomy.into_iter().find(|&at| at != NONE)?;
        self.unlink(at);
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
        if block.out != all(bytes) {
            self.link(at);
        } else if core::mem::take(&mut block.has_holes) {
            block.ask_for_huge(self.mapped > self.small);
        }
        Some((NonNull::new(base)?, at))
    }

    /// # Safety
    ///
    /// `base` came from [`get`](Self::get) with this block, and nobody uses it.
    pub(super) unsafe fn put(&mut self, base: NonNull<u8>, bytes: usize, at: u32) {
        let block = &mut self.blocks[at as usize];
        let was_full = block.out == all(bytes);
        if !was_full {
            self.unlink(at);
        }
        let block = &mut self.blocks[at as usize];
        let chunk = (base.as_ptr().addr() - block.base.addr()) / bytes;
        block.out &= !(1 << chunk);
        if block.out == 0 {
            self.spare -= core::mem::take(&mut block.spare).count_ones() as usize;
            let base = core::mem::replace(&mut block.base, ptr::null_mut());
            block.next = core::mem::replace(&mut self.unused, at);
            self.mapped -= 1;
            // SAFETY: it was mapped with this size, and no chunk of it is out.
            let _unmapped = unsafe { munmap(base.cast(), BLOCK) };
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

    /// The spare chunks of the next block that has some, but for so many of all.
    fn give_some_spare_back(&mut self, keep: usize) {
        for _ in 0..LOOKS_MAX.min(self.blocks.len()) {
            self.hand = (self.hand + 1) % self.blocks.len();
            if self.blocks[self.hand].spare != 0 {
                return self.give_spare_back(self.hand, keep);
            }
        }
    }

    pub(super) fn give_all_spare_back(&mut self) {
        (0..self.blocks.len()).for_each(|at| self.give_spare_back(at, 0));
    }

    /// Those of a block, until so many of all are left. A call for each run of chunks.
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
        let block = Block { base, out: 0, spare: 0, has_holes: false, prev: NONE, next: NONE };
        block.ask_for_huge(self.mapped > self.small);
        if at as usize == self.blocks.len() {
            self.blocks.push(block);
        } else {
            self.unused = core::mem::replace(&mut self.blocks[at as usize], block).next;
        }
        self.link(at);
        Some(())
    }

    fn link(&mut self, at: u32) {
        let list = self.blocks[at as usize].list();
        let next = core::mem::replace(&mut self.roomy[list], at);
        (self.blocks[at as usize].prev, self.blocks[at as usize].next) = (NONE, next);
        if next != NONE {
            self.blocks[next as usize].prev = at;
        }
    }

    /// Before its spare chunks become some, or none.
    fn unlink(&mut self, at: u32) {
        let list = self.blocks[at as usize].list();
        let (prev, next) = (self.blocks[at as usize].prev, self.blocks[at as usize].next);
        match prev {
            NONE => self.roomy[list] = next,
            prev => self.blocks[prev as usize].next = next,
        }
        if next != NONE {
            self.blocks[next as usize].prev = prev;
        }
    }
}

impl Block {
    /// That where it is while it has room.
    fn list(&self) -> usize {
        usize::from(self.spare == 0)
    }

    /// For one that is mapped. Some systems give huge pages to all who ask for none, so that is said, too.
    fn ask_for_huge(&self, is_wanted: bool) {
        let advice = if is_wanted { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: neither changes what is in the block, nor whose it is. If it is not taken it is slower, or larger, and nothing else.
        let _advised = unsafe { madvise(self.base.cast(), BLOCK, advice) };
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

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = BLOCK / 32;

    /// Which advice the mapping has that begins there.
    fn flags(base: NonNull<u8>) -> alloc::string::String {
        let all = std::fs::read_to_string("/proc/self/smaps").expect("a process may look at its own");
        let is_begin = |line: &&str| {
            line.split_once('-')
                .is_some_and(|(from, _)| u64::from_str_radix(from, 16).is_ok_and(|from| from <= base.as_ptr() as u64))
        };
        let lines: Vec<_> = all.lines().collect();
        let at = lines.iter().rposition(is_begin).expect("it is mapped");
        let flags = lines[at..].iter().find_map(|line| line.strip_prefix("VmFlags:")).unwrap_or_default();
        flags.split_whitespace().filter(|flag| ["hg", "nh"].contains(flag)).collect()
    }

    #[test]
    fn what_was_given_back_is_not_taken_again_for_a_huge_page() {
        let mut blocks = Spans::new(0);
        let out: Vec<_> = (0..32).map(|_| blocks.get(CHUNK).expect("memory")).collect();
        let first = out[0].0;
        if flags(first) != "hg" {
            return std::println!("skipped: this system has no huge pages, or does not tell");
        }
        for &(base, at) in &out[10..12] {
            // SAFETY: it came from there, and goes back once.
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
            // SAFETY: all are out again, and each goes back once.
            unsafe { blocks.put(base, CHUNK, at) };
        }
    }

    #[test]
    fn some_is_spare_when_all_that_is_is_in_one_block() {
        let mut blocks = Spans::new(usize::MAX);
        let out: Vec<_> = (0..5 * 32).map(|_| blocks.get(CHUNK).expect("memory")).collect();
        let mut least = usize::MAX;
        for (nr, &(base, at)) in (1..).zip(&out[64..95]) {
            // SAFETY: it came from there, and goes back once.
            unsafe { blocks.put(base, CHUNK, at) };
            least = least.min(if nr < 5 { usize::MAX } else { blocks.spare });
            assert!(blocks.spare <= 10, "one in 16 at most, not {}", blocks.spare);
        }
        assert_eq!(least, 5, "half of them");
        for (base, at) in
            out.into_iter().enumerate().filter_map(|(nr, chunk)| (!(64..95).contains(&nr)).then_some(chunk))
        {
            // SAFETY: it came from there, and was not given back above.
            unsafe { blocks.put(base, CHUNK, at) };
        }
        assert!(blocks.mapped == 0 && blocks.spare == 0);
    }

    #[test]
    fn what_is_spare_is_used_before_what_the_system_would_have_to_give() {
        let mut blocks = Spans::new(usize::MAX);
        let out: Vec<_> = (0..3 * 32).map(|_| blocks.get(CHUNK).expect("memory")).collect();
        // The seventh is too many: its block, which the hand comes to, has none then, but the others have all that may be.
        for at in [0, 1, 2, 64, 65, 66, 32] {
            // SAFETY: it came from there, and goes back once.
            unsafe { blocks.put(out[at].0, CHUNK, out[at].1) };
        }
        assert_eq!(blocks.spare, 6);
        for left in (0..6).rev() {
            let got = blocks.get(CHUNK).expect("memory");
            assert!(blocks.spare == left && got.1 != 1, "{} chunks are spare, and {left} would do", blocks.spare);
        }
        assert_eq!(blocks.get(CHUNK).expect("memory"), out[32], "what is left is there, too");
        assert!(blocks.roomy == [NONE; 2] && blocks.mapped == 3);
        for (base, at) in out {
            // SAFETY: all are out again, and each goes back once.
            unsafe { blocks.put(base, CHUNK, at) };
        }
        assert!(blocks.roomy == [NONE; 2] && blocks.mapped == 0 && blocks.spare == 0);
    }
}
