//! The last access to a value: its second, and whether the value was ever fetched.
//!
//! Readers store it without a lock; the newest second is enough, and a lost store does no harm.
//!
//! A change must ensure that a reader only loads and stores: an atomic read-modify-write, or a
//! lock, would make lookups wait for each other.

use std::sync::atomic::{AtomicU32, Ordering};

/// The time of the last access to a value, and whether the value was ever fetched. Readers write
/// it, so the cache line is not written if nothing changes: a value that is read all the time is
/// written once a second.
#[doc(alias = "ITEM_FETCHED")]
#[derive(Debug, Default)]
pub struct LastAccess(AtomicU32);

/// The bit that is set if the value was ever fetched; the other 31 bits are the seconds from the
/// start of the server to the last access.
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

    /// Records a store of the value, or a use that is no fetch; the fetched bit stays. If another
    /// thread fetches the value at the same time, its fetch may be lost.
    pub fn record_store(&self, now_seconds: u32) {
        self.set(self.get() & FETCHED | now_seconds);
    }

    /// Sets the fetched bit if it is set in `other`, the access of the value that this one
    /// replaces.
    pub fn inherit_fetched(&self, other: &Self) {
        self.set(self.get() | other.get() & FETCHED);
    }

    pub fn is_fetched(&self) -> bool {
        self.get() & FETCHED != 0
    }

    /// Returns the time of the last access, in seconds since the server started.
    pub fn last_used_seconds(&self) -> u32 {
        self.get() & !FETCHED
    }

    fn get(&self) -> u32 {
        // Relaxed: the word guards no other memory.
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, access: u32) {
        if self.get() != access {
            // Relaxed: the word guards no other memory. Of two concurrent fetches one is lost; both
            // record the same second, or seconds next to each other.
            self.0.store(access, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fetched_bit_is_kept() {
        let access = LastAccess::default();
        access.record_store(7);
        assert_eq!((access.is_fetched(), access.last_used_seconds()), (false, 7));
        access.record_fetch(9);
        access.record_store(11);
        assert_eq!((access.is_fetched(), access.last_used_seconds()), (true, 11));
        let next = LastAccess::default();
        next.record_store(12);
        next.inherit_fetched(&access);
        assert_eq!((next.is_fetched(), next.last_used_seconds()), (true, 12), "the fetched bit is inherited");
    }
}
