//! The cache, as the commands need it: everything they know of it is here.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use lowwater::Bytes;
use parking_lot::Mutex;

use crate::config::Limits;
use crate::tenant::{Tenant, Tenants};
use crate::value::{block_bytes, Data, Value};

/// Values by key, in one budget, each charged to its key's tenant.
#[derive(Debug)]
pub struct Store {
    budget: Bytes,
    tenants: Tenants,
    entries: Mutex<Entries>,
    unique: AtomicU64,
    evictions: AtomicU64,
    expired: AtomicU64,
    total_items: AtomicU64,
}

/// What an update does with the value under its key.
#[derive(Clone, Debug)]
pub enum Edit {
    Keep,
    Remove,
    /// A new value, with a unique number of its own.
    Put {
        flags: u32,
        expires: Option<Instant>,
        data: Arc<Data>,
    },
    /// The same value (number and all) until another time.
    Retime(Option<Instant>),
}

/// The memory for a value could not be had: its tenant's `max`, or the whole budget, is in use and protected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory storing object")]
pub struct NoMemory;

/// What `stats` shows of the whole store.
#[derive(Debug)]
pub struct Totals {
    pub bytes: u64,
    pub items: u64,
    pub total_items: u64,
    pub evictions: u64,
    pub expired: u64,
}

/// What `stats tenants` shows of one tenant.
#[derive(Debug)]
pub struct TenantReport {
    pub name: String,
    pub bytes: u64,
    pub items: u64,
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    pub limits: Limits,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Box<[u8]>, Slot>,
    order: VecDeque<(Box<[u8]>, u64)>,
    bytes: u64,
}

#[derive(Debug)]
struct Slot {
    value: Value,
    tenant: Arc<Tenant>,
    bytes: u64,
    touched: bool,
}

impl Store {
    /// An empty store of `budget` bytes.
    pub fn new(budget: Bytes, delimiter: u8, limits: &[(String, Limits)]) -> Self {
        Self {
            budget,
            tenants: Tenants::new(delimiter, limits),
            entries: Mutex::default(),
            unique: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            total_items: AtomicU64::new(0),
        }
    }

    /// The value under `key`. Counts as a read of its tenant.
    pub fn get(&self, key: &[u8]) -> Option<Value> {
        let mut entries = self.entries.lock();
        let value = self.live(&mut entries, key);
        if let Some(slot) = entries.by_key.get_mut(key) {
            slot.touched = true;
        }
        self.tenants.count_read(key, value.is_some());
        value
    }

    /// Changes what is under `key`, atomically: `edit` sees the value there and decides. It may be asked more than once; the
    /// last answer is the one that was carried out, and comes back.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]; what was under `key` is unchanged.
    pub fn update<R>(&self, key: &[u8], mut edit: impl FnMut(Option<&Value>) -> (Edit, R)) -> Result<R, NoMemory> {
        let mut entries = self.entries.lock();
        let old = self.live(&mut entries, key);
        let (edit, answer) = edit(old.as_ref());
        match (edit, old) {
            (Edit::Keep, _) | (Edit::Retime(_), None) => {}
            (Edit::Remove, _) => drop(entries.remove(key)),
            (Edit::Put { flags, expires, data }, _) => {
                // Relaxed: only that no number is given twice matters.
                let unique = self.unique.fetch_add(1, Ordering::Relaxed) + 1;
                self.put(&mut entries, key, Value { flags, unique, expires, data })?;
            }
            (Edit::Retime(expires), Some(value)) => self.put(&mut entries, key, Value { expires, ..value })?,
        }
        Ok(answer)
    }

    /// Drops the value under `key`; whether there was one.
    pub fn remove(&self, key: &[u8]) -> bool {
        let mut entries = self.entries.lock();
        self.live(&mut entries, key).is_some() && entries.remove(key).is_some()
    }

    /// Drops every value.
    pub fn clear(&self) {
        let mut entries = self.entries.lock();
        let keys: Vec<_> = entries.by_key.keys().cloned().collect();
        for key in keys {
            entries.remove(&key);
        }
        entries.order.clear();
    }

    pub fn totals(&self) -> Totals {
        let entries = self.entries.lock();
        Totals {
            bytes: entries.bytes,
            items: entries.by_key.len() as u64,
            // Relaxed: tallies for people.
            total_items: self.total_items.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
        }
    }

    /// The tenants by name.
    pub fn tenants(&self) -> Vec<TenantReport> {
        let mut tenants: Vec<_> = self.tenants.all().iter().map(|tenant| TenantReport::of(tenant)).collect();
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        tenants
    }

    fn live(&self, entries: &mut Entries, key: &[u8]) -> Option<Value> {
        let value = entries.by_key.get(key)?.value.clone();
        if value.is_expired() {
            entries.remove(key);
            self.expired.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(value)
    }

    fn put(&self, entries: &mut Entries, key: &[u8], value: Value) -> Result<(), NoMemory> {
        let bytes = (value.data.heap_bytes() + 2 * block_bytes(key.len()) + 128) as u64;
        if bytes > self.budget.get() {
            return Err(NoMemory);
        }
        entries.remove(key);
        while entries.bytes + bytes > self.budget.get() {
            let Some((key, unique)) = entries.order.pop_front() else { return Err(NoMemory) };
            let Some(slot) = entries.by_key.get_mut(&key).filter(|slot| slot.value.unique == unique) else { continue };
            if std::mem::take(&mut slot.touched) {
                entries.order.push_back((key, unique));
                continue;
            }
            if let Some(slot) = entries.remove(&key) {
                slot.tenant.evictions.fetch_add(1, Ordering::Relaxed);
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
        let tenant = self.tenants.of(key);
        tenant.bytes.fetch_add(bytes, Ordering::Relaxed);
        tenant.items.fetch_add(1, Ordering::Relaxed);
        self.total_items.fetch_add(1, Ordering::Relaxed);
        entries.bytes += bytes;
        entries.order.push_back((key.into(), value.unique));
        entries.by_key.insert(key.into(), Slot { value, tenant, bytes, touched: false });
        Ok(())
    }
}

impl Entries {
    fn remove(&mut self, key: &[u8]) -> Option<Slot> {
        let slot = self.by_key.remove(key)?;
        self.bytes -= slot.bytes;
        slot.tenant.bytes.fetch_sub(slot.bytes, Ordering::Relaxed);
        slot.tenant.items.fetch_sub(1, Ordering::Relaxed);
        Some(slot)
    }
}

impl TenantReport {
    fn of(tenant: &Tenant) -> Self {
        Self {
            name: tenant.name.clone(),
            bytes: tenant.bytes.load(Ordering::Relaxed),
            items: tenant.items.load(Ordering::Relaxed),
            hits: tenant.hits.load(Ordering::Relaxed),
            misses: tenant.misses.load(Ordering::Relaxed),
            evictions: tenant.evictions.load(Ordering::Relaxed),
            limits: tenant.limits,
        }
    }
}
