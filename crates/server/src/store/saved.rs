//! Saving all values, and loading them into a new store.
//!
//! The cache saves entries with their use counts ([`Meta`]), in no order; the store sorts them by
//! count, so that the least used are written first. A change must ensure that no value is saved
//! twice or missed because its count changes, and that a value without the memory for it is skipped
//! and counted, and never ends the load.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lowwater::cache::{Loaded, Meta, Op};

use super::key_hash::KeyHash;
use super::Store;
use crate::value::data::Data;
use crate::value::item_flags::ItemFlags;
use crate::value::item_number::ItemNumber;
use crate::value::Value;

/// The number of possible use counts: see [`Meta::heat`].
const HEATS: usize = 8;

/// The shortest time left of a value that has not expired: the file stores whole milliseconds.
const LEFT_MIN: Duration = Duration::from_millis(1);

/// A value to be loaded.
#[derive(Debug)]
pub struct LoadedValue {
    pub value: Value,
    /// The time that was left to it when the save began; `None`: it does not expire.
    pub left: Option<Duration>,
    /// The use count: see [`Meta::heat`].
    pub heat: u8,
}

impl Store {
    /// Calls `save` for each value, with the time that was left to it when this call began, and its
    /// use count, the least used first, and returns the number of values. `save` runs while the
    /// cache is pinned, as for [`Cache::save`](lowwater::Cache::save).
    ///
    /// One walk notes the hash and the use count of each value, and each value is then looked up:
    /// so a value whose count changes meanwhile is saved once. Needs 8 bytes of memory for each
    /// value. O(all values).
    ///
    /// # Errors
    ///
    /// The first error of `save`.
    pub fn save<E>(&self, mut save: impl FnMut(&Value, Option<Duration>, u8) -> Result<(), E>) -> Result<u64, E> {
        let begun = Instant::now();
        let mut hashes: [Vec<KeyHash>; HEATS] = Default::default();
        self.cache.save(|hash, value, meta| {
            if self.is_live(value) {
                // A heat is below `HEATS`; the last list would take any other.
                hashes[usize::from(meta.heat).min(HEATS - 1)].push(*hash);
            }
            Ok(())
        })?;
        let mut saved = 0;
        for (heat, hashes) in (0..).zip(hashes) {
            for hash in hashes {
                let mut outcome = Ok(());
                // `Op::Keep` inserts nothing, so the computation cannot be rejected.
                let _kept = self.cache.entry(hash).and_compute(|current| {
                    if let Some(there) = current.filter(|there| self.is_live(there.value())) {
                        // A time that is rounded down to zero would mean that the value has
                        // expired.
                        let left = there.time_left().map(|left| left.saturating_add(begun.elapsed()));
                        let left = left.map(|left| left.max(LEFT_MIN));
                        outcome = save(there.value(), left, heat);
                        saved += 1;
                    }
                    Op::Keep
                });
                outcome?;
            }
        }
        Ok(saved)
    }

    /// Creates a value with the flags and the number that were saved, and an access now.
    pub fn loaded_value(
        &self,
        key: &[u8],
        flags: u32,
        item_flags: ItemFlags,
        number: ItemNumber,
        bytes: &[u8],
    ) -> Value {
        let value = Value::new(key, flags, item_flags, number, &Data::copy(bytes, &self.pool));
        value.last_access.record_store(self.now_seconds());
        value
    }

    /// Returns the bound of `-I` on the size of a value by memcached's rules, in bytes.
    pub fn item_bytes_max(&self) -> usize {
        self.item_bytes_max.get() as usize
    }

    /// Returns the character that ends a tenant's name in a key.
    pub fn delimiter(&self) -> u8 {
        self.tenants.delimiter()
    }

    /// Ensures that later serial numbers are higher than `serial`.
    pub fn raise_serial(&self, serial: u64) {
        // Relaxed: no value is stored meanwhile, and the serial number guards no other memory.
        self.serial.fetch_max(serial, Ordering::Relaxed);
    }

    /// Returns the last serial number that was given out.
    pub fn last_serial(&self) -> u64 {
        // Relaxed: the caller has ended all connections.
        self.serial.load(Ordering::Relaxed)
    }

    /// Loads values in this order, `away` after the save of them began. Each is charged to its
    /// key's tenant, which is created if it does not exist. If the server does not evict, a value
    /// without room is refused. Values that are stored later get higher serial numbers.
    pub fn load(&self, values: impl Iterator<Item = LoadedValue>, away: Duration) -> Loaded {
        let mut groups = std::collections::HashMap::new();
        let mut without_room = 0;
        let mut loaded = self.cache.load(values.filter_map(|LoadedValue { value, left, heat }| {
            self.raise_serial(value.serial());
            let tenant = self.tenants.for_key(value.key());
            if !self.has_room(&tenant, &value) {
                without_room += 1;
                return None;
            }
            let group = groups.entry(tenant.group.id()).or_insert_with(|| tenant.group.path()).clone();
            let time_left = left.map(|left| left.saturating_sub(away));
            Some((self.hasher.hash(value.key()), value, Meta { group, time_left, heat, ..Meta::default() }))
        }));
        loaded.refused += without_room;
        loaded
    }
}
