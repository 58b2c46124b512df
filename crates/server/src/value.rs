//! A stored value: its key, bytes and metadata, in one block unless it is long.
//!
//! ```text
//!   entry:       hash | pointer to the block, length, key's length, item flags | last access
//!   heap block:  CAS number | client flags, if not 0 | key | bytes, or those after the full pieces
//! ```
//!
//! The block of a short value belongs to its entry alone, and cloning copies the block: a reference
//! count would cost more memory, and a cache line that all readers write. Clones of a long value
//! share its bytes.
//!
//! Beside the hash, an entry has 16 bytes for its value. Lengths are stored there and not in the
//! block, as the size of a block is rounded up to 16 bytes.

pub mod data;
pub mod item_flags;
mod item_header;
mod last_access;
mod malloc;
pub mod piece_pool;

use std::sync::Arc;

use lowwater_base::compact_bytes::{CompactBytes, Kept};

use data::{Data, FullPieces};
use item_flags::ItemFlags;
use item_header::ItemHeader;
use last_access::LastAccess;
use malloc::block_bytes;
use piece_pool::{PiecePool, PooledBuffer, PIECE_BYTES};

/// Values of up to this length, with their key, are copied, which is cheaper than sharing them.
pub const SHORT_BYTES_MAX: usize = 2048;

/// A stored value.
#[derive(Clone, Debug)]
pub struct Value {
    /// The value's block; its note is an [`ItemHeader`].
    bytes: CompactBytes<LongValue>,
    pub last_access: LastAccess,
}

#[derive(Debug)]
struct LongValue {
    front: PooledBuffer,
    full: Option<Arc<FullPieces>>,
}

impl Value {
    /// Creates a value of `data` under `key`, which is at most as long as a key with a tenant's
    /// name in front.
    pub fn new(key: &[u8], flags: u32, item_flags: ItemFlags, unique: u64, data: &Data) -> Self {
        let header = ItemHeader::new(key, flags, item_flags, unique);
        let (unique, flags) = (unique.to_le_bytes(), flags.to_le_bytes());
        let front = [&unique[..header.unique_len()], &flags[..header.client_flags_len()], key, &data.tail];
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
        unique: u64,
        bytes: &[u8],
        pool: &Arc<PiecePool>,
    ) -> Self {
        let header = ItemHeader::new(key, flags, item_flags, unique);
        let (number, client_flags) = (unique.to_le_bytes(), flags.to_le_bytes());
        let front = [&number[..header.unique_len()], &client_flags[..header.client_flags_len()], key, bytes];
        if front.iter().map(|part| part.len()).sum::<usize>() > SHORT_BYTES_MAX {
            return Self::new(key, flags, item_flags, unique, &Data::copy(bytes, pool));
        }
        Self { bytes: short(&front, header), last_access: LastAccess::default() }
    }

    pub fn key(&self) -> &[u8] {
        let start = self.key_at();
        &self.whole_front()[start..start + self.header().key_len()]
    }

    pub fn client_flags(&self) -> u32 {
        number(&self.whole_front()[self.header().unique_len()..], self.header().client_flags_len()) as u32
    }

    pub fn item_flags(&self) -> ItemFlags {
        self.header().item_flags()
    }

    /// Returns the CAS number, which `gets` shows and `cas` compares: it changes with every change
    /// of the bytes, and is never assigned twice.
    pub fn unique(&self) -> u64 {
        number(self.whole_front(), self.header().unique_len())
    }

    /// Returns this value with other item flags.
    pub fn with_item_flags(mut self, item_flags: ItemFlags) -> Self {
        self.bytes.set_note(self.header().with_item_flags(item_flags).0);
        self
    }

    /// Returns this value, marked as won: a client was asked to store it again.
    pub fn with_won(&self) -> Self {
        self.clone().with_item_flags(ItemFlags { won: true, ..self.item_flags() })
    }

    /// Returns this value with another CAS number.
    pub fn with_unique(mut self, unique: u64) -> Self {
        let header = self.header().with_unique(unique);
        let front = [&unique.to_le_bytes()[..header.unique_len()], &self.whole_front()[self.header().unique_len()..]];
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

    /// Returns the first piece: the whole value, unless it is longer than a piece.
    pub fn first(&self) -> &[u8] {
        self.pieces().next().unwrap_or_default()
    }

    /// Returns all bytes, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.pieces_from(0)
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
    pub fn heap_bytes(&self) -> usize {
        match self.bytes.get() {
            Kept::Own(front) => block_bytes(front.len()),
            Kept::Shared(long) => {
                let own = block_bytes(2 * size_of::<usize>() + size_of::<LongValue>());
                own + long.front.heap_bytes() + long.full.as_ref().map_or(0, |full| full.heap_bytes())
            }
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

    fn key_at(&self) -> usize {
        self.header().unique_len() + self.header().client_flags_len()
    }

    fn header(&self) -> ItemHeader {
        ItemHeader(self.bytes.note())
    }
}

/// Returns the number in the first `len` bytes (at most 8), in little-endian order.
fn number(bytes: &[u8], len: usize) -> u64 {
    match bytes.first_chunk() {
        // Mostly at least 8 bytes are there: one load and a mask.
        Some(eight) => u64::from_le_bytes(*eight) & !u64::MAX.checked_shl(8 * len as u32).unwrap_or(0),
        None => bytes[..len].iter().rfold(0, |number, &byte| number << 8 | u64::from(byte)),
    }
}

/// Copies all parts into a block of its own. The sum is at most `SHORT_BYTES_MAX`, and up to 8 more
/// if the CAS number gets longer.
fn short(parts: &[&[u8]], header: ItemHeader) -> CompactBytes<LongValue> {
    const _: () = assert!(SHORT_BYTES_MAX + size_of::<u64>() <= CompactBytes::<LongValue>::BYTES_MAX);
    CompactBytes::own(parts.concat().into_boxed_slice(), header.0)
        .expect("the length is at most `BYTES_MAX`, as asserted above")
}

fn long(front: PooledBuffer, full: Option<Arc<FullPieces>>, header: ItemHeader) -> CompactBytes<LongValue> {
    CompactBytes::share(Arc::new(LongValue { front, full }), header.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::piece_pool::PiecePool;

    #[test]
    fn what_is_put_in_comes_out() {
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
                    let check = |value: &Value, unique: u64, item_flags: ItemFlags| {
                        assert_eq!((value.key(), value.client_flags(), value.unique()), (key, flags, unique));
                        assert_eq!((value.item_flags(), value.len()), (item_flags, length));
                        assert!(value.first() == &pattern[..length.min(PIECE_BYTES)]);
                        for offset in [0, 1, PIECE_BYTES, length].into_iter().filter(|&offset| offset <= length) {
                            let bytes: Vec<u8> = value.pieces_from(offset).flatten().copied().collect();
                            assert!(bytes == pattern[offset..length], "{length} bytes from {offset}");
                        }
                    };
                    check(&value, u64::MAX - n as u64, item_flags(n));
                    let renumbered = value.clone().with_unique(7);
                    check(&renumbered, 7, item_flags(n));
                    check(&renumbered.with_unique(1 << 40), 1 << 40, item_flags(n));
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
        assert_eq!(
            heap_bytes(4089, 0),
            4096 + 32 + 48 + 32 + 64,
            "a piece, its table, `FullPieces`, the front, `LongValue`"
        );
        assert_eq!((size_of::<Value>(), align_of::<Value>()), (16, 4));
    }
}
