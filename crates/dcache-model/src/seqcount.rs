//! Sequence counts: the count is odd during a write, so readers, which write nothing, detect that a
//! write has overlapped with their reads, and discard the values.
//!
//! # Orderings
//!
//! ```text
//!     write   seq = odd   (Relaxed)        begin   s = seq      (Acquire)
//!             fence(Release)                       data         (Relaxed)
//!             data        (Relaxed)        retry   fence(Acquire)
//!             seq = even  (Release)                seq == s?    (Relaxed)
//! ```
//!
//! - A reader that saw data of a write also sees, by the two fences, the odd count of that write,
//!   and retries.
//! - A reader that began with the even count of a write sees, by Release and Acquire, all data of
//!   that write.
//!
//! The model checks below verify both claims, and fail without either fence. docs/ORDERINGS.md
//! lists them by name.
//!
//! A change must keep these orderings. Data that a reader may read during a write must be atomic.

use lowwater_base::mutated;
use lowwater_base::sync::atomic::{fence, AtomicU32, Ordering};
use lowwater_base::sync::{Mutex, MutexGuard};

/// A sequence count. The caller excludes concurrent writers by a lock of its own.
#[derive(Debug)]
#[doc(alias = "seqcount_t")]
pub(crate) struct SeqCount(AtomicU32);

impl SeqCount {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Begins a read, and returns the count for [`retry`](Self::retry). Never waits: an odd count
    /// is returned less 1, so that `retry` returns true.
    #[inline]
    #[doc(alias = "raw_seqcount_begin")]
    pub(crate) fn begin(&self) -> u32 {
        // Acquire: pairs with the Release store at the end of `write`.
        self.0.load(Ordering::Acquire) & !1
    }

    /// Returns whether a write overlapped with the time since `begin`, which returned `begun`.
    #[inline]
    #[doc(alias = "read_seqcount_retry")]
    pub(crate) fn retry(&self, begun: u32) -> bool {
        // Acquire: pairs with the Release fence in `write`: if the caller read data of a write, the
        // load below sees its odd count.
        if !mutated!("seq_no_reader_fence") {
            fence(Ordering::Acquire);
        }
        // Relaxed: ordered by the fence.
        self.0.load(Ordering::Relaxed) != begun
    }

    /// Runs `change` between an odd and an even count. The caller excludes other writers by a lock.
    #[doc(alias = "write_seqcount_begin")]
    pub(crate) fn write<R>(&self, change: impl FnOnce() -> R) -> R {
        // Relaxed: only writers store it, and they exclude each other.
        let s = self.0.load(Ordering::Relaxed);
        debug_assert!(s & 1 == 0, "two concurrent writers");
        // Relaxed: the fence orders this store before the data.
        self.0.store(s.wrapping_add(1), Ordering::Relaxed);
        // Release: pairs with the Acquire fence in `retry`.
        if !mutated!("seq_no_writer_fence") {
            fence(Ordering::Release);
        }
        let result = change();
        // Release: pairs with the Acquire load in `begin`.
        self.0.store(s.wrapping_add(2), Ordering::Release);
        result
    }
}

/// A sequence count with a lock for its writers, which orders all renames of a cache.
#[derive(Debug)]
#[doc(alias = "seqlock_t")]
pub(crate) struct SeqLock {
    seq: SeqCount,
    writers: Mutex<()>,
}

impl SeqLock {
    pub(crate) fn new() -> Self {
        Self { seq: SeqCount::new(), writers: Mutex::new(()) }
    }

    pub(crate) fn begin(&self) -> u32 {
        self.seq.begin()
    }

    pub(crate) fn retry(&self, begun: u32) -> bool {
        self.seq.retry(begun)
    }

    /// Waits for the current writer, and excludes writers until the guard is dropped.
    pub(crate) fn exclude_writers(&self) -> MutexGuard<'_, ()> {
        self.writers.lock()
    }

    pub(crate) fn write<R>(&self, change: impl FnOnce() -> R) -> R {
        let _writers = self.writers.lock();
        self.seq.write(change)
    }
}

#[cfg(all(test, lowwater_loom))]
mod loom {
    use super::*;
    use lowwater_base::sync::{thread, with_mutant, Arc};

    struct Pair {
        seq: SeqCount,
        a: AtomicU32,
        b: AtomicU32,
    }

    /// A reader races with a writer of two words. Two threads, all executions.
    fn check() {
        lowwater_base::sync::model(|| {
            let pair = Arc::new(Pair { seq: SeqCount::new(), a: AtomicU32::new(0), b: AtomicU32::new(0) });
            let writer = {
                let pair = pair.clone();
                thread::spawn(move || {
                    pair.seq.write(|| {
                        pair.a.store(1, Ordering::Relaxed);
                        pair.b.store(1, Ordering::Relaxed);
                    })
                })
            };
            let begun = pair.seq.begin();
            let (a, b) = (pair.a.load(Ordering::Relaxed), pair.b.load(Ordering::Relaxed));
            if !pair.seq.retry(begun) {
                assert_eq!(a, b, "a validated read is of one write");
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn d3_a_validated_read_is_a_consistent_snapshot() {
        check();
    }

    #[test]
    #[should_panic]
    fn fails_with_seq_no_reader_fence() {
        with_mutant("seq_no_reader_fence", check);
    }

    #[test]
    #[should_panic]
    fn fails_with_seq_no_writer_fence() {
        with_mutant("seq_no_writer_fence", check);
    }
}
