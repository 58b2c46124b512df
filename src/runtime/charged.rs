//! Values that are charged until their last clone is dropped.
//!
//! An entry of a cache with [`charge_held_values`](crate::cache::CacheBuilder::charge_held_values)
//! is charged as any entry is. Its removal decides what becomes of the bytes:
//!
//! ```text
//!     removed, no reader has a clone ----> uncharged: retired with the record <---------+
//!                                              |                                        |
//!                                              +-- late clone --> charged, or retired --+
//!     removed, readers have clones ------> charged: the value's -- last reader drops ---+
//! ```
//!
//! So the bytes are counted once, as charged or as retired, for as long as the value is in memory;
//! twice for a late clone until its record is dropped.
//!
//! # The removal and the readers
//!
//! A record outlives its removal, until the readers of the cache have left, and so does the
//! record's own handle on the value. A reader that has found the record may clone the value in that
//! time: a late clone. A clone cannot fail, so its bytes are counted as retired where there is no
//! room, as those of the record are.
//!
//! The number of handles and the flags are in one word (`ChargedInner::word`), so that a clone and
//! a removal see each other: the removal counts the clone, or the clone sees `LEFT`. Flags change
//! under the lock of `holding`; `GONE` alone is set without it.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_store::slab::RetiredBytes;
use parking_lot::Mutex;

use super::charge_guard::Charge;
use super::retired::Retired;

/// The record was removed, and no handle exists but the record's: a clone that is made now is late.
const LEFT: u64 = 1;
/// The record was removed, and readers have handles.
const HELD: u64 = 2;
/// The removed record's handle was dropped, or that of one removed before.
const GONE: u64 = 4;
/// The count of handles is above the flags.
const ONE: u64 = 8;

/// A shared value whose bytes stay charged until its last clone is dropped: an [`Arc`] with a
/// [`Charge`].
///
/// It comes to its charge in one of two ways:
///
/// 1. [`Charged::new`] takes one, from [`Runtime::charge_guard`](super::Runtime::charge_guard).
/// 2. In a cache with [`charge_held_values`](crate::cache::CacheBuilder::charge_held_values), the
///    entry is charged as any entry is, and leaves its charge to the value if readers hold clones
///    of the value when the entry is removed. A value for such a cache is made without a charge, by
///    [`Charged::from`].
///
/// A clone increments two counters. The drop of the last clone drops the value first, then gives
/// the bytes back; where an entry has left the bytes, the drop of the last clone outside of the
/// cache gives them back, and the value is dropped with the entry's memory. Either may happen on
/// any thread, inside any callback, and after the runtime's last handle. A clone that is leaked
/// leaves the bytes charged for ever.
///
/// ```
/// use lowwater::{ByteSize, Charged, Runtime};
///
/// let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
/// let group = runtime.group("uploads")?;
/// let charge = runtime.charge_guard(&group, ByteSize::kib(64))?;
/// let upload = Charged::new(vec![0_u8; 64 << 10], charge);
///
/// let reader = upload.clone();
/// drop(upload);
/// assert!(group.usage() >= ByteSize::kib(64));
/// assert_eq!(reader.len(), 64 << 10);
/// drop(reader);
/// assert!(runtime.charge_guard(&group, ByteSize::mib(1)).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Charged<T> {
    inner: Arc<ChargedInner<T>>,
    /// This is the handle of a record that was removed.
    is_records: AtomicBool,
}

/// What the clones share. The value is dropped before its bytes are given back.
struct ChargedInner<T> {
    value: T,
    /// The number of handles, times [`ONE`], and flags.
    word: AtomicU64,
    holding: Mutex<Holding>,
}

/// What is counted for a value, beside the charge of an entry.
enum Holding {
    /// Nothing: the value is new, or in a cache.
    Nothing,
    /// The charge that the value was made with.
    Own(Charge),
    /// The charge of an entry that was removed.
    Records(RecordsCharge),
}

/// The bytes of a removed record, and where they are counted. Dropped, they are counted nowhere.
struct RecordsCharge {
    group: Memcg,
    bytes: ByteSize,
    retired: Arc<RetiredBytes>,
    counted: Counted,
}

/// Where the bytes of a removed record are counted.
enum Counted {
    /// With the record, which is retired.
    Nowhere,
    Charged,
    Retired,
}

impl RecordsCharge {
    /// Charges the bytes of a late clone, or counts them as retired where there is no room.
    fn count_late(&mut self) {
        match self.group.try_charge(self.bytes) {
            Ok(_) => self.recount(Counted::Charged),
            Err(_) => self.retire(),
        }
    }

    /// Counts the bytes as retired.
    fn retire(&mut self) {
        if !matches!(self.counted, Counted::Retired) {
            self.retired.add(self.signed_bytes());
            self.recount(Counted::Retired);
        }
    }

    fn uncount(&mut self) {
        self.recount(Counted::Nowhere);
    }

    /// Stores where the bytes are counted now, and ends the count before.
    fn recount(&mut self, counted: Counted) {
        match std::mem::replace(&mut self.counted, counted) {
            Counted::Nowhere => {}
            Counted::Charged => self.group.uncharge(self.bytes),
            Counted::Retired => self.retired.add(-self.signed_bytes()),
        }
    }

    fn signed_bytes(&self) -> i64 {
        i64::try_from(self.bytes.get()).unwrap_or(i64::MAX)
    }
}

impl Drop for RecordsCharge {
    fn drop(&mut self) {
        self.uncount();
    }
}

impl<T> Charged<T> {
    /// The memory of the value itself and of what is kept beside it, which all clones share: for
    /// weighers, beside what the value owns.
    pub const BYTES: ByteSize = ByteSize::new((size_of::<ChargedInner<T>>() + 2 * size_of::<usize>()) as u64);

    /// Keeps `charge` until the last clone of the value is dropped. The process ends where there is
    /// no memory for the value.
    pub fn new(value: T, charge: Charge) -> Self {
        Self::with(value, Holding::Own(charge))
    }

    fn with(value: T, holding: Holding) -> Self {
        let inner = ChargedInner { value, word: AtomicU64::new(ONE), holding: Mutex::new(holding) };
        Self::of(Arc::new(inner))
    }

    fn of(inner: Arc<ChargedInner<T>>) -> Self {
        Self { inner, is_records: AtomicBool::new(false) }
    }

    /// The bytes that are charged for the value itself: the [`Charge`] that it was made with, or
    /// that an entry has left to it; zero while only an entry is charged. An associated function,
    /// as the value may have a method of that name.
    pub fn held_bytes(this: &Self) -> ByteSize {
        match &*this.inner.holding.lock() {
            Holding::Own(charge) => charge.bytes(),
            Holding::Records(RecordsCharge { counted: Counted::Charged, bytes, .. }) => *bytes,
            Holding::Records(_) | Holding::Nothing => ByteSize::ZERO,
        }
    }

    /// Returns whether both are clones of one value.
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        Arc::ptr_eq(&this.inner, &other.inner)
    }

    /// Takes over the charge of a removed record, whose handle this is, for the value: `bytes` of
    /// `group`, if other handles exist. Returns the bytes that the caller is to uncharge: all or
    /// none.
    pub(crate) fn leave(&self, group: &Memcg, bytes: ByteSize, retired: &Retired) -> ByteSize {
        let mut holding = self.inner.holding.lock();
        if matches!(*holding, Holding::Own(_)) {
            return bytes;
        }
        // What another record has left before is counted once.
        *holding = Holding::Nothing;
        // Relaxed: read by the thread that drops this handle.
        self.is_records.store(true, Ordering::Relaxed);
        let decide = |word| if word / ONE == 1 { ONE | LEFT } else { (word / ONE * ONE) | HELD };
        // Acquire and Release: with the other changes of the word, none of which is lost.
        let before = self.inner.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| Some(decide(word)));
        let is_held = before.is_ok_and(|word| word / ONE > 1);
        let counted = if is_held { Counted::Charged } else { Counted::Nowhere };
        let (group, retired) = (group.clone(), retired.count());
        *holding = Holding::Records(RecordsCharge { group, bytes, retired, counted });
        if is_held {
            ByteSize::ZERO
        } else {
            bytes
        }
    }
}

impl<T> ChargedInner<T> {
    /// Counts a late clone, which saw [`LEFT`].
    #[cold]
    fn count_late(&self) {
        let mut holding = self.holding.lock();
        // Another late clone may have been counted meanwhile, and then no handle sees the flag any
        // more.
        if self.word.load(Ordering::Acquire) & LEFT == 0 {
            return;
        }
        if let Holding::Records(charge) = &mut *holding {
            charge.count_late();
        }
        self.word.fetch_xor(LEFT | HELD, Ordering::AcqRel);
    }

    /// Uncharges the bytes, if the removed record's handle is still the only one. Until the record
    /// is dropped they are retired.
    #[cold]
    fn retire_last(&self) {
        let mut holding = self.holding.lock();
        let (held, left) = (ONE | HELD, ONE | LEFT);
        if self.word.compare_exchange(held, left, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            if let Holding::Records(charge) = &mut *holding {
                charge.retire();
            }
        }
    }
}

impl<T> From<T> for Charged<T> {
    /// Makes a value without a charge, for a cache with
    /// [`charge_held_values`](crate::cache::CacheBuilder::charge_held_values).
    fn from(value: T) -> Self {
        Self::with(value, Holding::Nothing)
    }
}

impl<T> Clone for Charged<T> {
    #[inline]
    fn clone(&self) -> Self {
        // Acquire and Release: as in `leave`.
        if self.inner.word.fetch_add(ONE, Ordering::AcqRel) & LEFT != 0 {
            self.inner.count_late();
        }
        Self::of(Arc::clone(&self.inner))
    }
}

impl<T> Drop for Charged<T> {
    #[inline]
    fn drop(&mut self) {
        let word = &self.inner.word;
        if *self.is_records.get_mut() {
            // From here on the last handle is a reader's, and the charge ends with the value.
            word.fetch_or(GONE, Ordering::AcqRel);
            word.fetch_sub(ONE, Ordering::AcqRel);
            return;
        }
        // Acquire and Release: as in `leave`.
        let before = word.fetch_sub(ONE, Ordering::AcqRel);
        if before / ONE == 2 && before & (HELD | GONE) == HELD {
            self.inner.retire_last();
        }
    }
}

impl<T> Deref for Charged<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner.value
    }
}

impl<T> AsRef<T> for Charged<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: PartialEq> PartialEq for Charged<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Charged<T> {}

impl<T: fmt::Debug> fmt::Debug for Charged<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
