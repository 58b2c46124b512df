//! The last access to a value.

use std::sync::atomic::{AtomicU32, Ordering};

/// The time of the last access to a value, and whether it was ever fetched. Written by readers, so
/// it leaves the line alone when nothing changes: a value that is read all the time is written to
/// once a second.
#[doc(alias = "ITEM_FETCHED")]
#[derive(Debug, Default)]
pub struct LastAccess(AtomicU32);

/// The bit of [`LastAccess`] that says it was read; the others are seconds since the server
/// started.
const FETCHED: u32 = 1 << 31;

impl Clone for LastAccess {
    fn clone(&self) -> Self {
        Self(self.get().into())
    }
}

impl LastAccess {
    /// Records a fetch.
    pub fn record_fetch(&self, now_seconds: u32) {
        self.set(FETCHED | now_seconds);
    }

    /// Records that the value was stored, or changed.
    pub fn record_store(&self, now_seconds: u32) {
        self.set(self.get() & FETCHED | now_seconds);
    }

    /// Takes over from the value that this one replaces whether it was fetched.
    pub fn inherit_fetched(&self, other: &Self) {
        self.set(self.get() | other.get() & FETCHED);
    }

    pub fn is_fetched(&self) -> bool {
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

    fn set(&self, access: u32) {
        if self.get() != access {
            // Relaxed: as above. Of two who write at once one is lost; they say the same, or are a
            // second apart.
            self.0.store(access, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_kept() {
        let access = LastAccess::default();
        access.record_store(7);
        assert_eq!((access.is_fetched(), access.last_used_seconds()), (false, 7));
        access.record_fetch(9);
        access.record_store(11);
        assert_eq!((access.is_fetched(), access.last_used_seconds()), (true, 11));
        let next = LastAccess::default();
        next.record_store(12);
        next.inherit_fetched(&access);
        assert_eq!(
            (next.is_fetched(), next.last_used_seconds()),
            (true, 12),
            "the value is the same, its bytes are new"
        );
    }
}
