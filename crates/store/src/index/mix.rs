//! Hash mixing.
//!
//! A caller may supply any hasher, for example the identity. The index uses the first bits of a
//! hash for the directory, the middle ones for the bucket and the last ones for the tag, so all
//! bits must vary between keys. A change must keep `mix` a pure function: the index recomputes the
//! hashes of a segment's objects whenever the segment grows, shrinks or is split.

use lowwater_base::hash::GOLDEN_RATIO;

/// Spreads a hash over all bits, because a hasher may leave some of them nearly constant. Combines
/// both halves of one product, as wyhash does.
#[inline]
pub(super) fn mix(hash: u64) -> u64 {
    let product = u128::from(hash) * u128::from(GOLDEN_RATIO);
    product as u64 ^ (product >> 64) as u64
}
