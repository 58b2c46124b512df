//! A pool of free pieces (of a value, see [`data`](super::data)), which dropped values leave to
//! later values.
//!
//! glibc's allocator gives each thread a heap of its own, and freed memory returns to the heap it
//! came from, whichever thread frees it. A server whose memory is always full is the worst case:
//! each heap grows to the maximum that its thread ever held, and the sum of these maxima is well
//! above the use at any time (measured with two threads: 92 to 110 MB resident for 64 MiB charged).
//! With a pool shared by all threads, the pieces belong to no thread's heap (75 MB).
//!
//! The size of the pool is bounded, so that memory which is no longer needed for pieces returns to
//! the allocator; the pool is not charged.
//!
//! The pool counts the pieces in use by the cache, by values that are being received, and by the
//! output of clients that do not read, even if the cache has evicted their values. The store reads
//! this count: it refuses long values while too many pieces are in use (`store/update.rs`).
//!
//! A change must ensure that:
//!
//! - each piece that was taken is returned once, or the count is wrong from then on;
//! - a buffer is a piece exactly if its capacity is `PIECE_BYTES`: the capacity alone decides
//!   whether the buffer returns to the pool;
//! - each box in the pool has exactly `PIECE_BYTES` bytes, which become the capacity of a later
//!   buffer.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use super::malloc::block_bytes;

/// Bytes in a piece: with the 8 bytes of glibc's block header, 4 KiB.
pub const PIECE_BYTES: usize = 4096 - 8;

/// The pool of free pieces may hold the budget divided by this, in addition to the budget: a small
/// part, as the pool is not charged.
pub const POOL_SHARE: u64 = 16;

/// Buffers of this length up to a piece take a whole piece: at most an eighth is wasted.
const POOLED_BYTES_MIN: usize = PIECE_BYTES - PIECE_BYTES / 8;

/// A pool of free pieces, and the count of those in use.
#[derive(Debug)]
pub struct PiecePool {
    free: Mutex<FreePieces>,
    /// Number of pieces that were taken and not returned, including those of evicted values that
    /// the output of a client still holds.
    outstanding: AtomicUsize,
}

#[derive(Debug)]
struct FreePieces {
    pieces: Vec<Box<[u8]>>,
    /// The most pieces that are kept.
    max: usize,
}

impl FreePieces {
    /// Returns the number of pieces for which there is room.
    #[inline]
    fn room(&self) -> usize {
        self.max.saturating_sub(self.pieces.len())
    }
}

impl PiecePool {
    /// Creates an empty pool, which keeps at most `bytes_max` bytes of free pieces.
    pub fn new(bytes_max: u64) -> Self {
        let free = FreePieces { pieces: Vec::new(), max: bytes_max as usize / PIECE_BYTES };
        Self { free: Mutex::new(free), outstanding: AtomicUsize::new(0) }
    }

    /// Changes the bytes of free pieces that the pool keeps at most, and frees those above. O(free
    /// pieces).
    pub fn set_bytes_max(&self, bytes_max: u64) {
        let mut free = self.free.lock();
        free.max = bytes_max as usize / PIECE_BYTES;
        let kept = free.pieces.len().min(free.max);
        let excess = free.pieces.split_off(kept);
        free.pieces.shrink_to_fit();
        drop(free);
        // Outside the lock.
        drop(excess);
    }

    /// Returns an empty buffer with the capacity of a piece. The caller returns it once: by
    /// [`put_back`](Self::put_back), or in a [`PooledBuffer`].
    pub fn take(&self) -> Vec<u8> {
        // Relaxed: the count guards no other memory.
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        let Some(piece) = self.free.lock().pieces.pop() else {
            return Vec::with_capacity(PIECE_BYTES);
        };
        let mut piece = piece.into_vec();
        piece.clear();
        piece
    }

    /// Returns an empty buffer for `bytes` bytes: a piece, if they fill most of one.
    pub fn take_for(&self, bytes: usize) -> Vec<u8> {
        match bytes {
            POOLED_BYTES_MIN..=PIECE_BYTES => self.take(),
            _ => Vec::with_capacity(bytes),
        }
    }

    /// Returns pieces to the pool, and frees those for which the pool has no room. Each box was
    /// [taken](Self::take) from the pool and has exactly [`PIECE_BYTES`] bytes.
    pub fn put_back(&self, given: impl IntoIterator<Item = Box<[u8]>>) {
        let mut given = given.into_iter();
        let kept = {
            let mut free = self.free.lock();
            let (before, room) = (free.pieces.len(), free.room());
            free.pieces.extend(given.by_ref().take(room));
            free.pieces.len() - before
        };
        // The remaining pieces are freed outside the lock.
        let freed = given.count();
        // Relaxed: the count guards no other memory.
        self.outstanding.fetch_sub(kept + freed, Ordering::Relaxed);
    }

    /// Returns a piece, as [`put_back`](Self::put_back) does.
    #[inline]
    pub fn put_back_one(&self, piece: Box<[u8]>) {
        let freed = {
            let mut free = self.free.lock();
            match free.room() > 0 {
                true => {
                    free.pieces.push(piece);
                    None
                }
                false => Some(piece),
            }
        };
        // Outside the lock.
        drop(freed);
        // Relaxed: the count guards no other memory.
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the bytes of all pieces in use, so that a store can refuse a long value while there
    /// are too many.
    pub fn outstanding_bytes(&self) -> u64 {
        // Relaxed: the count guards no other memory.
        (self.outstanding.load(Ordering::Relaxed) * block_bytes(PIECE_BYTES)) as u64
    }

    /// Returns the number of free pieces.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.free.lock().pieces.len()
    }
}

/// Bytes in one block: a piece, which returns to its pool on drop, or a block of another size.
#[derive(Debug)]
pub struct PooledBuffer {
    bytes: Vec<u8>,
    pool: Arc<PiecePool>,
}

impl PooledBuffer {
    /// Copies all parts into one block, one after the other.
    #[inline]
    pub fn concat(parts: &[&[u8]], pool: &Arc<PiecePool>) -> Self {
        let mut bytes = pool.take_for(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Self::new(bytes, pool)
    }

    /// Wraps a buffer that was [taken](PiecePool::take_for) from `pool`. Its capacity must not have
    /// changed: a capacity of [`PIECE_BYTES`] marks a piece.
    pub fn new(bytes: Vec<u8>, pool: &Arc<PiecePool>) -> Self {
        Self { bytes, pool: Arc::clone(pool) }
    }

    pub fn pool(&self) -> &Arc<PiecePool> {
        &self.pool
    }

    /// Returns the heap memory of the block.
    pub fn heap_bytes(&self) -> usize {
        block_bytes(self.bytes.capacity())
    }
}

impl Deref for PooledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if self.bytes.capacity() == PIECE_BYTES {
            let mut piece = std::mem::take(&mut self.bytes);
            piece.resize(PIECE_BYTES, 0);
            self.pool.put_back_one(piece.into_boxed_slice());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_near_a_pieces_size_take_a_piece() {
        let pool = Arc::new(PiecePool::new(1 << 20));
        for (length, is_piece) in
            [(0, false), (3576, false), (3577, true), (PIECE_BYTES, true), (PIECE_BYTES + 1, false)]
        {
            let block = PooledBuffer::concat(&[&vec![7; length / 3], &vec![7; length - length / 3]], &pool);
            assert!(block.iter().all(|&byte| byte == 7) && block.len() == length);
            assert_eq!(pool.outstanding_bytes() > 0, is_piece, "{length}");
            assert_eq!(block.heap_bytes(), block_bytes(if is_piece { PIECE_BYTES } else { length }));
            drop(block);
            assert_eq!(pool.outstanding_bytes(), 0);
        }
    }

    #[test]
    fn a_pool_is_bounded_and_hands_out_empty_pieces() {
        let pool = PiecePool::new(3 * PIECE_BYTES as u64);
        let mut taken: Vec<_> = (0..5).map(|_| pool.take()).collect();
        assert_eq!(pool.outstanding_bytes(), 5 * 4096);
        taken.iter_mut().for_each(|piece| piece.resize(PIECE_BYTES, 7));
        let mut taken = taken.into_iter().map(Vec::into_boxed_slice);
        pool.put_back_one(taken.next().unwrap());
        assert_eq!((pool.outstanding_bytes(), pool.len()), (4 * 4096, 1));
        let last = taken.next_back().unwrap();
        pool.put_back(taken);
        pool.put_back_one(last);
        assert_eq!(pool.outstanding_bytes(), 0);
        assert_eq!(pool.len(), 3);
        pool.set_bytes_max(2 * PIECE_BYTES as u64);
        assert_eq!(pool.len(), 2);
        for left in [1, 0, 0] {
            let piece = pool.take();
            assert_eq!((piece.len(), piece.capacity()), (0, PIECE_BYTES));
            assert_eq!(pool.len(), left);
        }
    }
}
