//! The last access to a value.

use std::sync::atomic::{AtomicU32, Ordering};

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

#[cfg(test)]
mod tests {
    use super::*;

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
