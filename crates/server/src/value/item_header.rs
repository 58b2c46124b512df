//! The header of a stored item: the lengths of the parts of its block, and the item flags, in 16
//! bits of the entry.
//!
//! ```text
//!     bit 0        9              10           13                    15
//!     key's length | client flags? | item flags | serial number's width | given CAS number?
//! ```
//!
//! The lengths are here and not in the block, as the block's size is rounded up to 16 bytes. The
//! layout is private to `value`: it is never saved.
//!
//! A change must ensure that the fields share no bit, and that each length is that of the part in
//! the block: with a wrong length a reply would show bytes of another part.

use super::item_flags::ItemFlags;
use super::item_number::ItemNumber;
use crate::protocol::item::STORED_KEY_BYTES_MAX;

/// The header of a stored item; the module describes its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemHeader(pub u16);

/// The possible widths of a serial number in bytes; the first that it fits into is used. The number
/// grows with each store, so mostly the width is 4 or 5.
const SERIAL_BYTES: [usize; 4] = [4, 5, 6, 8];

/// Bytes of a CAS number that a client has given.
const GIVEN_BYTES: usize = size_of::<u64>();

/// Bytes of the client flags, unless they are 0.
const CLIENT_FLAGS_BYTES: usize = 4;

/// Maximum length of the parts of a block before the bytes of the value.
pub const FRONT_PARTS_BYTES_MAX: usize = size_of::<u64>() + GIVEN_BYTES + CLIENT_FLAGS_BYTES + STORED_KEY_BYTES_MAX;

const KEY_BITS: u32 = 9;
const _: () = assert!(STORED_KEY_BYTES_MAX < 1 << KEY_BITS, "the length of each stored key fits");

const HAS_CLIENT_FLAGS: u16 = 1 << KEY_BITS;

const ITEM_FLAGS_SHIFT: u32 = 10;
const ITEM_FLAGS: u16 = 7 << ITEM_FLAGS_SHIFT;

const WIDTH_SHIFT: u32 = 13;
const WIDTH: u16 = 3 << WIDTH_SHIFT;

const HAS_GIVEN: u16 = 1 << 15;

impl ItemHeader {
    /// Creates the header of a block with these parts.
    pub fn new(key: &[u8], flags: u32, item_flags: ItemFlags, number: ItemNumber) -> Self {
        debug_assert!(key.len() < 1 << KEY_BITS, "a key of {} bytes", key.len());
        let has_flags = if flags == 0 { 0 } else { HAS_CLIENT_FLAGS };
        Self((key.len() as u16 % HAS_CLIENT_FLAGS) | has_flags).with_item_flags(item_flags).with_number(number)
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

    pub fn serial_len(self) -> usize {
        SERIAL_BYTES[usize::from(self.0 >> WIDTH_SHIFT & 3)]
    }

    pub fn given_len(self) -> usize {
        if self.0 & HAS_GIVEN == 0 {
            0
        } else {
            GIVEN_BYTES
        }
    }

    /// Returns this header for other numbers.
    pub fn with_number(self, number: ItemNumber) -> Self {
        let has_given = if number.given.is_some() { HAS_GIVEN } else { 0 };
        let fits = |bytes: &usize| number.serial.checked_shr(8 * *bytes as u32).unwrap_or(0) == 0;
        let width = SERIAL_BYTES.iter().position(fits).unwrap_or(0) as u16;
        Self(self.0 & !(WIDTH | HAS_GIVEN) | (width << WIDTH_SHIFT) | has_given)
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
    fn header_fields_are_independent() {
        for key in [0, 1, 255, 256, 511] {
            for flags in [0, 7] {
                for bits in 0..8 {
                    let item_flags = ItemFlags { stale: bits & 1 != 0, won: bits & 2 != 0, binary: bits & 4 != 0 };
                    for (serial, bytes) in [(1, 4), ((1 << 48) - 1, 6), (u64::MAX, 8), ((1 << 40) - 1, 5), (0, 4)] {
                        let number = ItemNumber { serial, given: (serial > 1).then_some(7) };
                        let before = ItemNumber { serial: 1 << 40, given: (serial <= 1).then_some(7) };
                        let header = ItemHeader::new(&vec![0; key], flags, ItemFlags::default(), before);
                        let header = header.with_item_flags(item_flags).with_number(number);
                        assert_eq!(header, ItemHeader::new(&vec![0; key], flags, item_flags, number));
                        let parts =
                            (header.key_len(), header.client_flags_len(), header.serial_len(), header.item_flags());
                        assert_eq!(parts, (key, if flags == 0 { 0 } else { 4 }, bytes, item_flags));
                        assert_eq!(header.given_len(), if serial > 1 { 8 } else { 0 });
                        assert_eq!(header.with_item_flags(ItemFlags::default()).item_flags(), ItemFlags::default());
                    }
                }
            }
        }
    }

    #[test]
    fn a_cas_number_takes_the_smallest_width() {
        for (bits, bytes) in [(1, 4), (32, 4), (33, 5), (40, 5), (41, 6), (48, 6), (49, 8), (56, 8), (57, 8), (64, 8)] {
            let serial = u64::MAX >> (64 - bits);
            let header = ItemHeader::new(b"", 0, ItemFlags::default(), serial.into());
            assert_eq!(header.serial_len(), bytes, "{bits} bits");
        }
    }
}
