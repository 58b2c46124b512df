//! The bytes of a value, in pieces of one size.
//!
//! A full cache allocates from the memory that it has just freed. If values of every size between a
//! hundred bytes and a megabyte each took one block, the freed blocks would leave gaps that fit no
//! other value, and the process would grow far beyond the charged bytes. So a value is split into
//! pieces of one size, which any other value can use next (see [`PiecePool`]), and a tail.
//!
//! Benefits: resident memory stays near the charged bytes with the standard allocator; a value of a
//! megabyte needs no contiguous megabyte; values are written to the socket without a copy. Costs: a
//! pointer for each piece, which is charged.
//!
//! A change must ensure that all pieces but the tail have one size, that each is charged, and that
//! each returns to the pool once.

use std::iter;
use std::sync::Arc;

use super::malloc::block_bytes;
use super::piece_pool::{PiecePool, PooledBuffer, PIECE_BYTES};

/// Maximum number of pieces for which the table of pieces is allocated in advance: 1 MiB of pieces.
/// A client may announce a longer value and not send it.
const TABLE_TRUST_MAX: usize = 257;

/// Received bytes, in pieces: all pieces are full except the tail.
#[derive(Debug)]
pub struct Data {
    /// The full pieces; most values have none.
    pub full: Option<Arc<FullPieces>>,
    pub tail: PooledBuffer,
}

/// Full pieces, at least one.
#[derive(Debug)]
pub struct FullPieces {
    /// Apart from the others, as most long values have no other: then no table is allocated.
    first: Box<[u8]>,
    rest: Box<[Box<[u8]>]>,
    pool: Arc<PiecePool>,
}

impl Data {
    /// Copies `bytes`.
    pub fn copy(bytes: &[u8], pool: &Arc<PiecePool>) -> Self {
        Self::join([bytes].into_iter(), pool)
    }

    /// Copies all parts, one after the other.
    pub fn join<'a>(parts: impl Iterator<Item = &'a [u8]> + Clone, pool: &Arc<PiecePool>) -> Self {
        let mut builder = DataBuilder::new(parts.clone().map(<[u8]>::len).sum(), pool);
        for part in parts {
            builder.extend(part);
        }
        builder.finish()
    }

    pub fn len(&self) -> usize {
        self.full.as_ref().map_or(0, |full| full.len()) + self.tail.len()
    }

    /// Returns all bytes, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let full = self.full.iter().flat_map(|full| full.pieces());
        full.chain([&self.tail[..]])
    }
}

impl FullPieces {
    /// Copies `bytes`, whose length is a multiple of a piece's. `None` if it is 0.
    #[inline]
    pub fn copy(bytes: &[u8], pool: &Arc<PiecePool>) -> Option<Self> {
        let piece = |bytes: &[u8]| {
            let mut piece = pool.take();
            piece.extend_from_slice(bytes);
            piece.into_boxed_slice()
        };
        let (first, rest) = bytes.split_at_checked(PIECE_BYTES)?;
        let first = piece(first);
        // Most often empty: then not even an iterator is made.
        let rest = if rest.is_empty() { Box::default() } else { rest.chunks_exact(PIECE_BYTES).map(piece).collect() };
        Some(Self { first, rest, pool: Arc::clone(pool) })
    }

    /// `None` if there is no piece.
    fn new(mut pieces: impl Iterator<Item = Box<[u8]>>, pool: &Arc<PiecePool>) -> Option<Self> {
        Some(Self { first: pieces.next()?, rest: pieces.collect(), pool: Arc::clone(pool) })
    }

    pub fn len(&self) -> usize {
        (1 + self.rest.len()) * PIECE_BYTES
    }

    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> + Clone {
        iter::once(&self.first).chain(&self.rest).map(|piece| &piece[..])
    }

    /// Returns the heap memory of the pieces, including this struct and its reference counts.
    pub fn heap_bytes(&self) -> usize {
        Self::heap_bytes_of(self.rest.len())
    }

    /// Returns the [`heap_bytes`](Self::heap_bytes) of one piece and `rest` further ones.
    pub fn heap_bytes_of(rest: usize) -> usize {
        let table = block_bytes(rest * size_of::<Box<[u8]>>());
        let pieces = (1 + rest) * block_bytes(PIECE_BYTES);
        block_bytes(2 * size_of::<usize>() + size_of::<Self>()) + table + pieces
    }
}

impl Drop for FullPieces {
    fn drop(&mut self) {
        self.pool.put_back_one(std::mem::take(&mut self.first));
        if !self.rest.is_empty() {
            self.pool.put_back(std::mem::take(&mut self.rest).into_vec());
        }
    }
}

/// Builds [`Data`] from bytes as they are received.
#[derive(Debug)]
pub struct DataBuilder {
    /// The announced bytes of the value.
    length: usize,
    full: Vec<Box<[u8]>>,
    /// The piece in progress, or the tail.
    piece: Vec<u8>,
    pool: Arc<PiecePool>,
}

impl DataBuilder {
    /// Creates a builder for `length` bytes; allocates no memory yet.
    pub fn new(length: usize, pool: &Arc<PiecePool>) -> Self {
        Self { length, full: Vec::new(), piece: Vec::new(), pool: Arc::clone(pool) }
    }

    /// Copies bytes from the front of `bytes` until the value is complete, and returns their
    /// number.
    pub fn extend(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && !self.is_complete() {
            let piece_bytes = PIECE_BYTES.min(self.length - self.full.len() * PIECE_BYTES);
            if self.piece.is_empty() {
                self.piece = self.pool.take_for(piece_bytes);
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

    /// Returns whether all bytes were received.
    pub fn is_complete(&self) -> bool {
        self.missing() == 0
    }

    /// Returns the number of received bytes.
    pub fn len(&self) -> usize {
        self.full.len() * PIECE_BYTES + self.piece.len()
    }

    /// Returns the number of bytes still to be received.
    pub fn missing(&self) -> usize {
        self.length - self.len()
    }

    /// Returns the value's bytes.
    pub fn finish(mut self) -> Data {
        let full = FullPieces::new(std::mem::take(&mut self.full).into_iter(), &self.pool);
        Data { full: full.map(Arc::new), tail: PooledBuffer::new(std::mem::take(&mut self.piece), &self.pool) }
    }
}

/// Returns the pieces of an abandoned value to the pool.
impl Drop for DataBuilder {
    fn drop(&mut self) {
        // A tail of this capacity was taken from the pool as well.
        if self.piece.capacity() == PIECE_BYTES {
            self.piece.resize(PIECE_BYTES, 0);
            self.full.push(std::mem::take(&mut self.piece).into_boxed_slice());
        }
        if !self.full.is_empty() {
            self.pool.put_back(std::mem::take(&mut self.full));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(data: &Data) -> Vec<u8> {
        data.pieces().flatten().copied().collect()
    }

    #[test]
    fn pieces_add_up_to_the_bytes() {
        let pool = Arc::new(PiecePool::new(1 << 20));
        let pattern: Vec<u8> = (0..3 * PIECE_BYTES + 1).map(|n| (n % 253) as u8).collect();
        // Twice: in the second round, the pieces come from the pool and contain old bytes.
        for length in
            [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 1].repeat(2)
        {
            for arriving in [1, 1000, usize::MAX] {
                let mut builder = DataBuilder::new(length, &pool);
                for chunk in pattern.chunks(arriving.min(pattern.len())) {
                    builder.extend(chunk);
                }
                assert!(builder.is_complete());
                let data = builder.finish();
                assert_eq!(data.len(), length);
                assert!(bytes(&data) == pattern[..length], "{length} bytes");
                let joined = Data::join(data.pieces().chain([&b"tail"[..]]), &pool);
                assert!(bytes(&joined) == [&pattern[..length], b"tail"].concat());
            }
        }
    }

    #[test]
    fn an_abandoned_value_returns_its_pieces() {
        let pool = Arc::new(PiecePool::new(1 << 20));
        for (length, come, pieces) in [
            (10 * PIECE_BYTES, 0, 0),
            (10 * PIECE_BYTES, 1, 1),
            (10 * PIECE_BYTES, 3 * PIECE_BYTES, 3),
            (10 * PIECE_BYTES, 3 * PIECE_BYTES + 1, 4),
            // The tail is not a full piece, but fills most of one.
            (3 * PIECE_BYTES + 2, 3 * PIECE_BYTES + 1, 4),
        ] {
            let mut builder = DataBuilder::new(length, &pool);
            builder.extend(&vec![7; come]);
            assert_eq!((builder.len(), builder.missing()), (come, length - come));
            drop(builder);
            assert_eq!((pool.len(), pool.outstanding_bytes()), (pieces, 0));
        }
        let mut builder = DataBuilder::new(3 * PIECE_BYTES, &pool);
        builder.extend(&[7; 3 * PIECE_BYTES]);
        let data = builder.finish();
        assert_eq!(pool.len(), 1, "a complete value keeps its pieces");
        drop(data);
        assert_eq!(pool.len(), 4);
    }
}
