//! A stored value, and the pieces it is kept in.
//!
//! A cache that is always full lives from what it just freed. Values of every size between a hundred bytes and a megabyte, each
//! in one block, leave holes that fit nobody, and the process grows far beyond what is charged. So a value is cut into pieces
//! of one size, which any other value can use next (see [`Stash`]), and a tail.
//!
//! Benefits: resident memory stays near the charged bytes with the plain allocator; a value of a megabyte needs no megabyte
//! in one place; it is written to the socket from where it lies. Costs: a pointer for each piece, which is charged.

use std::sync::Arc;

use crate::stash::Stash;

/// One piece: with the 8 bytes that glibc's allocator puts before a block, 4 KiB.
pub const PIECE_BYTES: usize = 4096 - 8;

/// Pieces for which the table is laid out at once, on the word of the announced length (1 MiB of them).
const TABLE_TRUST_MAX: usize = 257;

/// What a key leads to. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct Value {
    pub flags: u32,
    /// Changes with every change of the bytes, never twice the same: what `gets` shows and `cas` compares.
    pub unique: u64,
    pub data: Arc<Data>,
}

/// Bytes in pieces: all full but the tail.
#[derive(Debug)]
pub struct Data {
    full: Box<[Box<[u8]>]>,
    tail: Box<[u8]>,
    stash: Arc<Stash>,
}

impl Data {
    /// A copy of `bytes`.
    pub fn copy(bytes: &[u8], stash: &Arc<Stash>) -> Self {
        let mut builder = Builder::new(bytes.len(), stash);
        builder.extend(bytes);
        builder.finish()
    }

    /// Both parts, one after the other.
    pub fn concat(parts: [&Data; 2]) -> Self {
        let mut builder = Builder::new(parts.iter().map(|part| part.len()).sum(), &parts[0].stash);
        for piece in parts.iter().flat_map(|part| part.pieces_from(0)) {
            builder.extend(piece);
        }
        builder.finish()
    }

    pub fn len(&self) -> usize {
        self.full.len() * PIECE_BYTES + self.tail.len()
    }

    /// The first piece: the whole value, if it is not longer than a piece.
    pub fn front(&self) -> &[u8] {
        self.full.first().unwrap_or(&self.tail)
    }

    /// The bytes from `offset` on; at most [`Data::len`].
    pub fn pieces_from(&self, offset: usize) -> impl Iterator<Item = &[u8]> {
        let first = (offset / PIECE_BYTES).min(self.full.len());
        let mut skip = offset - first * PIECE_BYTES;
        self.full[first..].iter().chain([&self.tail]).map(move |piece| &piece[std::mem::take(&mut skip)..])
    }

    /// What it takes of the allocator, this struct and its two counters included.
    pub fn heap_bytes(&self) -> usize {
        let own = block_bytes(2 * size_of::<usize>() + size_of::<Self>());
        let table = block_bytes(size_of_val(&*self.full));
        own + table + self.full.len() * block_bytes(PIECE_BYTES) + block_bytes(self.tail.len())
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if !self.full.is_empty() {
            self.stash.give(std::mem::take(&mut self.full).into_vec());
        }
    }
}

/// What a block of `bytes` takes in glibc's allocator: 8 bytes before it, the sum rounded up to 16, 32 at least.
pub fn block_bytes(bytes: usize) -> usize {
    if bytes == 0 {
        0
    } else {
        (bytes + 8).next_multiple_of(16).max(32)
    }
}

/// A value that is still arriving.
#[derive(Debug)]
pub struct Builder {
    length: usize,
    full: Vec<Box<[u8]>>,
    piece: Vec<u8>,
    stash: Arc<Stash>,
}

impl Builder {
    /// For `length` bytes; takes no memory yet.
    pub fn new(length: usize, stash: &Arc<Stash>) -> Self {
        Self { length, full: Vec::new(), piece: Vec::new(), stash: Arc::clone(stash) }
    }

    /// Takes from the front of `bytes` what is still missing, and says how much that was.
    pub fn extend(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && !self.is_complete() {
            let piece_bytes = PIECE_BYTES.min(self.length - self.full.len() * PIECE_BYTES);
            if self.piece.is_empty() {
                self.piece =
                    if piece_bytes == PIECE_BYTES { self.stash.take() } else { Vec::with_capacity(piece_bytes) };
            }
            let more = (bytes.len() - taken).min(piece_bytes - self.piece.len());
            self.piece.extend_from_slice(&bytes[taken..taken + more]);
            taken += more;
            if self.piece.len() == PIECE_BYTES {
                if self.full.is_empty() {
                    self.full.reserve_exact((self.length / PIECE_BYTES).min(TABLE_TRUST_MAX));
                }
                self.full.push(std::mem::take(&mut self.piece).into_boxed_slice());
            }
        }
        taken
    }

    /// Whether all bytes have come.
    pub fn is_complete(&self) -> bool {
        self.full.len() * PIECE_BYTES + self.piece.len() == self.length
    }

    /// The value.
    pub fn finish(self) -> Data {
        Data { full: self.full.into_boxed_slice(), tail: self.piece.into_boxed_slice(), stash: self.stash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(data: &Data, offset: usize) -> Vec<u8> {
        data.pieces_from(offset).flatten().copied().collect()
    }

    #[test]
    fn pieces_add_up_to_the_bytes() {
        let stash = Arc::new(Stash::new(1 << 20));
        let pattern: Vec<u8> = (0..3 * PIECE_BYTES + 1).map(|n| (n % 253) as u8).collect();
        // Twice: the second time round the pieces come from the stash, with old bytes in them.
        for length in
            [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 1].repeat(2)
        {
            for arriving in [1, 1000, usize::MAX] {
                let mut builder = Builder::new(length, &stash);
                for chunk in pattern.chunks(arriving.min(pattern.len())) {
                    builder.extend(chunk);
                }
                assert!(builder.is_complete());
                let data = builder.finish();
                assert_eq!(data.len(), length);
                for offset in [0, 1, PIECE_BYTES, length].into_iter().filter(|&offset| offset <= length) {
                    assert!(bytes(&data, offset) == pattern[offset..length], "{length} bytes from {offset}");
                }
                let joined = Data::concat([&data, &Data::copy(b"tail", &stash)]);
                assert!(bytes(&joined, 0) == [&pattern[..length], b"tail"].concat());
            }
        }
    }

    #[test]
    fn heap_bytes_count_every_block() {
        let stash = Arc::new(Stash::new(0));
        let own = Data::copy(b"", &stash).heap_bytes();
        assert_eq!(own, 64, "two counts and five words behind 8 bytes; nothing for empty parts");
        assert_eq!(Data::copy(b"x", &stash).heap_bytes() - own, 32, "the smallest block");
        assert_eq!(Data::copy(&[0; 4096], &stash).heap_bytes() - own, 4096 + 32 + 32, "a piece, its table, the tail");
    }
}
