//! One cached item: key, value, deadline, charge, use count, links.
//!
//! The fields are packed by hand, since the bytes of each record beyond key and value are the cost
//! of the cache itself. A change must keep the documented lock or owner for each field, and the
//! size, which the tests check.

use std::sync::atomic::{AtomicU32, AtomicU8, Ordering};

use lowwater_base::packed_size::PackedSize;
use lowwater_lru_core::ByteSize;
use lowwater_store::slab::SlotState;
use lowwater_store::{slotted, CompressedLinks, Slot};

use super::expiry::deadline::Deadline;
use super::policy::queue::Queue;
use super::removal::RemovalCause;
use crate::runtime::GHOST_BYTES_PER_ENTRY;

/// A cached item, in a slot of its cache's slab. The record is in the index until it is unlinked;
/// its handle is on a list of the record's group, or with the thread that took the record off the
/// list.
// The field order keeps the fields that readers access together. A record is 24 bytes plus the key
// and the value.
#[doc(alias = "CacheItem")]
#[repr(C)]
pub(super) struct Record<K, V> {
    pub(super) key: K,
    pub(super) value: V,
    deadline: AtomicU32,
    charge: ChargeAndUses,
    /// The queue, the removal cause or the mark of a reload and the epoch, and two flags.
    state: SlotState,
    links: CompressedLinks,
}

slotted!(impl[K: Send + Sync + 'static, V: Send + Sync + 'static] for Record<K, V> { links, state, weight: |e| e.retired_bytes().get() });

/// The owning handle of a record.
pub(super) type Handle<K, V> = Slot<Record<K, V>>;

/// The bytes that a record's group was charged for the record, in 22 bits, which never change; and
/// the record's use count in the two bits above.
///
/// The use count is an estimate, and a lost increment does no harm: it is loaded and stored, not
/// updated by a read-modify-write instruction, which would delay the next lookup's loads until this
/// record's cache line has arrived.
struct ChargeAndUses {
    // As bytes, so that there is no padding before the state.
    low: [u8; 2],
    high: AtomicU8,
}

/// A charge in 22 bits: exact below 256 KiB, above rounded up by less than 1/2^16. From 256 TiB on,
/// the largest number that fits.
type Charge = PackedSize<18>;

/// The use count is in the two highest bits of the byte that it shares with the charge.
const USES_SHIFT: u32 = 6;
/// The record belongs to the main queue; otherwise to the probation queue.
const IN_MAIN: u8 = 1;
/// The removal cause: three bits.
const CAUSE_SHIFT: u32 = 1;
const CAUSE_MAX: u8 = 7;
const CAUSE: u8 = CAUSE_MAX << CAUSE_SHIFT;
/// In place of a cause, while the record is in the index: a reload of it has begun.
const RELOADING: u8 = CAUSE_MAX;
/// The same, and no cause, for a record that was inserted in an odd epoch (`clear.rs`).
const ODD_RELOADING: u8 = CAUSE_MAX - 1;
const ODD: u8 = CAUSE_MAX - 2;
/// In a record without a removal cause: a copy has taken its place. In one with a cause: it was
/// cleared (`clear.rs`).
const MOVED: u8 = 1 << 4;
/// The value outlives the record, for readers or in other entries, and is charged separately.
const LEFT_CHARGE: u8 = 1 << 5;
/// Removal causes by their stored number, which is the cause's discriminant plus one; 0 is none.
const CAUSES: [Option<RemovalCause>; CAUSE_MAX as usize + 1] = [
    None,
    Some(RemovalCause::Expired),
    Some(RemovalCause::Explicit),
    Some(RemovalCause::Replaced),
    Some(RemovalCause::Size),
    None,
    None,
    None,
];

const _: () = {
    let state_bits = IN_MAIN | CAUSE | MOVED | LEFT_CHARGE;
    assert!(state_bits & SlotState::OWN == state_bits, "bits of the owner");
};

/// The index memory per record, in bytes: a bucket of 64 bytes for twelve records is between 5/12
/// and 5/6 full, and mostly above 3/5. Also covers the free slots that slabs keep.
const INDEX_BYTES: usize = 8;

impl<K, V> Record<K, V> {
    /// The bytes of a record beyond the memory that its key and value own: the record, its index
    /// slot, and its share of the ghost table.
    pub(super) const BYTES: u64 = (size_of::<Self>() + INDEX_BYTES + GHOST_BYTES_PER_ENTRY) as u64;

    /// Returns a record on probation, until [`set_queue`](Self::set_queue) changes that. `charge`
    /// was made by [`rounded`].
    #[inline]
    pub(super) fn new(key: K, value: V, deadline: Deadline, charge: ByteSize) -> Self {
        let deadline = AtomicU32::new(deadline.raw());
        Self {
            key,
            value,
            deadline,
            charge: ChargeAndUses::new(Charge::pack(charge.get())),
            state: SlotState::new(0),
            links: CompressedLinks::new(),
        }
    }

    /// Returns the bytes that the group was charged for the record.
    #[inline]
    pub(super) fn charge(&self) -> ByteSize {
        ByteSize::new(self.charge.charge().unpack())
    }

    /// Counts a use. Does not write if the count is at its maximum, which is the common case for
    /// frequently read records.
    #[inline]
    pub(super) fn mark_used(&self) {
        self.charge.count_use();
    }

    /// Returns the use count.
    #[inline]
    pub(super) fn uses(&self) -> u8 {
        self.charge.uses()
    }

    /// Stores the use count, at most 3.
    pub(super) fn set_uses(&self, left: u8) {
        self.charge.set_uses(left);
    }

    /// Returns the queue whose list has the record, or will have it. Once the record is in the
    /// index, changed only under its segment's lock.
    #[inline]
    pub(super) fn queue(&self) -> Queue {
        if self.state.bits() & IN_MAIN == 0 {
            Queue::Probation
        } else {
            Queue::Main
        }
    }

    /// Stores the queue; see [`queue`](Self::queue).
    pub(super) fn set_queue(&self, queue: Queue) {
        if self.queue() != queue {
            self.state.update(|bits| Some(bits ^ IN_MAIN));
        }
    }

    /// Takes over the use count of the record that this one replaces, and stores `queue`. The
    /// record is on no list yet.
    pub(super) fn inherit(&self, from: &Self, queue: Queue) {
        self.set_uses(from.uses().max(self.uses()));
        self.set_queue(queue);
    }

    /// Returns the removal cause, for the owner of the handle. Stored under the segment's lock by
    /// the thread that removes the record from the index; none before.
    #[inline]
    pub(super) fn cause(&self) -> Option<RemovalCause> {
        CAUSES[usize::from(self.state.bits() >> CAUSE_SHIFT & CAUSE_MAX)]
    }

    /// Stores the cause; see [`cause`](Self::cause).
    pub(super) fn set_cause(&self, cause: RemovalCause, was_cleared: bool) {
        self.state.update(|bits| Some(Self::with_cause(bits, cause, was_cleared)));
    }

    /// Returns whether the removed record was cleared.
    #[inline]
    pub(super) fn was_cleared(&self) -> bool {
        self.state.bits() & MOVED != 0 && self.cause().is_some()
    }

    /// Returns whether a reload of the record in the index has begun, and perhaps ended without a
    /// new value. Stored under the segment's lock.
    #[inline]
    pub(super) fn is_reloading(&self) -> bool {
        self.state.bits() >> CAUSE_SHIFT & CAUSE_MAX >= ODD_RELOADING
    }

    /// Marks the record in the index; see [`is_reloading`](Self::is_reloading).
    pub(super) fn set_reloading(&self) {
        let mark = if self.is_odd() { ODD_RELOADING } else { RELOADING };
        self.state.update(|bits| Some(bits & !CAUSE | mark << CAUSE_SHIFT));
    }

    /// Returns whether the record was inserted in an odd epoch (`clear.rs`); false after its
    /// removal.
    #[inline]
    pub(super) fn is_odd(&self) -> bool {
        matches!(self.state.bits() >> CAUSE_SHIFT & CAUSE_MAX, ODD | ODD_RELOADING)
    }

    /// Returns whether the record was inserted in an epoch of this parity, which is past; of a
    /// removed record, whether it was cleared.
    #[inline]
    pub(super) fn is_of_epoch(&self, is_odd: bool) -> bool {
        let bits = self.state.bits();
        match bits >> CAUSE_SHIFT & CAUSE_MAX {
            0 | RELOADING => !is_odd,
            ODD | ODD_RELOADING => is_odd,
            _ => bits & MOVED != 0,
        }
    }

    /// Stores the epoch; see [`is_odd`](Self::is_odd). The record is in no index, and is not
    /// reloaded.
    #[inline]
    pub(super) fn set_odd(&self, is_odd: bool) {
        if self.is_odd() != is_odd {
            let mark = if is_odd { ODD } else { 0 };
            self.state.update(|bits| Some(bits & !CAUSE | mark << CAUSE_SHIFT));
        }
    }

    /// Returns the bits of a record's state with this cause.
    #[inline]
    pub(super) fn with_cause(bits: u8, cause: RemovalCause, was_cleared: bool) -> u8 {
        let number = cause as u8 + 1;
        bits & !CAUSE | number << CAUSE_SHIFT | if was_cleared { MOVED } else { 0 }
    }

    /// Returns whether the record is in the index. A thread that has put the handle on a list, and
    /// finds the record indexed, leaves the handle to the thread that will unlink the record.
    #[inline]
    pub(super) fn is_indexed(&self) -> bool {
        self.state.is_still_indexed()
    }

    /// Returns whether a copy has taken the record's place. Stored under the segment's lock.
    pub(super) fn was_moved(&self) -> bool {
        self.state.bits() & MOVED != 0 && self.cause().is_none()
    }

    /// Marks the record as moved; see [`was_moved`](Self::was_moved).
    pub(super) fn set_moved(&self) {
        self.state.update(|bits| Some(bits | MOVED));
    }

    /// Marks the value of the removed record as charged separately.
    pub(super) fn set_left_charge(&self) {
        self.state.update(|bits| Some(bits | LEFT_CHARGE));
    }

    /// Returns the bytes of the record that count as retired until it is dropped: a value that
    /// outlives the record is still charged, so its bytes are not included.
    pub(super) fn retired_bytes(&self) -> ByteSize {
        match self.state.bits() & LEFT_CHARGE {
            0 => self.charge(),
            _ => self.own_bytes(),
        }
    }

    /// Returns the part of the charge that is for the record itself.
    pub(super) fn own_bytes(&self) -> ByteSize {
        self.charge().min(ByteSize::new(Self::BYTES))
    }

    /// Returns the part of the charge that is for the value, and for the memory that the key owns.
    pub(super) fn value_bytes(&self) -> ByteSize {
        self.charge().saturating_sub(self.own_bytes())
    }

    /// Returns the record's deadline. Once the record is in the index, changed only under its
    /// segment's lock.
    #[inline]
    pub(super) fn deadline(&self) -> Deadline {
        // Relaxed: the deadline orders no other memory.
        Deadline::from_raw(self.deadline.load(Ordering::Relaxed))
    }

    pub(super) fn set_deadline(&self, at: Deadline) {
        // Relaxed: the deadline orders no other memory.
        self.deadline.store(at.raw(), Ordering::Relaxed);
    }
}

/// Returns the charge that a record can store for `bytes`: the same, or slightly more; less only
/// for more than 256 TiB.
#[inline]
pub(super) fn rounded(bytes: ByteSize) -> ByteSize {
    match bytes.get() < Charge::EXACT_END {
        true => bytes,
        false => ByteSize::new(Charge::pack(bytes.get()).unpack()),
    }
}

impl ChargeAndUses {
    #[inline]
    fn new(charge: Charge) -> Self {
        let [low, more, high, _] = charge.bits().to_le_bytes();
        Self { low: [low, more], high: AtomicU8::new(high) }
    }

    #[inline]
    fn charge(&self) -> Charge {
        let high = u32::from(self.high() % (1 << USES_SHIFT));
        Charge::from_bits(high << 16 | u32::from(u16::from_le_bytes(self.low)))
    }

    #[inline]
    fn uses(&self) -> u8 {
        self.high() >> USES_SHIFT
    }

    /// Counts one use, up to the maximum.
    #[inline]
    fn count_use(&self) {
        if let Some(one_more) = self.high().checked_add(1 << USES_SHIFT) {
            // Relaxed: as in `set_uses`.
            self.high.store(one_more, Ordering::Relaxed);
        }
    }

    /// Stores the use count. Of two concurrent stores, either may win.
    #[inline]
    fn set_uses(&self, uses: u8) {
        // Relaxed: the other bits of the byte are a part of the charge, which never changes, so all
        // stores write the same bits there.
        let charge = self.high() % (1 << USES_SHIFT);
        self.high.store(charge | (uses << USES_SHIFT), Ordering::Relaxed);
    }

    #[inline]
    fn high(&self) -> u8 {
        // Relaxed: the use count orders no other memory, and the charge was stored before the
        // record became visible to other threads.
        self.high.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_costs_24_bytes_beyond_key_and_value() {
        assert_eq!(size_of::<Record<u64, u64>>(), 40);
        assert_eq!(size_of::<Record<[u64; 3], [u64; 3]>>(), 72);
    }

    #[test]
    fn use_count_and_charge_do_not_change_each_other() {
        for bytes in [0, 1, 255, 65_535, 200_000, 1 << 30, 1 << 47] {
            let record = Record::new((), (), Deadline::NEVER, rounded(ByteSize::new(bytes)));
            for expected in [0, 1, 2, 3, 3] {
                assert_eq!((record.uses(), record.charge()), (expected, rounded(ByteSize::new(bytes))));
                record.mark_used();
            }
            record.set_uses(1);
            assert_eq!(record.cause(), None);
            record.set_cause(RemovalCause::Replaced, false);
            assert_eq!(record.queue(), Queue::Probation);
            record.set_queue(Queue::Main);
            assert_eq!((record.uses(), record.charge()), (1, rounded(ByteSize::new(bytes))));
            assert_eq!((record.queue(), record.cause()), (Queue::Main, Some(RemovalCause::Replaced)));
        }
    }

    #[test]
    fn each_cause_is_stored_and_a_new_record_has_none() {
        for cause in CAUSES.into_iter().flatten() {
            let record = Record::new((), (), Deadline::NEVER, ByteSize::ZERO);
            assert_eq!((record.cause(), record.was_cleared()), (None, false));
            record.set_cause(cause, false);
            assert_eq!((record.cause(), record.was_cleared(), record.queue()), (Some(cause), false, Queue::Probation));
            record.set_cause(cause, true);
            assert_eq!((record.cause(), record.was_cleared(), record.was_moved()), (Some(cause), true, false));
        }
    }

    #[test]
    fn epoch_reload_and_move_do_not_change_each_other() {
        for is_odd in [false, true, false] {
            let record = Record::new((), (), Deadline::NEVER, ByteSize::ZERO);
            record.set_queue(Queue::Main);
            record.set_odd(!is_odd);
            record.set_odd(is_odd);
            assert_eq!((record.is_odd(), record.is_reloading(), record.cause()), (is_odd, false, None));
            record.set_reloading();
            record.set_moved();
            assert_eq!((record.is_odd(), record.is_reloading(), record.cause()), (is_odd, true, None));
            assert_eq!((record.was_moved(), record.was_cleared(), record.queue()), (true, false, Queue::Main));
            record.set_cause(RemovalCause::Explicit, false);
            assert_eq!((record.is_odd(), record.is_reloading()), (false, false));
        }
    }
}
