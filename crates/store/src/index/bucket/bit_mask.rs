//! Sets of ways of a bucket. A way is a place for one object: a tag of one byte, and a number.
//!
//! A lookup compares its tag with all tags at once. With SSE2 (x86-64) one comparison covers all
//! sixteen bytes of the two tag words; the portable version computes the same set a word at a time.
//! A change must keep both versions equal, which the unit tests compare, and free of false
//! positives: a wrong bit may name a free way, whose number is not valid.

use crate::sync::atomic::AtomicU64;

/// The byte of the two words at which the tags begin. In a model check all tags are in the second
/// word, beside the overflow counts: there a store of a count also rewrites the tags.
pub(super) const FIRST_AT: usize = if cfg!(lowwater_loom) { 8 } else { 0 };
/// The number of ways of a bucket.
pub(in crate::index) const WAYS: usize = if cfg!(lowwater_loom) { 2 } else { 12 };

/// A set of ways of a bucket: one bit for each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BitMask(u64);

impl BitMask {
    /// Returns the lowest way in the set.
    #[inline]
    pub(super) fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// Returns the set without its lowest way.
    #[inline]
    pub(super) fn others(self) -> Self {
        Self(self.0 & self.0.wrapping_sub(1))
    }

    /// Iterates over the ways in the set, the lowest first.
    #[inline]
    pub(super) fn each(self) -> impl Iterator<Item = usize> {
        core::iter::successors(Some(self), |ways| Some(ways.others())).map_while(Self::first)
    }

    /// Returns the ways with the tag `tag`. `tags` are the bucket's two words; their bytes that are
    /// no tags are ignored.
    #[inline]
    pub(super) fn tagged(tags: [u64; 2], tag: u8) -> Self {
        Self(u64::from(bytes_that_are(tag, tags) >> FIRST_AT) & ((1 << WAYS) - 1))
    }
}

/// Returns one bit for each byte of the two words that equals `byte`, beginning with the lowest
/// byte of the first word.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline]
fn bytes_that_are(byte: u8, words: [u64; 2]) -> u32 {
    use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8, _mm_set_epi64x};

    let [first, second] = words;
    // SAFETY: this function is compiled only if the target has SSE2 as a static target feature.
    let words = unsafe { _mm_set_epi64x(second as i64, first as i64) };
    // SAFETY: SSE2, by this function's `cfg`.
    let byte = unsafe { _mm_set1_epi8(byte as i8) };
    // SAFETY: SSE2, by this function's `cfg`.
    let equal = unsafe { _mm_cmpeq_epi8(words, byte) };
    // SAFETY: SSE2, by this function's `cfg`.
    let bits = unsafe { _mm_movemask_epi8(equal) };
    bits as u32
}

/// The bytes of a bucket's two tag words, as a lookup loaded them.
#[derive(Clone, Copy)]
pub(super) struct Tags(vector::Bytes);

impl Tags {
    /// Loads both words, each byte with Acquire. A tag never moves between the words, so the order
    /// of the two loads does not matter.
    #[inline]
    pub(super) fn load(words: &[AtomicU64; 2]) -> Self {
        Self(vector::load(words))
    }

    /// Returns the ways with the [tag](super::super::tag) of `hash`.
    #[inline]
    pub(super) fn with_tag_of(self, hash: u64) -> BitMask {
        BitMask(u64::from(vector::tagged(hash, self.0) >> FIRST_AT) & ((1 << WAYS) - 1))
    }

    /// Returns whether all bytes of both are the same.
    #[inline]
    pub(super) fn are(self, other: Self) -> bool {
        vector::are_same(self.0, other.0)
    }
}

/// [`Tags`] in a vector register: one load, and no instructions that move two words there.
#[cfg(all(
    target_arch = "x86_64",
    target_pointer_width = "64",
    target_feature = "sse2",
    not(lowwater_loom),
    not(miri)
))]
mod vector {
    use super::AtomicU64;
    use crate::index::tag::TAG_MIN;
    use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_max_epu8, _mm_movemask_epi8, _mm_set1_epi8};

    pub(super) type Bytes = __m128i;

    #[inline]
    pub(super) fn load(words: &[AtomicU64; 2]) -> Bytes {
        let bytes;
        // In assembly, as other threads store to the words: Rust has no atomic load of a vector,
        // and its other loads would be a data race. Each byte is loaded whole, which suffices: a
        // store changes one byte of a tag, and rewrites the others with the same values. The
        // processor keeps loads in order, and the compiler moves no access over the block, which
        // may access any memory: so each load is an Acquire.
        // SAFETY: reads 16 bytes of the reference's memory, which a bucket aligns to 16.
        unsafe {
            core::arch::asm!(
                "movdqa {bytes}, xmmword ptr [{words}]",
                bytes = lateout(xmm_reg) bytes,
                words = in(reg) words,
                options(nostack, preserves_flags),
            );
        }
        bytes
    }

    #[inline]
    pub(super) fn tagged(hash: u64, bytes: Bytes) -> u32 {
        // SAFETY: this module is compiled only if the target has SSE2 as a static target feature.
        let low = unsafe { _mm_set1_epi8(hash as i8) };
        // SAFETY: SSE2, by the module's `cfg`.
        let min = unsafe { _mm_set1_epi8(TAG_MIN as i8) };
        // SAFETY: SSE2, by the module's `cfg`.
        let tag = unsafe { _mm_max_epu8(low, min) };
        // SAFETY: SSE2, by the module's `cfg`.
        let equal = unsafe { _mm_cmpeq_epi8(bytes, tag) };
        // SAFETY: SSE2, by the module's `cfg`.
        unsafe { _mm_movemask_epi8(equal) as u32 }
    }

    #[inline]
    pub(super) fn are_same(bytes: Bytes, others: Bytes) -> bool {
        // SAFETY: SSE2, by the module's `cfg`.
        let equal = unsafe { _mm_cmpeq_epi8(bytes, others) };
        // SAFETY: SSE2, by the module's `cfg`.
        unsafe { _mm_movemask_epi8(equal) == 0xffff }
    }
}

/// [`Tags`] as two words: for other processors, model checks and Miri.
#[cfg(not(all(
    target_arch = "x86_64",
    target_pointer_width = "64",
    target_feature = "sse2",
    not(lowwater_loom),
    not(miri)
)))]
mod vector {
    use super::{bytes_that_are, AtomicU64};
    use crate::index::tag::tag;
    use crate::sync::atomic::Ordering;

    pub(super) type Bytes = [u64; 2];

    #[inline]
    pub(super) fn load(words: &[AtomicU64; 2]) -> Bytes {
        // Acquire: pairs with the Release in `put`.
        [words[0].load(Ordering::Acquire), words[1].load(Ordering::Acquire)]
    }

    #[inline]
    pub(super) fn tagged(hash: u64, bytes: Bytes) -> u32 {
        bytes_that_are(tag(hash), bytes)
    }

    #[inline]
    pub(super) fn are_same(bytes: Bytes, others: Bytes) -> bool {
        bytes == others
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
use portable::bytes_that_are;

/// The portable version, a word at a time: for other processors, and for kernels, which do not use
/// vector registers.
#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
mod portable {
    const ONES: u64 = 0x0101_0101_0101_0101;
    /// The lowest seven bits of each byte.
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    /// Multiplied by this, the lowest bit of each byte moves to its own bit of the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;

    #[inline]
    pub(super) fn bytes_that_are(byte: u8, words: [u64; 2]) -> u32 {
        let [first, second] = words.map(|word| zeros(word ^ ONES.wrapping_mul(u64::from(byte))));
        first | second << 8
    }

    /// Returns one bit for each byte of `word` that is 0. Exact: no sum of a byte carries into the
    /// next byte.
    #[inline]
    fn zeros(word: u64) -> u32 {
        let highest = !((word & LOW).wrapping_add(LOW) | word | LOW);
        ((highest >> 7).wrapping_mul(GATHER) >> 56) as u32
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_version_finds_exactly_the_equal_bytes() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            // Few distinct byte values, so that equal bytes occur.
            (state >> 8) & 0x8103_0181_0003_8001
        };
        for _ in 0..10_000 {
            let words = [next(), next()];
            let bytes = words.map(u64::to_le_bytes).concat();
            for tag in [0, 1, 2, 3, 0x7f, 0x80, 0x81, 0xff].into_iter().chain(bytes.iter().copied()) {
                let expected = (0..16).map(|at| u32::from(bytes[at] == tag) << at).sum::<u32>();
                assert_eq!(bytes_that_are(tag, words), expected, "{tag} in {bytes:?}");
                assert_eq!(portable::bytes_that_are(tag, words), expected, "{tag} in {bytes:?}");
                let ways = BitMask::tagged(words, tag).each().collect::<alloc::vec::Vec<_>>();
                assert_eq!(ways, (0..WAYS).filter(|way| bytes[way + FIRST_AT] == tag).collect::<alloc::vec::Vec<_>>());
            }
        }
    }
}
