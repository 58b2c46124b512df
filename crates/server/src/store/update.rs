//! Updates: a value is read, decided upon and replaced as one step, and a store waits while there
//! is no room.

use std::time::Duration;

use lowwater::cache::{Op, RejectReason};
use lowwater::ByteSize;

use super::edit::{Edit, Existing, OutOfMemory};
use super::{weight, Store, Values};
use crate::protocol::expiry::Expiry;
use crate::receive_budget::ReceiveCharge;
use crate::value::Value;

/// When there is no room at the moment, a store waits for the reclaimer: so long, so many times.
pub const ROOM_PAUSE: Duration = Duration::from_millis(1);
pub const ROOM_TRIES_MAX: u32 = 500;

/// What the pieces of values take may be so much of the budget, in parts of a hundred, or nothing
/// long is stored: beyond the budget are those that clients hold who do not read, while the cache
/// has dropped them, and a few that wait for readers.
const PIECES_PERCENT_MAX: u64 = 150;

/// What is not long: a connection's buffers are as large.
const SHORT_BYTES_MAX: usize = 16 * 1024;

impl Store {
    /// Changes what is under `key`, atomically: `edit` sees the value there and decides. If another
    /// client changes it in between, `edit` is asked again; its last answer is the one that was
    /// carried out, and comes back. What it puts there lives until `expiry`.
    ///
    /// If there is no room now, waits for it.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]; what was under `key` is unchanged.
    pub async fn update<R>(
        &self,
        key: &[u8],
        expiry: Expiry,
        edit: impl FnMut(Option<Existing<'_>>) -> (Edit, R),
    ) -> Result<R, OutOfMemory> {
        self.update_received(key, expiry, ReceiveCharge::default(), edit).await
    }

    /// As [`update`](Self::update), with a value that has just arrived, and what it was charged for
    /// until now.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn update_received<R>(
        &self,
        key: &[u8],
        expiry: Expiry,
        mut charge: ReceiveCharge,
        mut edit: impl FnMut(Option<Existing<'_>>) -> (Edit, R),
    ) -> Result<R, OutOfMemory> {
        for _ in 0..ROOM_TRIES_MAX {
            charge.uncharge();
            match self.try_update(key, expiry, &mut edit) {
                Ok(answer) => return Ok(answer),
                Err(RejectReason::NoRoom { .. } | RejectReason::HeldByReaders { .. }) if self.evict => {
                    charge.recharge();
                    tokio::time::sleep(ROOM_PAUSE).await;
                }
                Err(_) => return Err(OutOfMemory),
            }
        }
        Err(OutOfMemory)
    }

    fn try_update<R>(
        &self,
        key: &[u8],
        expiry: Expiry,
        edit: &mut impl FnMut(Option<Existing<'_>>) -> (Edit, R),
    ) -> Result<R, RejectReason> {
        let hash = self.hasher.hash(key);
        let mut missing = None;
        if !self.cache.contains_key(&hash) {
            let decided = edit(None);
            // A key that is not there and is to stay away makes no tenant.
            if let (Edit::Keep | Edit::Remove, answer) = decided {
                return Ok(answer);
            }
            missing = Some(decided);
        }
        let tenant = self.tenants.for_key(key);
        let entry = self.cache.entry(hash).group(&tenant.group);
        let entry = match expiry {
            Expiry::In(time) => entry.time_to_live(time),
            Expiry::Never | Expiry::Past => entry.forever(),
        };
        // Without evictions, nothing is to be reclaimed for a value; so it is not put there to try.
        let has_room = |value: &Value| {
            let bytes = weight(value).saturating_add(Values::ENTRY_BYTES);
            self.evict || tenant.has_room(bytes) || {
                // What was freed lately may lie in a thread's stock.
                self.runtime.tree().drain_stock();
                tenant.has_room(bytes)
            }
        };
        let mut full = false;
        let mut answer = None;
        let done = entry.and_compute(|current| {
            let is_anothers = current.as_ref().is_some_and(|there| there.value().key() != key);
            let there = current.as_ref().filter(|there| self.is_live_at(there.value(), key)).map(Existing::of);
            let (edit, decided) = missing.take().filter(|_| there.is_none()).unwrap_or_else(|| edit(there));
            answer = Some(decided);
            match edit {
                Edit::Keep => Op::Keep,
                Edit::Remove if is_anothers => Op::Keep,
                Edit::Remove => Op::Remove,
                // Stored, and over at once.
                Edit::Put(_) if expiry == Expiry::Past => Op::Remove,
                Edit::Put(value) | Edit::Change(value) if !self.fits_pieces(&value) || !has_room(&value) => {
                    full = true;
                    Op::Keep
                }
                Edit::Put(value) => Op::Put(value),
                Edit::Change(value) => Op::Update(value),
            }
        });
        match done {
            Ok(_) if full => Err(RejectReason::NoRoom { bytes: ByteSize::ZERO, group: tenant.group.path() }),
            Ok(_) => Ok(answer.expect("a computation asks at least once")),
            Err(refused) => Err(refused.reason),
        }
    }

    /// Returns whether `value` is short, or the outstanding pieces are few enough for a long one.
    fn fits_pieces(&self, value: &Value) -> bool {
        let are_few = || self.pool.outstanding_bytes() <= self.budget().get().saturating_mul(PIECES_PERCENT_MAX) / 100;
        value.len() <= SHORT_BYTES_MAX || are_few() || {
            // Some may only wait for readers of the cache.
            self.cache.collect();
            are_few()
        }
    }
}
