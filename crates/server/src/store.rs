//! The cache, as the commands use it: no other module inserts into the cache or looks up in it.
//!
//! Each tenant is a group of a [`Runtime`], and each value is an entry of one [`Cache`], charged to
//! its key's tenant. The share of each tenant follows from the budget, the tenants' limits, and
//! their use of the cache. Three other limits are the server's: `item_bytes_max` for one value,
//! `receive_budget.rs` for all values that are being received, and `PIECES_PERCENT_MAX`
//! (`store/update.rs`) for the pieces of all values, evicted ones included.
//!
//! The library reclaims. This module and its submodules have the tenants, flushing, the checks and
//! waits of a store, and statistics.
//!
//! The keys of the cache are hashes (`store/key_hash.rs`), and each value contains its key. A
//! change must ensure that no method returns a value of another key, or a flushed one.

mod clock;
mod edit;
mod guarantees;
mod key_hash;
pub mod namespace;
pub mod prefix_stats;
mod removal_stats;
mod report;
mod runtime;
pub mod saved;
mod siphash;
pub mod tenant;
#[cfg(test)]
mod tests;
pub mod update;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use lowwater::cache::{Computed, Current, Op, Visit};
use lowwater::{ByteSize, Cache, RemovalCause, Runtime};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::protocol::expiry::Expiry;
use crate::receive_budget::ReceiveBudget;
use crate::settings::limits::Limits;
use crate::settings::Settings;
use crate::traffic::connection_permit::TenantPermit;
use crate::value::data::Data;
use crate::value::item_flags::ItemFlags;
use crate::value::item_number::ItemNumber;
use crate::value::piece_pool::{PiecePool, POOL_SHARE};
use crate::value::{heap_bytes_max, Value};
use crate::watchers::Watchers;

use clock::Clock;
use key_hash::{BuildIdentityHasher, KeyHash, KeyHasher};
use namespace::Namespace;
use removal_stats::RemovalStats;
use tenant::{Tenant, Tenants, CONFIGURED_MAX};

pub use edit::{Edit, Existing, OutOfMemory};
pub use removal_stats::RemovalCounts;
pub use report::{CountsAtReset, TenantReport};

/// The cache: by the hash of each key. The key itself is stored with its value.
type Values = Cache<KeyHash, Value, BuildIdentityHasher>;

/// Bytes of an entry, without the block of its key and value.
pub const ENTRY_BYTES: u64 = Values::ENTRY_BYTES.get();

/// Values by key in one budget, each charged to its key's tenant.
#[derive(Debug)]
pub struct Store {
    runtime: Runtime,
    cache: Values,
    hasher: KeyHasher,
    tenants: Arc<Tenants>,
    pool: Arc<PiecePool>,
    /// Notified while there are too many outstanding pieces: by stores that wait for them, and once
    /// a second.
    piece_shortage: Notify,
    removal_stats: Arc<RemovalStats>,
    /// The serial number that was assigned last.
    serial: AtomicU64,
    /// Values with numbers up to this are flushed: they are treated as absent, whether they have
    /// been dropped or not.
    flushed: AtomicU64,
    /// The clock of the access times of values.
    clock: Clock,
    /// The seconds of `clock`, as of the last [`update_clock`](Self::update_clock).
    clock_seconds: AtomicU32,
    /// Evict values when the memory is full.
    evict: bool,
    item_bytes_max: ByteSize,
    /// Locked while the budget or a tenant's limits are checked and changed.
    asked: Mutex<Asked>,
    /// [`Asked::mins`] if values are evicted; otherwise `min` has no effect, and this is 0.
    guaranteed: Arc<AtomicU64>,
    /// The counts at the last `stats reset`.
    counts_at_reset: Mutex<CountsAtReset>,
}

/// The budget that was asked for, which memory pressure may have lowered, and the guarantees in it.
#[derive(Debug)]
struct Asked {
    budget: ByteSize,
    /// The [`sum`](guarantees::sum) of all tenants' `min`, kept so that no change visits all
    /// tenants.
    mins: u128,
}

/// A key in a listing of all keys.
#[derive(Debug)]
pub struct ListedKey {
    pub key: Box<[u8]>,
    /// The key was sent in base64.
    pub binary: bool,
}

impl Store {
    /// Creates an empty store.
    ///
    /// # Errors
    ///
    /// A sentence with the reason why the runtime or the cache cannot be created.
    pub fn new(settings: &Settings, pool: &Arc<PiecePool>) -> Result<Self, String> {
        let item_bytes_max = ByteSize::new(settings.item_bytes_max as u64);
        if settings.evict {
            let mins = settings.limits.iter().map(|(_, limits)| limits.min);
            guarantees::check(guarantees::sum(mins), settings.budget, charge_max(item_bytes_max))?;
        }
        let runtime = runtime::build(settings)?;
        let tenants = Arc::new(Tenants::new(&runtime, settings.delimiter, &settings.limits, settings.evict)?);
        let removal_stats = Arc::new(RemovalStats::default());
        let clock = Clock::start();
        let (tenants_of_evicted, stats) = (Arc::clone(&tenants), Arc::clone(&removal_stats));
        let cache = Cache::<KeyHash, Value>::builder(&runtime)
            .name("values")
            .hasher(BuildIdentityHasher::default())
            .weigher(|_, value| weight(value))
            .eviction_listener(move |hash, value, cause| match cause {
                RemovalCause::Size => {
                    tenants_of_evicted.count_eviction(value.key());
                    stats.evicted(value.key(), value, idle_seconds(value, clock));
                }
                RemovalCause::Expired => stats.expired(*hash, value),
                _ => {}
            })
            .build()
            .map_err(|why| why.to_string())?;
        let (serial, flushed, evict) = (AtomicU64::new(0), AtomicU64::new(0), settings.evict);
        let pool = Arc::clone(pool);
        let hasher = KeyHasher::new();
        let mins = guarantees::sum(tenants.all().iter().map(|tenant| tenant.limits().min));
        let asked = Mutex::new(Asked { budget: settings.budget, mins });
        let store = Self {
            runtime,
            cache,
            hasher,
            tenants,
            pool,
            piece_shortage: Notify::new(),
            removal_stats,
            serial,
            flushed,
            clock,
            clock_seconds: AtomicU32::new(0),
            evict,
            item_bytes_max,
            asked,
            guaranteed: Arc::default(),
            counts_at_reset: Mutex::default(),
        };
        store.set_guaranteed(mins);
        Ok(store)
    }

    /// Publishes the sum of all `min` limits, after it was changed.
    fn set_guaranteed(&self, mins: u128) {
        // With evictions, the sum was checked against the budget.
        let mins = if self.evict { u64::try_from(mins).unwrap_or(u64::MAX) } else { 0 };
        // Relaxed: a limit that guards no other memory.
        self.guaranteed.store(mins, Ordering::Relaxed);
    }

    /// Creates the budget for the values that are being received.
    pub fn receive_budget(&self) -> Arc<ReceiveBudget> {
        ReceiveBudget::new(&self.runtime, self.evict, &self.guaranteed, self.item_bytes_max.get() as usize)
    }

    /// Calls `look` with the value under `key`, and returns its result. Counts as a read of the
    /// tenant and as a use of the value. `look` runs while the cache is pinned, which delays the
    /// release of freed memory.
    pub fn read<R>(&self, key: &[u8], look: impl FnOnce(&Value) -> R) -> Option<R> {
        let (pinned, hash) = (self.cache.pin(), self.hasher.hash(key));
        let value = self.live(pinned.get(&hash), hash, key);
        self.tenants.count_read(key, value.is_some());
        value.map(|value| {
            value.last_access.record_fetch(self.now_seconds());
            look(value)
        })
    }

    /// Returns the value under `key`, as [`read`](Self::read) does, but does not record the access
    /// in the value: [`mark_fetched`](Self::mark_fetched) does.
    pub fn find(&self, key: &[u8]) -> Option<Value> {
        let (pinned, hash) = (self.cache.pin(), self.hasher.hash(key));
        let value = self.live(pinned.get(&hash), hash, key);
        self.tenants.count_read(key, value.is_some());
        value.cloned()
    }

    /// Returns the value under `key`, as [`find`](Self::find) does, but does not count as a use of
    /// the value.
    pub fn peek(&self, key: &[u8]) -> Option<Value> {
        let (pinned, hash) = (self.cache.pin(), self.hasher.hash(key));
        let value = self.live(pinned.peek(&hash), hash, key);
        self.tenants.count_read(key, value.is_some());
        value.cloned()
    }

    /// Records a fetch of the value under `key`, and returns whether there is one.
    pub fn mark_fetched(&self, key: &[u8]) -> bool {
        let pinned = self.cache.pin();
        let value = pinned.peek(&self.hasher.hash(key)).filter(|value| self.is_live_at(value, key));
        value.inspect(|value| value.last_access.record_fetch(self.now_seconds())).is_some()
    }

    /// Counts a use of the value under `key`, if there is one; the use is no fetch, and no read of
    /// the tenant.
    pub fn mark_used(&self, key: &[u8]) {
        let pinned = self.cache.pin();
        let value = pinned.get(&self.hasher.hash(key)).filter(|value| self.is_live_at(value, key));
        if let Some(value) = value {
            value.last_access.record_store(self.now_seconds());
        }
    }

    /// Calls `look` with the value under `key` and the time left to it, and returns the last result
    /// of `look`, which may run more than once. Does not count as a use of the value.
    pub fn inspect<R>(&self, key: &[u8], mut look: impl FnMut(Existing<'_>) -> R) -> Option<R> {
        let mut seen = None;
        // `Op::Keep` inserts nothing, so the computation cannot be rejected.
        let _kept = self.cache.entry(self.hasher.hash(key)).and_compute(|current| {
            seen = current.filter(|there| self.is_live_at(there.value(), key)).map(|there| look(Existing::of(&there)));
            Op::Keep
        });
        seen
    }

    /// Returns the keys of the next part of all values; to be called until [`Visit::is_done`].
    pub fn keys(&self, at: &mut Visit) -> Vec<ListedKey> {
        let mut keys = Vec::new();
        self.visit(at, |value| keys.push(ListedKey { key: value.key().into(), binary: value.item_flags().binary }));
        keys
    }

    /// Calls `look` for the next part of all values; to be called until [`Visit::is_done`]. Does
    /// not count as a use of the values.
    pub fn visit(&self, at: &mut Visit, mut look: impl FnMut(&Value)) {
        self.cache.visit(at, |_, value| {
            if self.is_live(value) {
                look(value);
            }
        });
    }

    /// Removes all expired values.
    pub fn reap_expired(&self) {
        // `retain` removes expired entries by itself.
        self.cache.retain(|_, _| true);
    }

    /// Sets the expiry of the value under `key`, which counts as a use of the value, and returns
    /// whether there is one.
    pub fn touch(&self, key: &[u8], expiry: Expiry) -> bool {
        let is_found = self.touch_and_look(key, expiry, |_| ()).is_ok();
        if !is_found {
            // A touch is no read, also of an expired value.
            self.removal_stats.forget_expired();
        }
        is_found
    }

    /// Returns the value under `key` and sets its expiry, as one step. Counts as a read of the
    /// tenant and as a use of the value.
    pub fn read_and_touch(&self, key: &[u8], expiry: Expiry) -> Option<Value> {
        let value = self.touch_and_look(key, expiry, Value::clone);
        if let Err(is_flushed) = value {
            self.removal_stats.missed(self.hasher.hash(key), is_flushed);
        }
        self.tenants.count_read(key, value.is_ok());
        value.ok()
    }

    /// Calls `look` with the value under `key` and sets its expiry, as one step, and returns the
    /// last result of `look`, which may run more than once; if there is no value, whether a flushed
    /// one was found.
    fn touch_and_look<R>(&self, key: &[u8], expiry: Expiry, mut look: impl FnMut(&Value) -> R) -> Result<R, bool> {
        let mut seen = Err(false);
        // No value is inserted, so the computation cannot be rejected.
        let _touched = self.cache.entry(self.hasher.hash(key)).and_compute(|current| {
            let found = current.as_ref().map(Current::value).filter(|value| value.key() == key);
            seen = match found.filter(|value| self.is_live(value)) {
                Some(value) => {
                    value.last_access.record_fetch(self.now_seconds());
                    Ok(look(value))
                }
                None => Err(found.is_some()),
            };
            match expiry {
                _ if seen.is_err() => Op::Keep,
                Expiry::Past => Op::Remove,
                Expiry::Never | Expiry::In(_) => Op::Touch(expiry.time_to_live()),
            }
        });
        seen
    }

    /// Removes the value under `key`, and returns whether there was one.
    pub fn remove(&self, key: &[u8]) -> bool {
        self.take(key).is_some()
    }

    /// Removes the value under `key`, and returns it. A flushed value is removed too, and counts as
    /// none.
    pub fn take(&self, key: &[u8]) -> Option<Value> {
        // No value is inserted, so the computation cannot be rejected.
        let taken = self.cache.entry(self.hasher.hash(key)).and_compute(|current| match current {
            Some(there) if there.value().key() == key => Op::Remove,
            _ => Op::Keep,
        });
        match taken {
            Ok(Computed::Removed(value)) if self.is_live(&value) => Some(value),
            _ => None,
        }
    }

    /// Returns the present budget, which memory pressure may have lowered.
    pub fn budget(&self) -> ByteSize {
        self.runtime.root().max()
    }

    /// Returns the budget that was asked for last.
    pub fn asked_budget(&self) -> ByteSize {
        self.asked.lock().budget
    }

    /// Changes the budget at once; usage above the new budget is reclaimed in the background.
    ///
    /// # Errors
    ///
    /// A sentence, if the tenants' `min` limits do not fit into the new budget.
    pub fn set_budget(&self, budget: ByteSize) -> Result<(), String> {
        let mut asked = self.asked.lock();
        self.check_mins(asked.mins, budget)?;
        self.runtime.set_budget(budget);
        self.pool.set_bytes_max(budget.get() / POOL_SHARE);
        asked.budget = budget;
        Ok(())
    }

    /// Checks the sum of all tenants' `min` limits against `budget`.
    fn check_mins(&self, mins: u128, budget: ByteSize) -> Result<(), String> {
        match self.evict {
            true => guarantees::check(mins, budget, charge_max(self.item_bytes_max)),
            // Without evictions, `min` has no effect.
            false => Ok(()),
        }
    }

    /// Returns a permit for a connection of this namespace's tenant; `None` if the tenant has as
    /// many connections as it may have.
    pub fn admit_connection(&self, namespace: &Namespace) -> Option<TenantPermit> {
        TenantPermit::acquire(&self.tenants.named(namespace.tenant_name()).traffic)
    }

    /// Returns a tenant's limits, if the tenant exists.
    pub fn limits(&self, name: &str) -> Option<Limits> {
        self.tenants.find(name.as_bytes()).map(|tenant| tenant.limits())
    }

    /// Creates the tenants of these names of the configuration that do not exist. Those that were
    /// created before an error remain.
    ///
    /// # Errors
    ///
    /// A sentence, if there would be too many tenants.
    pub fn create_tenants<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Result<(), String> {
        names.try_for_each(|name| self.tenant(name, CONFIGURED_MAX).map(drop))
    }

    /// Returns the tenant of this name, and creates it if there are fewer than `max` tenants.
    fn tenant(&self, name: &str, max: usize) -> Result<Arc<Tenant>, String> {
        self.tenants.get_or_create(name.as_bytes(), max).ok_or_else(|| "there are too many tenants already".into())
    }

    /// Sets the limits of these tenants, all or none, and creates those that do not exist while
    /// there are fewer than `tenants_max`; usage above the limits is reclaimed in the background.
    /// Tenants that were created before an error remain, without new limits. Each tenant is named
    /// once in `changes`.
    ///
    /// # Errors
    ///
    /// A sentence, if there would be too many tenants, or if the `min` limits of all tenants do not
    /// fit into the budget.
    pub fn set_limits(&self, changes: &[(String, Limits)], tenants_max: usize) -> Result<(), String> {
        self.set_limits_within(&mut self.asked.lock(), changes, tenants_max)
    }

    /// Sets the limits of a tenant to the result of `change`, which gets the present limits, and
    /// creates the tenant as [`set_limits`](Self::set_limits) does. Of concurrent changes, each
    /// gets the limits that the one before has set. `change` runs under the lock.
    ///
    /// # Errors
    ///
    /// Those of `change` and of [`set_limits`](Self::set_limits); no limit is changed.
    pub fn change_limits(
        &self,
        name: &str,
        tenants_max: usize,
        change: impl FnOnce(Limits) -> Result<Limits, String>,
    ) -> Result<(), String> {
        // Before the limits are read: a change by another thread would be lost.
        let mut asked = self.asked.lock();
        let limits = change(self.limits(name).unwrap_or_default())?;
        self.set_limits_within(&mut asked, &[(name.to_owned(), limits)], tenants_max)
    }

    /// As [`set_limits`](Self::set_limits), in the budget that was asked for, which the caller has
    /// locked.
    fn set_limits_within(
        &self,
        asked: &mut Asked,
        changes: &[(String, Limits)],
        tenants_max: usize,
    ) -> Result<(), String> {
        let replaced = changes.iter().filter_map(|(name, _)| self.limits(name)).map(|limits| limits.min);
        let mins =
            asked.mins - guarantees::sum(replaced) + guarantees::sum(changes.iter().map(|(_, limits)| limits.min));
        // Not the present budget: under pressure a file of limits would be refused that was valid
        // at the start.
        self.check_mins(mins, asked.budget)?;
        let tenants = changes.iter().map(|(name, _)| self.tenant(name, tenants_max));
        let tenants: Vec<_> = tenants.collect::<Result<_, _>>()?;
        for (tenant, (_, limits)) in tenants.iter().zip(changes) {
            tenant.set_limits(*limits);
        }
        asked.mins = mins;
        self.set_guaranteed(mins);
        Ok(())
    }

    /// Returns the clients that watch events of the server.
    pub fn watchers(&self) -> &Watchers {
        &self.removal_stats.watchers
    }

    /// Makes all values that were created before this call absent, at once, whether they are stored
    /// already or not. [`drop_flushed`](Self::drop_flushed) frees their memory.
    pub fn flush(&self) {
        // Twice, so that no update stores a copy of a value that was created before this call. An
        // update creates the new value and then checks the old one again: if the new value's number
        // is above the second one of this flush, that check finds the first. A value that is
        // created between the two numbers, during the flush, may be absent, and a copy of it be
        // stored.
        for _ in 0..2 {
            // Release: pairs with the Acquire in `is_live`. Of two flushes, the one with the higher
            // number counts.
            self.flushed.fetch_max(self.next_serial(), Ordering::Release);
        }
    }

    /// Drops the values that [`flush`](Self::flush) has made absent.
    pub fn drop_flushed(&self) {
        self.cache.retain(|_, value| self.is_live(value));
    }

    /// Returns the counts of evicted and expired values.
    pub fn removal_counts(&self) -> RemovalCounts {
        self.removal_stats.removal_counts()
    }

    /// Returns `found`, the value that a read has found under the hash of `key`, if it is the live
    /// value of `key`; otherwise counts the reason why there is none.
    fn live<'a>(&self, found: Option<&'a Value>, hash: KeyHash, key: &[u8]) -> Option<&'a Value> {
        let live = found.filter(|value| self.is_live_at(value, key));
        if live.is_none() {
            self.removal_stats.missed(hash, found.is_some_and(|value| value.key() == key));
        }
        live
    }

    /// Returns whether `value` is the value of `key`, and not flushed.
    #[inline(always)] // A call would cost each `get` 12 instructions.
    fn is_live_at(&self, value: &Value, key: &[u8]) -> bool {
        value.key() == key && self.is_live(value)
    }

    /// Returns whether `value` is not flushed.
    fn is_live(&self, value: &Value) -> bool {
        // Acquire: pairs with the Release in `flush`. A thread that was told of a flush by the
        // thread that made it reads the number of that flush or of a later one, and so treats all
        // values that were created before the flush as flushed.
        let flushed = self.flushed.load(Ordering::Acquire);
        // Before the first flush, no number is read: all are above 0.
        flushed == 0 || value.serial() > flushed
    }

    /// Returns the runtime that the cache belongs to.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Creates a value to be stored, with the next serial number and an access now. `given` is its
    /// CAS number, if a client has given one.
    pub fn new_value(&self, key: &[u8], flags: u32, item_flags: ItemFlags, given: Option<u64>, data: &Data) -> Value {
        let value = Value::new(key, flags, item_flags, ItemNumber { serial: self.next_serial(), given }, data);
        value.last_access.record_store(self.now_seconds());
        value
    }

    /// Creates a value of `bytes`, as [`new_value`](Self::new_value) does.
    pub fn new_value_of(&self, key: &[u8], flags: u32, bytes: &[u8]) -> Value {
        let value = Value::of_bytes(key, flags, ItemFlags::default(), self.next_serial(), bytes, &self.pool);
        value.last_access.record_store(self.now_seconds());
        value
    }

    /// Returns a new serial number, higher than all before.
    pub fn next_serial(&self) -> u64 {
        // AcqRel: pairs with itself. A thread that gets a higher number than the second one of a
        // flush reads the first one of that flush from `flushed`.
        self.serial.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the seconds since the last use of `value`.
    pub fn idle_seconds(&self, value: &Value) -> u32 {
        idle_seconds(value, self.clock)
    }

    /// Reads the clock for the access times of the values that are used next: once for all requests
    /// that arrived together. Once a second, also wakes connections whose clients do not read, if
    /// there are too many outstanding pieces: stores of short values never wait for pieces.
    pub fn update_clock(&self) {
        let now = self.clock.seconds();
        // Relaxed, both: a time that guards no other memory. Stored only when it changes, as all
        // threads read its cache line. Of two threads, one may store an earlier second.
        if self.clock_seconds.load(Ordering::Relaxed) != now {
            self.clock_seconds.store(now, Ordering::Relaxed);
            self.notify_piece_shortage();
        }
    }

    /// Returns the seconds since the start, as of the last [`update_clock`](Self::update_clock).
    pub fn now_seconds(&self) -> u32 {
        // Relaxed: as in `update_clock`.
        self.clock_seconds.load(Ordering::Relaxed)
    }
}

fn weight(value: &Value) -> ByteSize {
    ByteSize::new(value.heap_bytes() as u64)
}

/// Returns the maximum charge of an item of up to `item_bytes` bytes, as `-I` counts them.
fn charge_max(item_bytes: ByteSize) -> ByteSize {
    ByteSize::new(heap_bytes_max(item_bytes.get() as usize) as u64).saturating_add(Values::ENTRY_BYTES)
}

fn idle_seconds(value: &Value, clock: Clock) -> u32 {
    clock.seconds().saturating_sub(value.last_access.last_used_seconds())
}
