//! Updates: read, decide and replace a value as one atomic step. A store waits while there is no
//! room.
//!
//! An update may be decided again if another client changed the value in between, so a decision
//! must have no effects. A store that finds no room waits for the reclaimer for a bounded time,
//! since the budget is mostly exhausted for milliseconds only.
//!
//! Two keys with one hash share an entry of the cache (`key_hash.rs`). A change must ensure that a
//! value is shown to an edit, or removed by it, only if its key is the requested one; a put
//! replaces the value of the other key, unless the new value expires at once.

use std::time::Duration;

use lowwater::cache::{Op, RejectReason};
use lowwater::ByteSize;

use super::edit::{Edit, Existing, OutOfMemory};
use super::tenant::Tenant;
use super::{weight, Store, Values};
use crate::protocol::expiry::Expiry;
use crate::receive_budget::ReceiveCharge;
use crate::timers;
use crate::value::Value;

/// The time for which a store without room waits before it tries again.
pub const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// The most pauses of a store, each before a further try: with [`ROOM_PAUSE`], half a second at
/// least.
pub const ROOM_PAUSES_MAX: u32 = 500;

/// After each of this many pauses, a store without room for its pieces tells it to connections
/// whose clients do not read.
const SHORTAGE_PAUSES: u32 = ROOM_PAUSES_MAX / 10;

/// A client that has taken less than this time to read its replies is not disconnected because of a
/// shortage of pieces: the replies may only be on their way.
pub const UNREAD_TIME_MIN: Duration = Duration::from_millis(ROOM_PAUSE.as_millis() as u64 * ROOM_PAUSES_MAX as u64 / 2);

/// The part of the budget to which the unread replies of all clients may always refer: half of what
/// `PIECES_PERCENT_MAX` leaves beyond the budget.
const UNREAD_PERCENT_MAX: u64 = (PIECES_PERCENT_MAX - 100) / 2;

/// Maximum of the memory in pieces (`value/piece_pool.rs`), in per cent of the budget; above it, no
/// long value is stored, and connections whose clients do not read are closed. Pieces beyond the
/// budget belong to values that the cache has evicted: most are held by the output of such clients,
/// some wait for a grace period.
const PIECES_PERCENT_MAX: u64 = 150;

/// Maximum length of a value that is stored regardless of `PIECES_PERCENT_MAX`: the size of a
/// connection's buffer. Not below `COMPLETE_BYTES_MAX` of `decoder.rs`.
const SHORT_BYTES_MAX: usize = 16 * 1024;

impl Store {
    /// Updates the value under `key` atomically: `edit` gets the existing value and returns its
    /// decision. If another client changes the value in between, `edit` runs again; only its last
    /// decision takes effect, and its last answer is returned. A value that is put there expires at
    /// `expiry`.
    ///
    /// Waits for room if there is none and values may be evicted, up to [`ROOM_PAUSES_MAX`] times
    /// [`ROOM_PAUSE`].
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]; the value under `key` is unchanged.
    pub async fn update<R>(
        &self,
        key: &[u8],
        expiry: Expiry,
        edit: impl FnMut(Option<Existing<'_>>) -> (Edit, R),
    ) -> Result<R, OutOfMemory> {
        self.update_received(key, expiry, ReceiveCharge::default(), edit).await
    }

    /// Stores a value of `bytes` under `key` at once, whatever is there. Returns false if there is
    /// no room now, the value expires at once, or nothing may be evicted: then the caller uses
    /// [`update`](Self::update). `bytes` are at most `SHORT_BYTES_MAX`, as pieces are not counted.
    pub fn try_set(&self, key: &[u8], expiry: Expiry, flags: u32, bytes: &[u8]) -> bool {
        if !self.evict || expiry == Expiry::Past {
            return false;
        }
        let tenant = self.tenants.for_key(key);
        let entry = self.cache.entry(self.hasher.hash(key)).group(&tenant.group);
        let entry = match expiry {
            Expiry::In(time) => entry.time_to_live(time),
            Expiry::Never | Expiry::Past => entry.forever(),
        };
        entry.set(self.new_value_of(key, flags, bytes)).is_ok()
    }

    /// Updates the value under `key` as [`update`](Self::update) does, with a value that was just
    /// received. `charge` is the charge of its reception: uncharged before each attempt, charged
    /// again while waiting for room.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]; the value under `key` is unchanged.
    pub async fn update_received<R>(
        &self,
        key: &[u8],
        expiry: Expiry,
        mut charge: ReceiveCharge,
        mut edit: impl FnMut(Option<Existing<'_>>) -> (Edit, R),
    ) -> Result<R, OutOfMemory> {
        let mut waits = 0;
        loop {
            charge.uncharge();
            let refused = match self.try_update(key, expiry, &mut edit) {
                Ok(answer) => return Ok(answer),
                Err(refused) => refused,
            };
            if waits % SHORTAGE_PAUSES == 0 {
                self.notify_piece_shortage();
            }
            match refused {
                RejectReason::NoRoom { .. } | RejectReason::HeldByReaders { .. }
                    if self.evict && waits < ROOM_PAUSES_MAX =>
                {
                    waits += 1;
                    charge.recharge();
                    timers::sleep(ROOM_PAUSE).await;
                }
                _ => return Err(OutOfMemory),
            }
        }
    }

    /// Tries once to update the value under `key`: reads it, calls `edit`, and replaces it in one
    /// step of the cache.
    ///
    /// # Errors
    ///
    /// The cache's reason; or `NoRoom`, if pieces or tenant have no room for the value.
    fn try_update<R>(
        &self,
        key: &[u8],
        expiry: Expiry,
        edit: &mut impl FnMut(Option<Existing<'_>>) -> (Edit, R),
    ) -> Result<R, RejectReason> {
        let hash = self.hasher.hash(key);
        let mut missing = None;
        let tenant = match self.tenants.find_for_key(key) {
            Some(tenant) => tenant,
            None => {
                // An update that stores nothing under a missing key must not create the key's
                // tenant.
                if !self.cache.pin().peek(&hash).is_some_and(|value| self.is_live_at(value, key)) {
                    let decided = edit(None);
                    if let (Edit::Keep | Edit::Remove | Edit::Touch(_), answer) = decided {
                        return Ok(answer);
                    }
                    missing = Some(decided);
                }
                self.tenants.for_key(key)
            }
        };
        let entry = self.cache.entry(hash).group(&tenant.group);
        let entry = match expiry {
            Expiry::In(time) => entry.time_to_live(time),
            Expiry::Never | Expiry::Past => entry.forever(),
        };
        let mut full = false;
        let mut answer = None;
        let done = entry.and_compute(|current| {
            let is_anothers = current.as_ref().is_some_and(|there| there.value().key() != key);
            let there = current.as_ref().filter(|there| self.is_live_at(there.value(), key)).map(Existing::of);
            let mut made = missing.take().filter(|_| there.is_none()).unwrap_or_else(|| edit(there));
            // A flush since the first check: a value made of the flushed one must not stay.
            if there.is_some_and(|there| !self.is_live(there.value)) {
                made = edit(None);
            }
            let (edit, decided) = made;
            answer = Some(decided);
            let edit = match edit {
                // The value expires at once, so it is not stored.
                Edit::Put(_) if expiry == Expiry::Past => Edit::Remove,
                Edit::PutFor(_, Expiry::Past) | Edit::Touch(Expiry::Past) => Edit::Remove,
                edit => edit,
            };
            match edit {
                Edit::Keep => Op::Keep,
                Edit::Remove | Edit::Touch(_) if is_anothers => Op::Keep,
                Edit::Remove => Op::Remove,
                Edit::Touch(expiry) => Op::Touch(expiry.time_to_live()),
                Edit::Put(value) | Edit::PutFor(value, _) | Edit::Change(value)
                    if !self.fits_pieces(&value) || !self.has_room(&tenant, &value) =>
                {
                    full = true;
                    Op::Keep
                }
                Edit::Put(value) => Op::Put(value),
                Edit::PutFor(value, expiry) => Op::PutFor(value, expiry.time_to_live()),
                Edit::Change(value) => Op::Update(value),
            }
        });
        match done {
            Ok(_) if full => Err(RejectReason::NoRoom { bytes: ByteSize::ZERO, group: tenant.group.path() }),
            Ok(_) => Ok(answer.expect("`and_compute` calls its closure at least once")),
            Err(refused) => Err(refused.reason),
        }
    }

    /// Returns whether `value` may be inserted for `tenant`. Without evictions, nothing may be
    /// reclaimed for a value, so its room is checked before the insert.
    pub(super) fn has_room(&self, tenant: &Tenant, value: &Value) -> bool {
        let bytes = weight(value).saturating_add(Values::ENTRY_BYTES);
        self.evict || tenant.has_room(bytes) || {
            // Recently freed bytes may still be in the stock of a processor.
            self.runtime.tree().drain_stock();
            tenant.has_room(bytes)
        }
    }

    /// Returns whether `value` is short, or the outstanding pieces are few enough for a long one.
    fn fits_pieces(&self, value: &Value) -> bool {
        value.len() <= SHORT_BYTES_MAX || !self.is_short_of_pieces()
    }

    /// Returns whether there are so many outstanding pieces that no long value is stored.
    pub fn is_short_of_pieces(&self) -> bool {
        let are_many = || self.pool.outstanding_bytes() > self.part_of_budget(PIECES_PERCENT_MAX);
        are_many() && {
            // Some pieces may only wait for a grace period.
            self.cache.collect();
            are_many()
        }
    }

    /// Wakes connections whose clients do not read, if there are too many outstanding pieces.
    #[cold] // Called once a second within the path of each read.
    pub(super) fn notify_piece_shortage(&self) {
        if self.is_short_of_pieces() {
            self.piece_shortage.notify_waiters();
        }
    }

    /// Resolves when there are too many outstanding pieces: see `notify_piece_shortage`.
    pub async fn piece_shortage(&self) {
        self.piece_shortage.notified().await;
    }

    /// Returns the most bytes to which the unread replies of all clients may refer without any of
    /// them being disconnected.
    pub fn unread_bytes_max(&self) -> u64 {
        self.part_of_budget(UNREAD_PERCENT_MAX)
    }

    fn part_of_budget(&self, percent: u64) -> u64 {
        self.budget().get().saturating_mul(percent) / 100
    }
}
