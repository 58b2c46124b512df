//! A stored value: its key, its bytes and what is known of it, in one block if it is not long.
//!
//! ```text
//!   the cache's entry                               the heap
//!   name | where, length, key's length, marks | seen -> number | flags, if they are not 0 | key | bytes, or those behind the full pieces
//! ```
//!
//! A short value belongs to its entry alone, and is copied to whoever wants it: a count of those who have it would cost more bytes, and a line
//! that they all write. Clones of a long one share the bytes.
//!
//! Beside its name an entry has 16 bytes for it. Lengths stand there and not in the block, as that is made of steps of 16 bytes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use lowwater_lru_core::slim::{Kept, Slim};

use crate::data::{block_bytes, Data, Full, PIECE_BYTES};
use crate::parse::KEY_BYTES_MAX;
use crate::stash::Pooled;

/// The one slab class, where memcached's clients ask for a class: there are none here.
pub const SLAB_CLASS: u32 = 1;

/// Values up to this length, with their key, are copied: cheaper than sharing them.
const SHORT_BYTES_MAX: usize = 2048;

/// Of the front, what the number takes.
const UNIQUE_BYTES: usize = 8;

/// Of the front, what the flags take if they are not 0.
const FLAGS_BYTES: usize = 4;

/// What a key leads to.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its note: the key's length, whether there are flags, and the marks.
    bytes: Slim<Long>,
    pub seen: Seen,
}

#[derive(Debug)]
struct Long {
    front: Pooled,
    full: Option<Arc<Full>>,
}

/// What the meta commands note on a value. To change one, the value is replaced: so of all that ask, one wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Invalidated: shown to readers as such, until it is stored again.
    pub stale: bool,
    /// Somebody was told to store it again.
    pub won: bool,
    /// Its key came in base64, and is shown so.
    pub binary: bool,
}

impl Marks {
    fn of(note: u16) -> Self {
        let is = |bit: u32| note >> (MARKS_SHIFT + bit) & 1 != 0;
        Self { stale: is(0), won: is(1), binary: is(2) }
    }

    fn note(self) -> u16 {
        (u16::from(self.stale) | u16::from(self.won) << 1 | u16::from(self.binary) << 2) << MARKS_SHIFT
    }
}

/// Of a value's note, the bits of the key's length.
const KEY_BITS: u32 = 9;
const _: () =
    assert!(2 * KEY_BYTES_MAX < 1 << KEY_BITS, "a key may have a tenant in front, which is no longer than a key");

/// The bit behind them.
const HAS_FLAGS: u16 = 1 << KEY_BITS;

/// Behind that are the marks.
const MARKS_SHIFT: u32 = KEY_BITS + 1;

/// When a value was last used, and whether it was ever read. Written by readers, so it leaves the line alone when nothing changes:
/// a value that is read all the time is written to once a second.
#[derive(Debug, Default)]
pub struct Seen(AtomicU32);

/// The bit of [`Seen`] that says it was read; the others are seconds since the server started.
const FETCHED: u32 = 1 << 31;

impl Clone for Seen {
    fn clone(&self) -> Self {
        Self(self.get().into())
    }
}

impl Seen {
    /// Notes a read.
    pub fn fetch(&self, now_seconds: u32) {
        self.set(FETCHED | now_seconds);
    }

    /// Notes that it was stored, or changed.
    pub fn store(&self, now_seconds: u32) {
        self.set(self.get() & FETCHED | now_seconds);
    }

    /// Takes over from the value whose place this one's takes whether that was read.
    pub fn inherit(&self, other: &Self) {
        self.set(self.get() | other.get() & FETCHED);
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

impl Value {
    /// `data` under a key, which is not longer than one with a tenant in front can be.
    pub fn new(key: &[u8], flags: u32, marks: Marks, unique: u64, data: &Data) -> Self {
        debug_assert!(key.len() < 1 << KEY_BITS, "a key of {} bytes", key.len());
        let has_flags = flags != 0;
        let note = key.len() as u16 | if has_flags { HAS_FLAGS } else { 0 } | marks.note();
        let flags_bytes = flags.to_ne_bytes();
        let flags: &[u8] = if has_flags { &flags_bytes } else { &[] };
        let front = [&unique.to_ne_bytes(), flags, key, &data.tail];
        let is_short = data.full.is_none() && front.iter().map(|part| part.len()).sum::<usize>() <= SHORT_BYTES_MAX;
        let own = is_short.then(|| Slim::own(front.concat().into_boxed_slice(), note).ok()).flatten();
        let bytes = own.unwrap_or_else(|| {
            let front = Pooled::concat(&front, data.tail.stash());
            Slim::share(Arc::new(Long { front, full: data.full.clone() }), note)
        });
        Self { bytes, seen: Seen::default() }
    }

    pub fn key(&self) -> &[u8] {
        let start = self.key_at();
        &self.whole_front()[start..start + self.key_len()]
    }

    pub fn flags(&self) -> u32 {
        let flags = self.whole_front()[UNIQUE_BYTES..].first_chunk().filter(|_| self.has_flags());
        flags.copied().map_or(0, u32::from_ne_bytes)
    }

    pub fn marks(&self) -> Marks {
        Marks::of(self.bytes.note())
    }

    /// Changes with every change of the bytes, never twice the same: what `gets` shows and `cas` compares.
    pub fn unique(&self) -> u64 {
        self.whole_front().first_chunk().copied().map_or(0, u64::from_ne_bytes)
    }

    /// The same with other marks.
    pub fn with_marks(mut self, marks: Marks) -> Self {
        self.bytes.set_note(self.bytes.note() % (1 << MARKS_SHIFT) | marks.note());
        self
    }

    /// The same, once somebody was told to store it again.
    pub fn with_won(&self) -> Self {
        self.clone().with_marks(Marks { won: true, ..self.marks() })
    }

    /// The same under another number.
    pub fn with_unique(mut self, unique: u64) -> Self {
        let unique = unique.to_ne_bytes();
        if let Some(front) = self.bytes.own_mut() {
            front[..UNIQUE_BYTES].copy_from_slice(&unique);
        } else if let Kept::Shared(long) = self.bytes.get() {
            // The pieces stay shared.
            let front = Pooled::concat(&[&unique, &long.front[UNIQUE_BYTES..]], long.front.stash());
            self.bytes = Slim::share(Arc::new(Long { front, full: long.full.clone() }), self.bytes.note());
        }
        self
    }

    pub fn len(&self) -> usize {
        self.full().map_or(0, Full::len) + self.tail().len()
    }

    /// The first piece: the whole value, if it is not longer than a piece.
    pub fn first(&self) -> &[u8] {
        self.pieces().next().unwrap_or_default()
    }

    /// All of it.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.pieces_from(0)
    }

    /// The bytes from `offset` on; at most [`len`](Self::len).
    pub fn pieces_from(&self, offset: usize) -> impl Iterator<Item = &[u8]> + Clone {
        let full = self.full();
        let first = (offset / PIECE_BYTES).min(full.map_or(0, Full::len) / PIECE_BYTES);
        let mut skip = offset - first * PIECE_BYTES;
        let pieces = full.into_iter().flat_map(Full::pieces).skip(first);
        pieces.chain([self.tail()]).map(move |piece| &piece[std::mem::take(&mut skip)..])
    }

    /// What it takes of the allocator beyond its entry.
    pub fn heap_bytes(&self) -> usize {
        match self.bytes.get() {
            Kept::Own(front) => block_bytes(front.len()),
            Kept::Shared(long) => {
                let own = block_bytes(2 * size_of::<usize>() + size_of::<Long>());
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

    fn full(&self) -> Option<&Full> {
        match self.bytes.get() {
            Kept::Own(_) => None,
            Kept::Shared(long) => long.full.as_deref(),
        }
    }

    fn tail(&self) -> &[u8] {
        &self.whole_front()[self.key_at() + self.key_len()..]
    }

    fn key_at(&self) -> usize {
        UNIQUE_BYTES + if self.has_flags() { FLAGS_BYTES } else { 0 }
    }

    fn key_len(&self) -> usize {
        usize::from(self.bytes.note() % (1 << KEY_BITS))
    }

    fn has_flags(&self) -> bool {
        self.bytes.note() & HAS_FLAGS != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stash::Stash;

    #[test]
    fn what_is_put_in_comes_out() {
        let stash = Arc::new(Stash::new(1 << 20));
        let pattern: Vec<u8> = (0..3 * PIECE_BYTES + 1).map(|n| (n % 253) as u8).collect();
        let marks = |n: usize| Marks { stale: n & 1 != 0, won: n & 2 != 0, binary: n & 4 != 0 };
        let mut n = 0;
        for length in [0, 1, 100, 2048, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 1] {
            for key in [&b""[..], b"key", &[0xff; 500]] {
                for flags in [0, 1, u32::MAX] {
                    n += 1;
                    let data = Data::copy(&pattern[..length], &stash);
                    let value = Value::new(key, flags, marks(n), u64::MAX - n as u64, &data);
                    let check = |value: &Value, unique: u64, marks: Marks| {
                        assert_eq!((value.key(), value.flags(), value.unique()), (key, flags, unique));
                        assert_eq!((value.marks(), value.len()), (marks, length));
                        assert!(value.first() == &pattern[..length.min(PIECE_BYTES)]);
                        for offset in [0, 1, PIECE_BYTES, length].into_iter().filter(|&offset| offset <= length) {
                            let bytes: Vec<u8> = value.pieces_from(offset).flatten().copied().collect();
                            assert!(bytes == pattern[offset..length], "{length} bytes from {offset}");
                        }
                    };
                    check(&value, u64::MAX - n as u64, marks(n));
                    check(&value.clone().with_unique(7), 7, marks(n));
                    check(&value.clone().with_marks(marks(n + 1)), u64::MAX - n as u64, marks(n + 1));
                    check(&value.with_won(), u64::MAX - n as u64, Marks { won: true, ..marks(n) });
                    check(&value, u64::MAX - n as u64, marks(n));
                }
            }
        }
    }

    #[test]
    fn heap_bytes_count_every_block() {
        let stash = Arc::new(Stash::new(0));
        let heap_bytes = |length: usize, flags: u32| {
            Value::new(b"0123456789", flags, Marks::default(), 1, &Data::copy(&vec![0; length], &stash)).heap_bytes()
        };
        assert_eq!(heap_bytes(0, 0), 32, "8 bytes before it, number, key: 26, rounded up");
        assert_eq!(
            (heap_bytes(6, 0), heap_bytes(7, 0), heap_bytes(3, 9)),
            (32, 48, 48),
            "flags take 4 if there are any"
        );
        assert_eq!(heap_bytes(100, 0), 128);
        assert_eq!(heap_bytes(2040, 0), 2080 + 64, "a long one has two owners of its own");
        assert_eq!(heap_bytes(4000, 0), 4096 + 64, "what fills most of a piece is in one");
        assert_eq!(
            heap_bytes(4089, 0),
            4096 + 32 + 48 + 32 + 64,
            "a piece, its table, who has it, the front, who has all"
        );
        assert_eq!((size_of::<Value>(), align_of::<Value>()), (16, 4));
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
        next.store(12);
        next.inherit(&seen);
        assert_eq!((next.fetched(), next.last_used_seconds()), (true, 12), "the value is the same, its bytes are new");
    }
}
