//! A stored value, and the pieces it is kept in.
//!
//! A cache that is always full lives from what it just freed. Values of every size between a hundred bytes and a megabyte, each
//! in one block, leave holes that fit nobody, and the process grows far beyond what is charged. So a value is cut into pieces
//! of one size, which any other value can use next (see [`Stash`]), and a tail.
//!
//! Benefits: resident memory stays near the charged bytes with the plain allocator; a value of a megabyte needs no megabyte
//! in one place; it is written to the socket from where it lies. Costs: a pointer for each piece, which is charged.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use crate::stash::Stash;

/// One piece: with the 8 bytes that glibc's allocator puts before a block, 4 KiB.
pub const PIECE_BYTES: usize = 4096 - 8;

/// The one slab class, where memcached's clients ask for a class: there are none here.
pub const SLAB_CLASS: u32 = 1;

/// Pieces for which the table is laid out at once, on the word of the announced length (1 MiB of them).
const TABLE_TRUST_MAX: usize = 257;

/// What a key leads to. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct Value {
    pub flags: u32,
    /// In the four bytes that alignment leaves behind `flags`.
    pub marks: Marks,
    /// Changes with every change of the bytes, never twice the same: what `gets` shows and `cas` compares.
    pub unique: u64,
    pub data: Arc<Data>,
}

impl Value {
    /// The same, once somebody was told to store it again.
    pub fn with_won(&self) -> Self {
        Self { marks: Marks { won: true, ..self.marks }, ..self.clone() }
    }
}

/// What the meta commands note on a value. To change one, the value is replaced, with the same data: so of all that ask, one wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Invalidated: shown to readers as such, until it is stored again.
    pub stale: bool,
    /// Somebody was told to store it again.
    pub won: bool,
    /// Its key came in base64, and is shown so.
    pub binary: bool,
}

/// Bytes in pieces: all full but the tail.
#[derive(Debug)]
pub struct Data {
    /// The full pieces; most values have none.
    full: Option<Box<Full>>,
    tail: Box<[u8]>,
    pub seen: Seen,
}

#[derive(Debug)]
struct Full {
    pieces: Box<[Box<[u8]>]>,
    stash: Arc<Stash>,
}

/// When a value was last used, and whether it was ever read. Written by readers, so it leaves the line alone when nothing changes:
/// a value that is read all the time is written to once a second.
#[derive(Debug, Default)]
pub struct Seen(AtomicU32);

/// The bit of [`Seen`] that says it was read; the others are seconds since the server started.
const FETCHED: u32 = 1 << 31;

impl Seen {
    /// Notes a read.
    pub fn fetch(&self, now_seconds: u32) {
        self.set(FETCHED | now_seconds);
    }

    /// Notes that it was stored, or changed.
    pub fn store(&self, now_seconds: u32) {
        self.set(self.get() & FETCHED | now_seconds);
    }

    /// Carries over from the data it takes the place of whether that was read.
    pub fn inherit(&self, other: &Self) {
        self.set(other.get());
    }

    pub fn fetched(&self) -> bool {
        self.get() & FETCHED != 0
    }

    /// Seconds since the server started.
    pub fn last_used_seconds(&self) -> u32 {
        self.get() & !FETCHED
    }

    fn get(&self) -> u32 {
        // Relaxed: it stands for itself.
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, seen: u32) {
        if self.get() != seen {
            // Relaxed: as above. Of two who write at once one is lost; they say the same, or are a second apart.
            self.0.store(seen, Ordering::Relaxed);
        }
    }
}

impl Data {
    /// A copy of `bytes`.
    pub fn copy(bytes: &[u8], stash: &Arc<Stash>) -> Self {
        let mut builder = Builder::new(bytes.len(), stash);
        builder.extend(bytes);
        builder.finish()
    }

    /// Both parts, one after the other.
    pub fn concat(parts: [&Data; 2], stash: &Arc<Stash>) -> Self {
        let mut builder = Builder::new(parts.iter().map(|part| part.len()).sum(), stash);
        for piece in parts.iter().flat_map(|part| part.pieces_from(0)) {
            builder.extend(piece);
        }
        builder.finish()
    }

    pub fn len(&self) -> usize {
        self.pieces().len() * PIECE_BYTES + self.tail.len()
    }

    /// The first piece: the whole value, if it is not longer than a piece.
    pub fn front(&self) -> &[u8] {
        self.pieces().first().unwrap_or(&self.tail)
    }

    /// The bytes from `offset` on; at most [`Data::len`].
    pub fn pieces_from(&self, offset: usize) -> impl Iterator<Item = &[u8]> {
        let pieces = self.pieces();
        let first = (offset / PIECE_BYTES).min(pieces.len());
        let mut skip = offset - first * PIECE_BYTES;
        pieces[first..].iter().chain([&self.tail]).map(move |piece| &piece[std::mem::take(&mut skip)..])
    }

    /// What it takes of the allocator, this struct and its two counters included.
    pub fn heap_bytes(&self) -> usize {
        let own = block_bytes(2 * size_of::<usize>() + size_of::<Self>());
        let full = self.full.as_ref().map_or(0, |full| {
            let table = block_bytes(size_of_val(&*full.pieces));
            block_bytes(size_of::<Full>()) + table + full.pieces.len() * block_bytes(PIECE_BYTES)
        });
        own + full + block_bytes(self.tail.len())
    }

    fn pieces(&self) -> &[Box<[u8]>] {
        self.full.as_ref().map_or(&[], |full| &full.pieces)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        self.stash.give(std::mem::take(&mut self.pieces).into_vec());
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
        self.missing() == 0
    }

    /// How many have come.
    pub fn len(&self) -> usize {
        self.full.len() * PIECE_BYTES + self.piece.len()
    }

    /// How many are still to come.
    pub fn missing(&self) -> usize {
        self.length - self.len()
    }

    /// The value.
    pub fn finish(mut self) -> Data {
        let pieces = std::mem::take(&mut self.full).into_boxed_slice();
        let full = (!pieces.is_empty()).then(|| Box::new(Full { pieces, stash: Arc::clone(&self.stash) }));
        Data { full, tail: std::mem::take(&mut self.piece).into_boxed_slice(), seen: Seen::default() }
    }
}

/// What has come of a value that does not come to its end.
impl Drop for Builder {
    fn drop(&mut self) {
        if self.piece.capacity() == PIECE_BYTES {
            self.piece.resize(PIECE_BYTES, 0);
            self.full.push(std::mem::take(&mut self.piece).into_boxed_slice());
        }
        if !self.full.is_empty() {
            self.stash.give(std::mem::take(&mut self.full));
        }
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
                let joined = Data::concat([&data, &Data::copy(b"tail", &stash)], &stash);
                assert!(bytes(&joined, 0) == [&pattern[..length], b"tail"].concat());
            }
        }
    }

    #[test]
    fn a_value_that_does_not_come_to_its_end_gives_its_pieces_back() {
        let stash = Arc::new(Stash::new(1 << 20));
        for (length, come, pieces) in [
            (10 * PIECE_BYTES, 0, 0),
            (10 * PIECE_BYTES, 1, 1),
            (10 * PIECE_BYTES, 3 * PIECE_BYTES, 3),
            (10 * PIECE_BYTES, 3 * PIECE_BYTES + 1, 4),
            // The tail is no piece.
            (3 * PIECE_BYTES + 2, 3 * PIECE_BYTES + 1, 4),
        ] {
            let mut builder = Builder::new(length, &stash);
            builder.extend(&vec![7; come]);
            assert_eq!((builder.len(), builder.missing()), (come, length - come));
            drop(builder);
            assert_eq!((stash.len(), stash.bytes_out()), (pieces, 0));
        }
        let mut builder = Builder::new(3 * PIECE_BYTES, &stash);
        builder.extend(&[7; 3 * PIECE_BYTES]);
        let data = builder.finish();
        assert_eq!(stash.len(), 1, "what has come to its end keeps them");
        drop(data);
        assert_eq!(stash.len(), 4);
    }

    #[test]
    fn heap_bytes_count_every_block() {
        let stash = Arc::new(Stash::new(0));
        let own = Data::copy(b"", &stash).heap_bytes();
        assert_eq!(own, 64, "two counts and four words behind 8 bytes, rounded up; nothing for empty parts");
        assert_eq!(Data::copy(b"x", &stash).heap_bytes() - own, 32, "the smallest block");
        let large = Data::copy(&[0; 4096], &stash).heap_bytes() - own;
        assert_eq!(large, 4096 + 32 + 32 + 32, "a piece, its table, where it goes back to, the tail");
        assert_eq!(size_of::<Value>(), 24, "the marks cost nothing");
    }

    #[test]
    fn what_was_seen_is_kept() {
        let seen = Seen::default();
        seen.store(7);
        assert_eq!((seen.fetched(), seen.last_used_seconds()), (false, 7));
        seen.fetch(9);
        seen.store(11);
        assert_eq!((seen.fetched(), seen.last_used_seconds()), (true, 11));
        let next = Seen::default();
        next.inherit(&seen);
        assert!(next.fetched(), "the value is the same, its bytes are new");
    }
}
