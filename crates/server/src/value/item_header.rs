//! What is known of a value's block beside it, in 16 bits: how long its parts are, and the marks.
//!
//! ```text
//!     bit 0        9       10     13        15
//!     key's length | flags? | marks | number's width | free
//! ```

use super::item_flags::Marks;
use crate::protocol::item::KEY_BYTES_MAX;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note(pub u16);

/// What a number takes: the first of these that it fits into. It grows with each store, so mostly that is 4 or 5.
const UNIQUE_BYTES: [usize; 4] = [4, 5, 6, 8];

/// What the flags take if they are not 0.
const FLAGS_BYTES: usize = 4;

const KEY_BITS: u32 = 9;
const _: () =
    assert!(2 * KEY_BYTES_MAX < 1 << KEY_BITS, "a key may have a tenant in front, which is no longer than a key");

const HAS_FLAGS: u16 = 1 << KEY_BITS;

const MARKS_SHIFT: u32 = 10;
const MARKS: u16 = 7 << MARKS_SHIFT;

const WIDTH_SHIFT: u32 = 13;
const WIDTH: u16 = 3 << WIDTH_SHIFT;

impl Note {
    /// Of a block with such a key, such flags and such a number.
    pub fn new(key: &[u8], flags: u32, marks: Marks, unique: u64) -> Self {
        debug_assert!(key.len() < 1 << KEY_BITS, "a key of {} bytes", key.len());
        let has_flags = if flags == 0 { 0 } else { HAS_FLAGS };
        Self((key.len() as u16 % HAS_FLAGS) | has_flags).with_marks(marks).with_unique(unique)
    }

    pub fn key_len(self) -> usize {
        usize::from(self.0 % HAS_FLAGS)
    }

    pub fn flags_len(self) -> usize {
        if self.0 & HAS_FLAGS == 0 {
            0
        } else {
            FLAGS_BYTES
        }
    }

    pub fn unique_len(self) -> usize {
        UNIQUE_BYTES[usize::from(self.0 >> WIDTH_SHIFT & 3)]
    }

    /// The same for another number.
    pub fn with_unique(self, unique: u64) -> Self {
        let fits = |bytes: &usize| unique.checked_shr(8 * *bytes as u32).unwrap_or(0) == 0;
        let width = UNIQUE_BYTES.iter().position(fits).unwrap_or(0) as u16;
        Self(self.0 & !WIDTH | (width << WIDTH_SHIFT))
    }

    pub fn marks(self) -> Marks {
        let is = |bit: u32| self.0 >> (MARKS_SHIFT + bit) & 1 != 0;
        Marks { stale: is(0), won: is(1), binary: is(2) }
    }

    /// The same with other marks.
    pub fn with_marks(self, marks: Marks) -> Self {
        let bits = u16::from(marks.stale) | u16::from(marks.won) << 1 | u16::from(marks.binary) << 2;
        Self(self.0 & !MARKS | (bits << MARKS_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_disturb_each_other() {
        for key in [0, 1, 255, 256, 511] {
            for flags in [0, 7] {
                for bits in 0..8 {
                    let marks = Marks { stale: bits & 1 != 0, won: bits & 2 != 0, binary: bits & 4 != 0 };
                    for (unique, bytes) in [(1, 4), ((1 << 48) - 1, 6), (u64::MAX, 8), ((1 << 40) - 1, 5), (0, 4)] {
                        let note = Note::new(&vec![0; key], flags, Marks::default(), 1 << 40);
                        let note = note.with_marks(marks).with_unique(unique);
                        assert_eq!(note, Note::new(&vec![0; key], flags, marks, unique));
                        let parts = (note.key_len(), note.flags_len(), note.unique_len(), note.marks());
                        assert_eq!(parts, (key, if flags == 0 { 0 } else { 4 }, bytes, marks));
                        assert_eq!(note.with_marks(Marks::default()).marks(), Marks::default());
                    }
                }
            }
        }
    }

    #[test]
    fn a_number_takes_as_little_as_it_fits_into() {
        for (bits, bytes) in [(1, 4), (32, 4), (33, 5), (40, 5), (41, 6), (48, 6), (49, 8), (56, 8), (57, 8), (64, 8)] {
            let unique = u64::MAX >> (64 - bits);
            assert_eq!(Note::new(b"", 0, Marks::default(), unique).unique_len(), bytes, "{bits} bits");
        }
    }
}
