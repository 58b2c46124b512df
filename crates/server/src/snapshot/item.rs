//! A value in a snapshot: its encoding and decoding.
//!
//! ```text
//!   key's length, 2 | bits, 1 | heat, 1 | value's length, 4
//!   | client flags, 4 | serial number, 8 | CAS number of a client, 8 | milliseconds left, 8 | key | value
//! ```
//!
//! The numbers stand for lengths in bytes; fields are little-endian. The bits tell the item flags,
//! whether the value was fetched, and whether the last two numbers are valid. The heat is the use
//! count. A change of the layout needs another magic number in [`chunk`](super::chunk). A change
//! must ensure that decoding does not panic for any bytes.

use std::time::Duration;

use crate::protocol::item::{item_bytes, STORED_KEY_BYTES_MAX};
use crate::store::saved::LoadedValue;
use crate::store::Store;
use crate::value::item_flags::ItemFlags;
use crate::value::item_number::ItemNumber;
use crate::value::Value;

/// Bits: the item flags; whether the value was fetched; whether a client gave its CAS number;
/// whether the value expires.
const STALE: u8 = 1;
const WON: u8 = 1 << 1;
const BINARY: u8 = 1 << 2;
const FETCHED: u8 = 1 << 3;
const GIVEN: u8 = 1 << 4;
const EXPIRES: u8 = 1 << 5;

/// Serial numbers in a file are below this, so that the numbers of later stores, which are larger,
/// do not overflow.
pub const SERIAL_END: u64 = 1 << 63;

/// A value that was decoded. Its fields are those of the layout.
#[derive(Debug)]
pub struct SavedItem<'a> {
    key: &'a [u8],
    bits: u8,
    heat: u8,
    flags: u32,
    serial: u64,
    given: u64,
    left_millis: u64,
    bytes: &'a [u8],
}

/// Adds a value, the time left to it, and its use count to `to`.
pub fn encode(value: &Value, left: Option<Duration>, heat: u8, to: &mut Vec<u8>) {
    let (item_flags, number) = (value.item_flags(), value.number());
    let bits = [
        (item_flags.stale, STALE),
        (item_flags.won, WON),
        (item_flags.binary, BINARY),
        (value.last_access.is_fetched(), FETCHED),
        (number.given.is_some(), GIVEN),
        (left.is_some(), EXPIRES),
    ];
    let bits = bits.into_iter().filter(|(is_set, _)| *is_set).fold(0, |bits, (_, bit)| bits | bit);
    // A key has at most `STORED_KEY_BYTES_MAX` bytes, a value at most 1 GiB.
    to.extend((value.key().len() as u16).to_le_bytes());
    to.extend([bits, heat]);
    to.extend((value.len() as u32).to_le_bytes());
    to.extend(value.client_flags().to_le_bytes());
    to.extend(number.serial.to_le_bytes());
    to.extend(number.given.unwrap_or(0).to_le_bytes());
    to.extend((left.unwrap_or_default().as_millis() as u64).to_le_bytes());
    to.extend_from_slice(value.key());
    value.pieces().for_each(|piece| to.extend_from_slice(piece));
}

impl<'a> SavedItem<'a> {
    /// Reads the first value of `bytes`, and returns the value and the rest; `None` if the value is
    /// incomplete, its key is longer than a stored key can be, or its serial number is out of
    /// range.
    pub fn decode(mut bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (first, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(*first)
        }
        let key_len = usize::from(u16::from_le_bytes(take(&mut bytes)?));
        let [bits, heat] = take(&mut bytes)?;
        let length = u32::from_le_bytes(take(&mut bytes)?) as usize;
        let flags = u32::from_le_bytes(take(&mut bytes)?);
        let [serial, given, left_millis] =
            [take(&mut bytes)?, take(&mut bytes)?, take(&mut bytes)?].map(u64::from_le_bytes);
        if key_len > STORED_KEY_BYTES_MAX || !(1..SERIAL_END).contains(&serial) {
            return None;
        }
        let (key, rest) = bytes.split_at_checked(key_len)?;
        let (bytes, rest) = rest.split_at_checked(length)?;
        Some((Self { key, bits, heat, flags, serial, given, left_millis, bytes }, rest))
    }

    /// Returns the size of the item, which `-I` bounds.
    pub fn size(&self) -> usize {
        item_bytes(self.key, self.flags, self.bytes.len())
    }

    /// Returns the value to be stored.
    pub fn to_value(&self, store: &Store) -> LoadedValue {
        let has = |bit: u8| self.bits & bit != 0;
        let item_flags = ItemFlags { stale: has(STALE), won: has(WON), binary: has(BINARY) };
        let number = ItemNumber { serial: self.serial, given: has(GIVEN).then_some(self.given) };
        let value = store.loaded_value(self.key, self.flags, item_flags, number, self.bytes);
        if has(FETCHED) {
            value.last_access.record_fetch(store.now_seconds());
        }
        let left = has(EXPIRES).then(|| Duration::from_millis(self.left_millis));
        LoadedValue { value, left, heat: self.heat }
    }
}
