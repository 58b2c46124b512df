//! The header of a stored item, 16 bits in its entry: the lengths of the block's parts, and the
//! item flags.
//!
//! ```text
//!     bit 0        9              10           13                 15
//!     key's length | client flags? | item flags | CAS number's width | free
//! ```

use super::item_flags::ItemFlags;
use crate::protocol::item::KEY_BYTES_MAX;

/// The header of a stored item; the module describes its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemHeader(pub u16);

/// The possible widths of a CAS number: the first that it fits into. The number grows with each
/// store, so mostly the width is 4 or 5.
const UNIQUE_BYTES: [usize; 4] = [4, 5, 6, 8];

/// Bytes of the client flags, unless they are 0.
const CLIENT_FLAGS_BYTES: usize = 4;

const KEY_BITS: u32 = 9;
const _: () =
    assert!(2 * KEY_BYTES_MAX < 1 << KEY_BITS, "a key may have a tenant's name in front, which is shorter than a key");

const HAS_CLIENT_FLAGS: u16 = 1 << KEY_BITS;

const ITEM_FLAGS_SHIFT: u32 = 10;
const ITEM_FLAGS: u16 = 7 << ITEM_FLAGS_SHIFT;

const WIDTH_SHIFT: u32 = 13;
const WIDTH: u16 = 3 << WIDTH_SHIFT;

impl ItemHeader {
    /// Creates the header of a block with these parts.
    pub fn new(key: &[u8], flags: u32, item_flags: ItemFlags, unique: u64) -> Self {
        debug_assert!(key.len() < 1 << KEY_BITS, "a key of {} bytes", key.len());
        let has_flags = if flags == 0 { 0 } else { HAS_CLIENT_FLAGS };
        Self((key.len() as u16 % HAS_CLIENT_FLAGS) | has_flags).with_item_flags(item_flags).with_unique(unique)
    }

    pub fn key_len(self) -> usize {
        usize::from(self.0 % HAS_CLIENT_FLAGS)
    }

    pub fn client_flags_len(self) -> usize {
        if self.0 & HAS_CLIENT_FLAGS == 0 {
            0
        } else {
            CLIENT_FLAGS_BYTES
        }
    }

    pub fn unique_len(self) -> usize {
        UNIQUE_BYTES[usize::from(self.0 >> WIDTH_SHIFT & 3)]
    }

    /// Returns this header for another CAS number.
    pub fn with_unique(self, unique: u64) -> Self {
        let fits = |bytes: &usize| unique.checked_shr(8 * *bytes as u32).unwrap_or(0) == 0;
        let width = UNIQUE_BYTES.iter().position(fits).unwrap_or(0) as u16;
        Self(self.0 & !WIDTH | (width << WIDTH_SHIFT))
    }

    pub fn item_flags(self) -> ItemFlags {
        let is = |bit: u32| self.0 >> (ITEM_FLAGS_SHIFT + bit) & 1 != 0;
        ItemFlags { stale: is(0), won: is(1), binary: is(2) }
    }

    /// Returns this header with other item flags.
    pub fn with_item_flags(self, item_flags: ItemFlags) -> Self {
        let bits = u16::from(item_flags.stale) | u16::from(item_flags.won) << 1 | u16::from(item_flags.binary) << 2;
        Self(self.0 & !ITEM_FLAGS | (bits << ITEM_FLAGS_SHIFT))
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
                    let item_flags = ItemFlags { stale: bits & 1 != 0, won: bits & 2 != 0, binary: bits & 4 != 0 };
                    for (unique, bytes) in [(1, 4), ((1 << 48) - 1, 6), (u64::MAX, 8), ((1 << 40) - 1, 5), (0, 4)] {
                        let header = ItemHeader::new(&vec![0; key], flags, ItemFlags::default(), 1 << 40);
                        let header = header.with_item_flags(item_flags).with_unique(unique);
                        assert_eq!(header, ItemHeader::new(&vec![0; key], flags, item_flags, unique));
                        let parts =
                            (header.key_len(), header.client_flags_len(), header.unique_len(), header.item_flags());
                        assert_eq!(parts, (key, if flags == 0 { 0 } else { 4 }, bytes, item_flags));
                        assert_eq!(header.with_item_flags(ItemFlags::default()).item_flags(), ItemFlags::default());
                    }
                }
            }
        }
    }

    #[test]
    fn a_number_takes_as_little_as_it_fits_into() {
        for (bits, bytes) in [(1, 4), (32, 4), (33, 5), (40, 5), (41, 6), (48, 6), (49, 8), (56, 8), (57, 8), (64, 8)] {
            let unique = u64::MAX >> (64 - bits);
            assert_eq!(ItemHeader::new(b"", 0, ItemFlags::default(), unique).unique_len(), bytes, "{bits} bits");
        }
    }
}
