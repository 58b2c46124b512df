//! Pieces on their way from a dropped value to the next one.
//!
//! glibc's allocator gives each thread a heap of its own, and memory returns to the heap it came from, whoever frees it. A server
//! whose memory is always full is the worst case: each heap grows to the most its thread ever held, and the sum of these is well
//! above what is in use at any time (measured with two threads: 92 to 110 MB resident for 64 MiB charged). A piece that goes from
//! hand to hand belongs to no heap (75 MB).
//!
//! The stash is bounded, so that memory which is no longer needed for pieces does go back; it is not charged.

use parking_lot::Mutex;

use crate::value::PIECE_BYTES;

/// Pieces that belong to no value now.
#[derive(Debug)]
pub struct Stash {
    pieces: Mutex<Vec<Box<[u8]>>>,
    pieces_max: usize,
}

impl Stash {
    /// Keeps at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { pieces: Mutex::default(), pieces_max: bytes_max as usize / PIECE_BYTES }
    }

    /// An empty buffer with room for a piece.
    pub fn take(&self) -> Vec<u8> {
        let Some(piece) = self.pieces.lock().pop() else {
            return Vec::with_capacity(PIECE_BYTES);
        };
        let mut piece = piece.into_vec();
        piece.clear();
        piece
    }

    /// Takes pieces back; frees what it has no room for.
    pub fn give(&self, mut given: Vec<Box<[u8]>>) {
        {
            let mut pieces = self.pieces.lock();
            let room = self.pieces_max.saturating_sub(pieces.len()).min(given.len());
            pieces.extend(given.drain(..room));
        }
        // Whatever is left is freed here, outside the lock.
        drop(given);
    }

    /// How many pieces there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.pieces.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stash_is_bounded_and_hands_out_empty_pieces() {
        let stash = Stash::new(3 * PIECE_BYTES as u64);
        stash.give(vec![vec![7; PIECE_BYTES].into(); 5]);
        assert_eq!(stash.len(), 3);
        for left in [2, 1, 0, 0] {
            let piece = stash.take();
            assert_eq!((piece.len(), piece.capacity()), (0, PIECE_BYTES));
            assert_eq!(stash.len(), left);
        }
    }
}
