//! [`Charged`]: a shared value that is charged until its last clone is dropped.
//!
//! A reader that keeps a value after its entry was evicted would hold memory that no budget counts.
//!
//! An entry of a cache with [`charge_held_values`](crate::cache::CacheBuilder::charge_held_values)
//! is charged as any entry is. When the entry is removed and another entry has the value, the bytes
//! are uncharged: the other entry's charge is enough. After the removal of the last entry, the
//! value is in one of two states:
//!
//! ```text
//!     HELD   readers have clones   the entry's charge passes to the value
//!     LEFT   no reader has one     the bytes are uncharged, and retired with the record
//!
//!     HELD -- the last reader drops its clone --> LEFT
//!     LEFT -- a reader of the record clones ----> HELD: a late clone; charged if there is room
//!     either -- the value is inserted again ----> no state: the new entry is charged in its place
//! ```
//!
//! Retired bytes are those of records that are removed and not dropped yet (`retired.rs`). So the
//! bytes are counted once, as charged or as retired, for as long as the value is in memory. Two
//! exceptions: if several entries have the value, it is counted once for each of them; and with a
//! late clone it is counted twice until the record is dropped.
//!
//! # How much is counted
//!
//! The weighers of two caches may differ, and a weigher may leave out the bytes that
//! [`Charged::held_bytes`] returns. So the size of a value is the largest charge of an entry that
//! had the value and was removed; a charge that was passed to [`Charged::new`] counts as that of a
//! removed entry. The bytes that are counted for the value itself are the
//! difference between the size and the charges of its present entries:
//!
//! ```text
//!     HeldCharge = size - charge of the entries, and not below 0      with an entry or a reader
//! ```
//!
//! # The removal and the readers
//!
//! A record stays in memory after its removal, until a grace period has passed, and so does the
//! record's own handle on the value. A reader that has found the record may clone the value in that
//! time: the late clone. A clone cannot fail, so its bytes are counted as retired where there is no
//! room, as those of the record are.
//!
//! The reader count, which is the number of handles that are not a record's, and the flags are in
//! one word (`ChargedInner::word`), so that a clone and a removal see each other: the removal
//! counts the clone, or the clone sees `LEFT`. Flags change under the lock of `holding`, and no
//! flag is set while an entry has the value. A handle becomes a record's in [`Charged::enter`], or
//! in [`Charged::set_is_records`] for the copy of a record. It stays one, because a cache returns
//! clones only, unless the record was not inserted after all.
//!
//! A change must ensure that the value's bytes are charged or retired until the value is dropped,
//! also when a clone, a drop or an insert races with the removal.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_store::slab::RetiredBytes;
use parking_lot::Mutex;

use super::charge_guard::Charge;
use super::retired::Retired;

/// The last entry was removed, and there was no reader: a clone that is made from now on is late.
const LEFT: u64 = 1;
/// The last entry was removed, and there are readers.
const HELD: u64 = 2;
/// One reader: the reader count is in the bits above the flags.
const ONE: u64 = 4;

/// A shared value whose bytes stay charged until its last clone is dropped: an [`Arc`] with a
/// [`Charge`].
///
/// The value gets its charge in one of two ways:
///
/// 1. [`Charged::new`] takes a charge from [`Runtime::charge_guard`](super::Runtime::charge_guard).
/// 2. In a cache with [`charge_held_values`](crate::cache::CacheBuilder::charge_held_values), the
///    entry is charged as any entry is. If readers hold clones of the value when its last entry is
///    removed, the charge passes from the entry to the value. [`Charged::from`] makes a value for
///    such a cache, without a charge.
///
/// When a value with a charge is inserted into such a cache, the entry is charged in place of the
/// value. If the value's charge is larger than the entry's, the difference stays charged for the
/// value.
///
/// A clone increments two counters. The drop of the last clone drops the value first and then
/// uncharges the bytes. If the charge came from an entry, the drop of the last clone outside of the
/// cache uncharges the bytes, and the value is dropped with the entry's memory. Either may happen
/// on any thread, inside any callback, and after the runtime's last handle. A clone that is leaked
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
    /// Whether this is the handle of a record that is or was in a cache, and not a reader's.
    is_records: AtomicBool,
}

/// The functions of [`Charged`] that a cache of such values calls for its entries. Pointers,
/// because the cache's value type has no bound by which they could be named.
pub(crate) struct HeldValues<V> {
    pub(crate) enter: fn(&V, ByteSize, &Retired) -> Option<HeldCharge>,
    pub(crate) leave: fn(&V, &Memcg, ByteSize, &Retired) -> Option<ByteSize>,
    pub(crate) withdraw: fn(&V, &Memcg, ByteSize, &Retired) -> Option<ByteSize>,
    pub(crate) set_is_records: fn(&V, bool),
}

/// The state that the clones share. The value is dropped before its bytes are uncharged: fields are
/// dropped in the order of declaration.
struct ChargedInner<T> {
    value: T,
    /// The reader count, times [`ONE`], and the flags.
    word: AtomicU64,
    holding: Mutex<Holding>,
}

/// The charge of a value.
enum Holding {
    /// The charge that was passed to [`Charged::new`], until an entry has the value.
    Own(Charge),
    /// The charges of the value's entries, and the charge that removed entries have passed to it.
    Entries(Entries),
}

/// The entries of a value.
#[derive(Default)]
struct Entries {
    count: usize,
    /// The sum of the entries' charges for the value.
    charged: ByteSize,
    /// The largest charge of a removed entry, or the charge that was passed to [`Charged::new`] if
    /// that was larger.
    size: ByteSize,
    /// The bytes that are counted in addition to the entries' charges; `None` if there are none.
    held: Option<HeldCharge>,
}

impl Holding {
    /// Returns the charges of the value's entries. A charge that was passed to [`Charged::new`]
    /// becomes the one that removed entries have passed to the value.
    fn entries(&mut self, retired: &Retired) -> &mut Entries {
        if let Self::Own(charge) = self {
            let size = charge.take();
            let held = Some(HeldCharge::new(charge.group(), size, retired));
            *self = Self::Entries(Entries { size, held, ..Entries::default() });
        }
        let Self::Entries(entries) = self else { unreachable!("an own charge was replaced above") };
        entries
    }
}

impl Entries {
    /// Returns the bytes to count in addition to the entries' charges.
    fn missing(&self) -> ByteSize {
        self.size.saturating_sub(self.charged)
    }
}

/// Bytes that are counted for a value itself. The drop uncharges them and takes them out of the
/// retired bytes.
pub(crate) struct HeldCharge {
    group: Memcg,
    charged: ByteSize,
    /// The bytes that are counted as retired.
    retired: ByteSize,
    retired_bytes: Arc<RetiredBytes>,
}

impl HeldCharge {
    /// Takes over `charged` bytes, which are charged to the group already.
    fn new(group: &Memcg, charged: ByteSize, retired: &Retired) -> Self {
        Self { group: group.clone(), charged, retired: ByteSize::ZERO, retired_bytes: retired.count() }
    }

    fn bytes(&self) -> ByteSize {
        self.charged.saturating_add(self.retired)
    }

    /// Charges the difference between `bytes` and the charged bytes; counts the difference as
    /// retired where there is no room.
    fn grow_to(&mut self, bytes: ByteSize) {
        let more = bytes.saturating_sub(self.charged);
        if more == ByteSize::ZERO || self.group.try_charge(more).is_ok() {
            self.charged = self.charged.saturating_add(more);
            self.set_retired(ByteSize::ZERO);
        } else {
            self.set_retired(more);
        }
    }

    /// Counts `bytes` as retired, and uncharges the charged bytes.
    fn retire(&mut self, bytes: ByteSize) {
        self.set_retired(bytes);
        if self.charged > ByteSize::ZERO {
            self.group.uncharge(std::mem::take(&mut self.charged));
        }
    }

    /// Splits off the bytes above `bytes`, the retired ones first.
    fn split_to(&mut self, bytes: ByteSize) -> Self {
        let more = self.bytes().saturating_sub(bytes);
        let retired = more.min(self.retired);
        let charged = more.saturating_sub(retired);
        self.retired = self.retired.saturating_sub(retired);
        self.charged = self.charged.saturating_sub(charged);
        Self { group: self.group.clone(), charged, retired, retired_bytes: Arc::clone(&self.retired_bytes) }
    }

    fn set_retired(&mut self, bytes: ByteSize) {
        let signed = |bytes: ByteSize| i64::try_from(bytes.get()).unwrap_or(i64::MAX);
        let before = std::mem::replace(&mut self.retired, bytes);
        if before != bytes {
            self.retired_bytes.add(signed(bytes) - signed(before));
        }
    }
}

impl Drop for HeldCharge {
    fn drop(&mut self) {
        self.retire(ByteSize::ZERO);
    }
}

impl<T> Charged<T> {
    /// The size of the heap block that all clones share: the value itself and its bookkeeping. A
    /// weigher adds the memory that the value owns.
    pub const BYTES: ByteSize = ByteSize::new((size_of::<ChargedInner<T>>() + 2 * size_of::<usize>()) as u64);

    /// Makes a value that keeps `charge` until its last clone is dropped. Aborts the process if the
    /// allocation fails.
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

    /// Returns the bytes that are charged for the value itself: by the [`Charge`] that was passed
    /// to [`new`](Self::new), or by a removed entry. Zero while only an entry is charged. This is
    /// an associated function because the value may have a method of this name.
    pub fn held_bytes(this: &Self) -> ByteSize {
        match &*this.inner.holding.lock() {
            Holding::Own(charge) => charge.bytes(),
            Holding::Entries(entries) => entries.held.as_ref().map_or(ByteSize::ZERO, |held| held.charged),
        }
    }

    /// Returns whether both are clones of one value.
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        Arc::ptr_eq(&this.inner, &other.inner)
    }

    /// Returns the functions that a cache of such values calls.
    pub(crate) fn held_values() -> HeldValues<Self> {
        HeldValues {
            enter: Self::enter,
            leave: Self::leave,
            withdraw: Self::withdraw,
            set_is_records: Self::set_is_records,
        }
    }

    /// Counts an entry that is charged `bytes` for the value. From now on this handle is that of
    /// the entry's record. Called before another thread can see the record. Returns the part of the
    /// value's own charge that the entry replaces; the caller drops it without a lock.
    fn enter(&self, bytes: ByteSize, retired: &Retired) -> Option<HeldCharge> {
        let mut holding = self.inner.holding.lock();
        let entries = holding.entries(retired);
        self.set_is_records(true);
        // Acquire and Release: each change of the word synchronizes with the change before it.
        self.inner.word.fetch_and(!(LEFT | HELD), Ordering::AcqRel);
        entries.count += 1;
        entries.charged = entries.charged.saturating_add(bytes);
        let missing = entries.missing();
        let held = entries.held.as_mut()?;
        let more = held.split_to(missing);
        if missing == ByteSize::ZERO {
            entries.held = None;
        }
        Some(more)
    }

    /// Ends an entry that was counted by [`enter`](Self::enter) and is removed. Returns the bytes
    /// that the caller has to uncharge from `group`; the value takes over the rest of `bytes` and
    /// outlives the record. `None`: the caller has to uncharge all `bytes`, which are then retired
    /// with the record.
    fn leave(&self, group: &Memcg, bytes: ByteSize, retired: &Retired) -> Option<ByteSize> {
        let mut holding = self.inner.holding.lock();
        let Holding::Entries(entries) = &mut *holding else { return None };
        entries.size = entries.size.max(bytes);
        self.inner.end_entry(entries, group, bytes, retired)
    }

    /// As [`leave`](Self::leave), for a record that was not inserted after all and that no other
    /// thread has seen. This handle is a reader's again.
    fn withdraw(&self, group: &Memcg, bytes: ByteSize, retired: &Retired) -> Option<ByteSize> {
        let mut holding = self.inner.holding.lock();
        let Holding::Entries(entries) = &mut *holding else { return None };
        self.set_is_records(false);
        self.inner.end_entry(entries, group, bytes, retired)
    }

    /// Stores whether this is a record's handle and not a reader's, and changes the reader count.
    /// Called while an entry has the value, so that no flag is set, or by `enter`, which clears the
    /// flags.
    fn set_is_records(&self, is_records: bool) {
        // Relaxed: read only through `&mut self`, by the thread that drops this handle.
        self.is_records.store(is_records, Ordering::Relaxed);
        let change = if is_records { ONE.wrapping_neg() } else { ONE };
        self.inner.word.fetch_add(change, Ordering::AcqRel);
    }
}

impl<T> ChargedInner<T> {
    /// Ends an entry for [`Charged::leave`] and [`Charged::withdraw`], and returns as they do.
    fn end_entry(&self, entries: &mut Entries, group: &Memcg, bytes: ByteSize, retired: &Retired) -> Option<ByteSize> {
        debug_assert!(entries.count > 0, "an entry leaves that has not entered");
        entries.count = entries.count.saturating_sub(1);
        entries.charged = entries.charged.saturating_sub(bytes);
        let missing = entries.missing();
        if entries.count == 0 && !self.set_left() {
            // For a late clone, and for the bytes that earlier entries have passed to the value.
            let held = entries.held.get_or_insert_with(|| HeldCharge::new(group, ByteSize::ZERO, retired));
            held.retire(missing.saturating_sub(bytes));
            return None;
        }
        if missing == ByteSize::ZERO {
            return Some(bytes);
        }
        let kept = bytes.min(missing);
        match &mut entries.held {
            // A value has one charge, of one group: the larger one is kept.
            Some(held) if held.bytes() > kept => {
                held.grow_to(missing);
                return Some(bytes);
            }
            held => {
                let held = held.insert(HeldCharge::new(group, kept, retired));
                held.grow_to(missing);
            }
        }
        Some(bytes.saturating_sub(kept))
    }

    /// Sets the flag of a value without entries: `LEFT`, or `HELD` if it has readers. Returns
    /// whether it has readers.
    fn set_left(&self) -> bool {
        let flag = |word| if word / ONE == 0 { LEFT } else { (word / ONE * ONE) | HELD };
        // Acquire and Release: as in `enter`.
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| Some(flag(word)));
        before.is_ok_and(|word| word / ONE > 0)
    }

    /// Counts the value's bytes again, for a late clone, which saw [`LEFT`].
    #[cold]
    fn count_late(&self) {
        let mut holding = self.holding.lock();
        // Another late clone, or a new entry, may have cleared `LEFT` before the lock was taken:
        // then the bytes are counted already.
        if self.word.load(Ordering::Acquire) & LEFT == 0 {
            return;
        }
        if let Holding::Entries(Entries { size, held: Some(held), .. }) = &mut *holding {
            held.grow_to(*size);
        }
        self.word.fetch_xor(LEFT | HELD, Ordering::AcqRel);
    }

    /// Counts the bytes as retired until the removed record is dropped, unless a reader or an entry
    /// has appeared meanwhile.
    #[cold]
    fn retire_last(&self) {
        let mut holding = self.holding.lock();
        if self.word.compare_exchange(HELD, LEFT, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            if let Holding::Entries(Entries { size, held: Some(held), .. }) = &mut *holding {
                held.retire(*size);
            }
        }
    }
}

impl<T> From<T> for Charged<T> {
    /// Makes a value without a charge, for a cache with
    /// [`charge_held_values`](crate::cache::CacheBuilder::charge_held_values).
    fn from(value: T) -> Self {
        Self::with(value, Holding::Entries(Entries::default()))
    }
}

impl<T> Clone for Charged<T> {
    #[inline]
    fn clone(&self) -> Self {
        // Acquire and Release: as in `enter`.
        if self.inner.word.fetch_add(ONE, Ordering::AcqRel) & LEFT != 0 {
            self.inner.count_late();
        }
        Self::of(Arc::clone(&self.inner))
    }
}

impl<T> Drop for Charged<T> {
    #[inline]
    fn drop(&mut self) {
        if *self.is_records.get_mut() {
            return;
        }
        // Acquire and Release: as in `enter`.
        let before = self.inner.word.fetch_sub(ONE, Ordering::AcqRel);
        // If this is the last handle, the drop of the value ends the charge.
        if before == ONE | HELD && Arc::strong_count(&self.inner) > 1 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use lowwater_lru_core::MemcgTree;

    #[test]
    fn a_value_whose_insert_has_no_memory_is_charged_as_before() {
        let tree = MemcgTree::new(1);
        let root = tree.root();
        let retired = Retired::new(root.clone());
        let bytes = ByteSize::kib(64);
        let usage = || {
            tree.drain_stock();
            (root.usage(), retired.bytes())
        };
        // Charges an entry and ends it: as removed, or as not inserted.
        let end = |value: &Charged<u64>, is_removed: bool| {
            let _within = root.try_charge(bytes).unwrap();
            drop(value.enter(bytes, &retired));
            let end = if is_removed { Charged::leave } else { Charged::withdraw };
            root.uncharge(end(value, root, bytes, &retired).unwrap_or(bytes));
        };
        let value = Charged::from(7);
        end(&value, false);
        assert_eq!(usage(), (ByteSize::ZERO, ByteSize::ZERO), "no entry had it");
        let record = value.clone();
        end(&record, true);
        assert_eq!(usage(), (bytes, ByteSize::ZERO));
        end(&value, false);
        assert_eq!(usage(), (bytes, ByteSize::ZERO));
        drop(value);
        assert_eq!(usage(), (ByteSize::ZERO, bytes), "the record is in memory");
        drop(record);
        assert_eq!(usage(), (ByteSize::ZERO, ByteSize::ZERO));
    }

    #[test]
    fn entries_of_several_groups_and_weights_leave_the_most_that_one_was_charged() {
        let tree = MemcgTree::new(1);
        let retired = Retired::new(tree.root().clone());
        let groups = ["a", "b"].map(|name| tree.root().create(name).unwrap());
        let [large, small] = [ByteSize::kib(64), ByteSize::kib(40)];
        let usage = || {
            tree.drain_stock();
            (groups[0].usage(), groups[1].usage(), retired.bytes())
        };
        let enter = |group: &Memcg, value: &Charged<u64>, bytes| {
            let _within = group.try_charge(bytes).unwrap();
            let record = value.clone();
            drop(record.enter(bytes, &retired));
            record
        };
        let leave = |group: &Memcg, record: &Charged<u64>, bytes| {
            group.uncharge(record.leave(group, bytes, &retired).unwrap_or(bytes));
        };
        let value = Charged::from(7);
        let first = enter(&groups[0], &value, large);
        leave(&groups[0], &first, large);
        assert_eq!(usage(), (large, ByteSize::ZERO, ByteSize::ZERO));
        let second = enter(&groups[1], &value, small);
        assert_eq!(usage(), (large.saturating_sub(small), small, ByteSize::ZERO), "the size in all");
        leave(&groups[1], &second, small);
        assert_eq!(usage(), (ByteSize::ZERO, large, ByteSize::ZERO), "the larger part's group");
        let third = enter(&groups[0], &value, ByteSize::kib(1));
        // A late clone without room.
        leave(&groups[0], &third, ByteSize::kib(1));
        drop(value);
        assert_eq!(usage(), (ByteSize::ZERO, ByteSize::ZERO, large));
        groups[1].set_max(small);
        let late = third.clone();
        assert_eq!(usage(), (ByteSize::ZERO, ByteSize::ZERO, large));
        let fourth = enter(&groups[0], &late, small);
        assert_eq!(usage(), (small, ByteSize::ZERO, large.saturating_sub(small)));
        leave(&groups[0], &fourth, small);
        assert_eq!(usage(), (large, ByteSize::ZERO, ByteSize::ZERO));
        drop((first, second, third, fourth));
        assert_eq!(usage(), (large, ByteSize::ZERO, ByteSize::ZERO));
        drop(late);
        assert_eq!(usage(), (ByteSize::ZERO, ByteSize::ZERO, ByteSize::ZERO));
    }
}
