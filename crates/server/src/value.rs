//! A stored value: its key, bytes and metadata, in one block unless it is long.
//!
//! ```text
//!   entry:       hash | pointer to the block, length, key's length, item flags | last access
//!   heap block:  serial number | CAS number, if a client has given it | client flags, if not 0 | key
//!                | bytes, or those after the full pieces
//! ```
//!
//! The block of a short value belongs to its entry alone, and cloning copies the block: a reference
//! count would cost more memory, and a cache line that all readers write. Clones of a long value
//! share its bytes.
//!
//! Beside the hash, an entry has 16 bytes for its value. Lengths are stored there and not in the
//! block, as the size of a block is rounded up to 16 bytes.
//!
//! A change must keep the order of the parts in the block: where a part begins follows from the
//! lengths of the parts before it (`item_header.rs`).

pub mod data;
pub mod item_flags;
mod item_header;
pub mod item_number;
mod last_access;
mod malloc;
pub mod piece_pool;

use std::sync::Arc;

use lowwater_base::compact_bytes::{CompactBytes, Kept};

use data::{Data, FullPieces};
use item_flags::ItemFlags;
use item_header::{ItemHeader, FRONT_PARTS_BYTES_MAX};
use item_number::ItemNumber;
use last_access::LastAccess;
use malloc::block_bytes;
use piece_pool::{PiecePool, PooledBuffer, PIECE_BYTES};

/// A value is copied if its block (numbers, client flags, key, bytes) has up to this length, which
/// is cheaper than sharing it.
pub const SHORT_BYTES_MAX: usize = 2048;

/// A stored value.
#[derive(Clone, Debug)]
pub struct Value {
    /// The value's block, and 16 bits beside its pointer (the note): an [`ItemHeader`].
    bytes: CompactBytes<LongValue>,
    pub last_access: LastAccess,
}

/// The block of a long value, which its clones share.
#[derive(Debug)]
struct LongValue {
    /// Numbers, client flags and key, and the bytes after the full pieces.
    front: PooledBuffer,
    /// The full pieces, of [`PIECE_BYTES`] each; `None` if the value is shorter than one.
    full: Option<Arc<FullPieces>>,
}

impl Value {
    /// Creates a value of `data` under `key`, which is at most as long as a key with a tenant's
    /// name in front.
    pub fn new(key: &[u8], flags: u32, item_flags: ItemFlags, number: impl Into<ItemNumber>, data: &Data) -> Self {
        let number = number.into();
        let header = ItemHeader::new(key, flags, item_flags, number);
        let (serial, given) = (number.serial.to_le_bytes(), number.given.unwrap_or_default().to_le_bytes());
        let flags = flags.to_le_bytes();
        let (serial, given) = (&serial[..header.serial_len()], &given[..header.given_len()]);
        let front = [serial, given, &flags[..header.client_flags_len()], key, &data.tail];
        let is_short = data.full.is_none() && front.iter().map(|part| part.len()).sum::<usize>() <= SHORT_BYTES_MAX;
        let bytes = match is_short {
            true => short(&front, header),
            false => long(PooledBuffer::concat(&front, data.tail.pool()), data.full.clone(), header),
        };
        Self { bytes, last_access: LastAccess::default() }
    }

    /// Creates a value of `bytes` under `key`, as [`new`](Self::new) does.
    pub fn of_bytes(
        key: &[u8],
        flags: u32,
        item_flags: ItemFlags,
        serial: u64,
        bytes: &[u8],
        pool: &Arc<PiecePool>,
    ) -> Self {
        let header = ItemHeader::new(key, flags, item_flags, serial.into());
        let (number, client_flags) = (serial.to_le_bytes(), flags.to_le_bytes());
        let client_flags = &client_flags[..header.client_flags_len()];
        let length = header.serial_len() + client_flags.len() + key.len() + bytes.len();
        let bytes = if length > SHORT_BYTES_MAX {
            long_of_bytes(header, &number, client_flags, key, bytes, pool)
        } else {
            // All bytes of `number`, so that the length is constant: the excess is cut off.
            let mut block = Vec::with_capacity(length.max(number.len()));
            block.extend_from_slice(&number);
            block.truncate(header.serial_len());
            if !client_flags.is_empty() {
                block.extend_from_slice(client_flags);
            }
            block.extend_from_slice(key);
            block.extend_from_slice(bytes);
            own(block.into_boxed_slice(), header)
        };
        Self { bytes, last_access: LastAccess::default() }
    }

    pub fn key(&self) -> &[u8] {
        let start = self.key_at();
        &self.whole_front()[start..start + self.header().key_len()]
    }

    pub fn client_flags(&self) -> u32 {
        match self.header().client_flags_len() {
            0 => 0,
            len => number(&self.whole_front()[self.flags_at()..], len) as u32,
        }
    }

    pub fn item_flags(&self) -> ItemFlags {
        self.header().item_flags()
    }

    /// Returns the CAS number, which `gets` shows and `cas` compares. Unless a client has given it,
    /// it changes with every change of the bytes, and is never assigned twice.
    pub fn unique(&self) -> u64 {
        self.number().unique()
    }

    /// Returns the number of the store that made the value.
    pub fn serial(&self) -> u64 {
        number(self.whole_front(), self.header().serial_len())
    }

    /// Returns both numbers.
    pub fn number(&self) -> ItemNumber {
        let (serial_len, given_len) = (self.header().serial_len(), self.header().given_len());
        let given = (given_len > 0).then(|| number(&self.whole_front()[serial_len..], given_len));
        ItemNumber { serial: self.serial(), given }
    }

    /// Returns this value with other item flags.
    pub fn with_item_flags(mut self, item_flags: ItemFlags) -> Self {
        self.bytes.set_note(self.header().with_item_flags(item_flags).0);
        self
    }

    /// Returns this value, marked as won: one client has the task to store it again.
    pub fn with_won(&self) -> Self {
        self.clone().with_item_flags(ItemFlags { won: true, ..self.item_flags() })
    }

    /// Returns this value with other numbers.
    pub fn with_number(mut self, number: impl Into<ItemNumber>) -> Self {
        let number = number.into();
        let header = self.header().with_number(number);
        let (serial, given) = (number.serial.to_le_bytes(), number.given.unwrap_or_default().to_le_bytes());
        let rest = &self.whole_front()[self.flags_at()..];
        let front = [&serial[..header.serial_len()], &given[..header.given_len()], rest];
        self.bytes = match self.bytes.get() {
            Kept::Own(_) => short(&front, header),
            // The full pieces stay shared.
            Kept::Shared(there) => long(PooledBuffer::concat(&front, there.front.pool()), there.full.clone(), header),
        };
        self
    }

    pub fn len(&self) -> usize {
        self.full().map_or(0, FullPieces::len) + self.tail().len()
    }

    /// Returns all bytes; `None` for a long value, whose bytes may be in several pieces.
    pub fn only_piece(&self) -> Option<&[u8]> {
        match self.bytes.get() {
            Kept::Own(_) => Some(self.tail()),
            Kept::Shared(_) => None,
        }
    }

    /// Returns all bytes, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> + Clone {
        // Not `pieces_from(0)`: with one caller only, that iterator is inlined in a `get`.
        self.full().into_iter().flat_map(FullPieces::pieces).chain([self.tail()])
    }

    /// Returns the bytes from `offset` on, which must be at most [`len`](Self::len).
    pub fn pieces_from(&self, offset: usize) -> impl Iterator<Item = &[u8]> + Clone {
        let full = self.full();
        let first = (offset / PIECE_BYTES).min(full.map_or(0, FullPieces::len) / PIECE_BYTES);
        let mut skip = offset - first * PIECE_BYTES;
        let pieces = full.into_iter().flat_map(FullPieces::pieces).skip(first);
        pieces.chain([self.tail()]).map(move |piece| &piece[std::mem::take(&mut skip)..])
    }

    /// Returns the heap memory of the value, in addition to its entry.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match self.bytes.get() {
            Kept::Own(front) => block_bytes(front.len()),
            Kept::Shared(long) => long.heap_bytes(),
        }
    }

    fn whole_front(&self) -> &[u8] {
        match self.bytes.get() {
            Kept::Own(front) => front,
            Kept::Shared(long) => &long.front,
        }
    }

    fn full(&self) -> Option<&FullPieces> {
        match self.bytes.get() {
            Kept::Own(_) => None,
            Kept::Shared(long) => long.full.as_deref(),
        }
    }

    fn tail(&self) -> &[u8] {
        &self.whole_front()[self.key_at() + self.header().key_len()..]
    }

    fn flags_at(&self) -> usize {
        self.header().serial_len() + self.header().given_len()
    }

    fn key_at(&self) -> usize {
        self.flags_at() + self.header().client_flags_len()
    }

    fn header(&self) -> ItemHeader {
        ItemHeader(self.bytes.note())
    }
}

impl LongValue {
    /// Returns the heap memory of the value, its `Arc` included.
    #[inline(never)]
    fn heap_bytes(&self) -> usize {
        Self::own_bytes() + self.front.heap_bytes() + self.full.as_ref().map_or(0, |full| full.heap_bytes())
    }

    /// Returns the heap memory of the `Arc` of a value.
    fn own_bytes() -> usize {
        block_bytes(2 * size_of::<usize>() + size_of::<Self>())
    }
}

/// Returns an upper bound of [`Value::heap_bytes`] of a value of up to `length` bytes: at most a
/// piece and a table entry above the maximum.
pub fn heap_bytes_max(length: usize) -> usize {
    // The tail is counted as one more piece, although it is in the front.
    let pieces = FullPieces::heap_bytes_of(length / PIECE_BYTES);
    LongValue::own_bytes() + block_bytes(FRONT_PARTS_BYTES_MAX) + pieces
}

/// Returns the number in the first `len` bytes (at most 8), in little-endian order.
fn number(bytes: &[u8], len: usize) -> u64 {
    match bytes.first_chunk() {
        // Mostly at least 8 bytes are there: one load and a mask.
        Some(eight) => u64::from_le_bytes(*eight) & !u64::MAX.checked_shl(8 * len as u32).unwrap_or(0),
        None => bytes[..len].iter().rfold(0, |number, &byte| number << 8 | u64::from(byte)),
    }
}

/// Copies all parts into a block of its own. The sum is at most `SHORT_BYTES_MAX`, and up to 16
/// more if the numbers get longer.
fn short(parts: &[&[u8]], header: ItemHeader) -> CompactBytes<LongValue> {
    own(parts.concat().into_boxed_slice(), header)
}

fn own(block: Box<[u8]>, header: ItemHeader) -> CompactBytes<LongValue> {
    const _: () = assert!(SHORT_BYTES_MAX + 2 * size_of::<u64>() <= CompactBytes::<LongValue>::BYTES_MAX);
    CompactBytes::own(block, header.0).expect("the length is at most `BYTES_MAX`, as asserted above")
}

/// Copies a value with these parts, whose block is longer than `SHORT_BYTES_MAX`.
#[inline(never)] // So that a short value saves no registers for it.
fn long_of_bytes(
    header: ItemHeader,
    number: &[u8; 8],
    client_flags: &[u8],
    key: &[u8],
    bytes: &[u8],
    pool: &Arc<PiecePool>,
) -> CompactBytes<LongValue> {
    let (full, tail) = bytes.split_at(bytes.len() - bytes.len() % PIECE_BYTES);
    let length = header.serial_len() + client_flags.len() + key.len() + tail.len();
    // As in `of_bytes`: all bytes of `number`, whose excess is cut off.
    let mut front = pool.take_for(length.max(number.len()));
    front.extend_from_slice(number);
    front.truncate(header.serial_len());
    if !client_flags.is_empty() {
        front.extend_from_slice(client_flags);
    }
    front.extend_from_slice(key);
    front.extend_from_slice(tail);
    long(PooledBuffer::new(front, pool), FullPieces::copy(full, pool).map(Arc::new), header)
}

fn long(front: PooledBuffer, full: Option<Arc<FullPieces>>, header: ItemHeader) -> CompactBytes<LongValue> {
    CompactBytes::share(Arc::new(LongValue { front, full }), header.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::item::STORED_KEY_BYTES_MAX;
    use crate::value::piece_pool::PiecePool;

    #[test]
    fn a_value_keeps_its_parts() {
        let pool = Arc::new(PiecePool::new(1 << 20));
        let pattern: Vec<u8> = (0..3 * PIECE_BYTES + 1).map(|n| (n % 253) as u8).collect();
        let item_flags = |n: usize| ItemFlags { stale: n & 1 != 0, won: n & 2 != 0, binary: n & 4 != 0 };
        let mut n = 0;
        for length in [0, 1, 100, 2048, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 1] {
            for key in [&b""[..], b"key", &[0xff; 500]] {
                for flags in [0, 1, u32::MAX] {
                    n += 1;
                    let data = Data::copy(&pattern[..length], &pool);
                    let value = Value::new(key, flags, item_flags(n), u64::MAX - n as u64, &data);
                    let of_bytes =
                        Value::of_bytes(key, flags, item_flags(n), u64::MAX - n as u64, &pattern[..length], &pool);
                    assert_eq!(of_bytes.heap_bytes(), value.heap_bytes());
                    assert!(of_bytes.only_piece().is_none_or(|only| only == &pattern[..length]));
                    let check = |value: &Value, unique: u64, item_flags: ItemFlags| {
                        assert_eq!((value.key(), value.client_flags(), value.unique()), (key, flags, unique));
                        assert_eq!((value.item_flags(), value.len()), (item_flags, length));
                        for offset in [0, 1, PIECE_BYTES, length].into_iter().filter(|&offset| offset <= length) {
                            let bytes: Vec<u8> = value.pieces_from(offset).flatten().copied().collect();
                            assert!(bytes == pattern[offset..length], "{length} bytes from {offset}");
                        }
                    };
                    check(&value, u64::MAX - n as u64, item_flags(n));
                    check(&of_bytes, u64::MAX - n as u64, item_flags(n));
                    let renumbered = value.clone().with_number(7);
                    check(&renumbered, 7, item_flags(n));
                    let given = renumbered.clone().with_number(ItemNumber { serial: 8, given: Some(u64::MAX) });
                    check(&given, u64::MAX, item_flags(n));
                    assert_eq!((given.serial(), given.number().given), (8, Some(u64::MAX)));
                    check(&given.with_won(), u64::MAX, ItemFlags { won: true, ..item_flags(n) });
                    check(&given.with_number(9), 9, item_flags(n));
                    let number = ItemNumber { serial: 1 << 60, given: Some(0) };
                    let given = Value::new(key, flags, item_flags(n), number, &data);
                    check(&given, 0, item_flags(n));
                    assert_eq!(given.serial(), 1 << 60);
                    check(&renumbered.with_number(1 << 40), 1 << 40, item_flags(n));
                    check(&value.clone().with_item_flags(item_flags(n + 1)), u64::MAX - n as u64, item_flags(n + 1));
                    check(&value.with_won(), u64::MAX - n as u64, ItemFlags { won: true, ..item_flags(n) });
                    check(&value, u64::MAX - n as u64, item_flags(n));
                }
            }
        }
    }

    #[test]
    fn heap_bytes_count_every_block() {
        let pool = Arc::new(PiecePool::new(0));
        let heap_bytes = |length: usize, flags: u32| {
            Value::new(b"0123456789", flags, ItemFlags::default(), 1, &Data::copy(&vec![0; length], &pool)).heap_bytes()
        };
        assert_eq!(heap_bytes(2, 0), 32, "header of 8, CAS number, key, value: 24, rounded up");
        assert_eq!((heap_bytes(10, 0), heap_bytes(11, 0)), (32, 48));
        assert_eq!((heap_bytes(6, 9), heap_bytes(7, 9)), (32, 48), "client flags take 4 bytes unless they are 0");
        assert_eq!((heap_bytes(100, 0), heap_bytes(106, 0), heap_bytes(107, 0)), (128, 128, 144));
        assert_eq!(heap_bytes(2040, 0), 2064 + 64, "plus the shared `LongValue`");
        assert_eq!(heap_bytes(4000, 0), 4096 + 64, "a value that fills most of a piece takes a piece");
        assert_eq!(heap_bytes(4089, 0), 4096 + 64 + 32 + 64, "a piece, `FullPieces`, the front, `LongValue`");
        assert_eq!(heap_bytes(3 * 4088 + 1, 0), 3 * 4096 + 48 + 64 + 32 + 64, "and a table of two further pieces");
        assert_eq!((size_of::<Value>(), align_of::<Value>()), (16, 4));
    }

    #[test]
    fn the_bound_of_heap_bytes_is_close_to_the_maximum() {
        let pool = Arc::new(PiecePool::new(0));
        let number = ItemNumber { serial: u64::MAX, given: Some(u64::MAX) };
        let mut most = 0;
        for length in 0..3 * PIECE_BYTES + 100 {
            let data = Data::copy(&vec![0; length], &pool);
            for key in [&b"k"[..], &[0xff; STORED_KEY_BYTES_MAX]] {
                let value = Value::new(key, u32::MAX, ItemFlags::default(), number, &data);
                most = most.max(value.heap_bytes());
            }
            let bound = heap_bytes_max(length);
            assert!(most <= bound, "{most} bytes of {length}, and at most {bound}");
            assert!(length <= 3 * PIECE_BYTES || bound - most <= 4096 + 32, "{bound} for {length} bytes, {most}");
        }
    }
}
