//! SipHash-1-3 of a whole key at once: one round for each word of eight bytes, three at the end.
//!
//! The hash is that of the standard library's `DefaultHasher`, which accepts its input in parts and
//! therefore stores the state and a part of a word between calls; a key is always whole. The caller
//! keys the hash at random, so that clients cannot construct collisions.
//!
//! A change must ensure that the hash stays that of the standard library: a test compares the two.

/// The secret key of the hash, 128 bits.
#[derive(Clone, Copy, Debug)]
pub struct SipKey(pub u64, pub u64);

/// The four words of the state.
struct State(u64, u64, u64, u64);

impl State {
    #[inline]
    fn round(&mut self) {
        let Self(v0, v1, v2, v3) = self;
        *v0 = v0.wrapping_add(*v1);
        *v2 = v2.wrapping_add(*v3);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v1);
        *v0 = v0.wrapping_add(*v3);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.rotate_left(32);
    }

    #[inline]
    fn compress(&mut self, word: u64) {
        self.3 ^= word;
        self.round();
        self.0 ^= word;
    }
}

/// Returns the hash of `bytes`. O(bytes).
#[inline]
pub fn hash(SipKey(k0, k1): SipKey, bytes: &[u8]) -> u64 {
    // The constants of the algorithm's definition.
    let mut state = State(
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    );
    let mut rest = bytes;
    while let Some((word, after)) = rest.split_first_chunk() {
        state.compress(u64::from_le_bytes(*word));
        rest = after;
    }
    // The last word has the bytes that are left, and the length in its highest byte.
    state.compress((bytes.len() as u64) << 56 | last_bytes(bytes, rest));
    state.2 ^= 0xff;
    state.round();
    state.round();
    state.round();
    state.0 ^ state.1 ^ state.2 ^ state.3
}

/// Returns `rest`, the fewer than 8 bytes at the end of `bytes`, as a number.
#[inline]
fn last_bytes(bytes: &[u8], rest: &[u8]) -> u64 {
    match bytes.last_chunk::<8>() {
        // One load, without the bytes that belong to the word before.
        Some(last) if !rest.is_empty() => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
        Some(_) => 0,
        None => rest.iter().rfold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    #[test]
    fn it_is_the_hash_of_the_standard_library() {
        // `DefaultHasher::new` has a key of zeros.
        let bytes: Vec<u8> = (0..300).map(|n| (n * 7 % 251) as u8).collect();
        for length in (0..70).chain([249, 250, 251, 300]) {
            for start in [0, 1, 5] {
                let key = &bytes[start.min(length)..length];
                let mut hasher = DefaultHasher::new();
                hasher.write(key);
                assert_eq!(hash(SipKey(0, 0), key), hasher.finish(), "{length} {start}");
            }
        }
    }

    #[test]
    fn the_key_matters() {
        let hashes = [(0, 0), (1, 0), (0, 1)].map(|(a, b)| hash(SipKey(a, b), b"key"));
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2]);
    }
}
