//! Statistics of the store, as a whole and by tenant.
//!
//! The cache's counters are never reset: `stats reset` notes them, and later figures are the
//! differences. Figures may miss concurrent changes. A change must keep the counts of tenants
//! across a reset.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use lowwater::cache::CacheStats;

use super::tenant::Tenant;
use super::{Store, ENTRY_BYTES};
use crate::settings::limits::{listed_name, Limits};
use crate::traffic::TrafficCounts;

/// Statistics of the whole store, for `stats`.
#[derive(Debug)]
pub struct Totals {
    /// All bytes that are charged to the budget.
    pub bytes: u64,
    /// The present number of values.
    pub items: u64,
    /// Values stored since the last `stats reset`, as the counts below.
    pub total_items: u64,
    pub evictions: u64,
    pub expired: u64,
}

/// The cache's own counts, which only grow, at the last `stats reset`.
#[derive(Debug, Default)]
pub struct CountsAtReset {
    inserts: u64,
    evictions: u64,
    expired: u64,
}

/// The memory of the store, for `stats slabs`.
#[derive(Debug)]
pub struct Memory {
    pub items: u64,
    /// Bytes of the entries, used and free, and of their index.
    pub entries_and_index: u64,
    /// Bytes of the blocks of keys and values, as charged.
    pub blocks: u64,
}

/// Statistics of a tenant, for `stats tenants`.
#[derive(Debug)]
pub struct TenantReport {
    /// As listings show it: see [`listed_name`].
    pub name: String,
    pub bytes: u64,
    pub items: u64,
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    pub traffic: TrafficCounts,
    pub limits: Limits,
}

impl Store {
    /// Returns the statistics of the whole store.
    pub fn totals(&self) -> Totals {
        let (stats, before) = (self.cache.stats(), self.counts_at_reset.lock());
        Totals {
            bytes: self.runtime.root().usage().get(),
            items: self.cache.len() as u64,
            total_items: stats.inserts.saturating_sub(before.inserts),
            evictions: stats.evictions.saturating_sub(before.evictions),
            expired: stats.expired.saturating_sub(before.expired),
        }
    }

    /// Sets the counts of [`totals`](Self::totals) and [`removal_counts`](Self::removal_counts) to
    /// 0. Those of tenants stay.
    pub fn reset_stats(&self) {
        let CacheStats { inserts, evictions, expired, .. } = self.cache.stats();
        *self.counts_at_reset.lock() = CountsAtReset { inserts, evictions, expired };
        self.removal_stats.reset();
    }

    /// Returns the memory of the store.
    pub fn memory(&self) -> Memory {
        let items = self.cache.len() as u64;
        let blocks = self.cache.stats().bytes.get().saturating_sub(items * ENTRY_BYTES);
        Memory { items, entries_and_index: self.cache.footprint().get(), blocks }
    }

    /// Returns the first `count` tenants after `last` (`None`: of all), sorted by the names of
    /// their groups; fewer if there are no more. Clients choose how many there are: a command keeps
    /// only the last one of a page while its client does not read.
    pub fn tenants_after(&self, last: Option<&Arc<Tenant>>, count: usize) -> Vec<Arc<Tenant>> {
        self.tenants.after(last, count)
    }

    /// Returns the statistics of all tenants, sorted by the names of their groups. Clients choose
    /// how many and how long these are: keep them only until the next await.
    pub fn reports(&self) -> Vec<TenantReport> {
        self.tenants.all().iter().map(|tenant| self.report(tenant)).collect()
    }

    /// Returns the statistics of a tenant.
    pub fn report(&self, tenant: &Tenant) -> TenantReport {
        let group = &tenant.group;
        // Relaxed: statistics that guard no other memory.
        let tally = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TenantReport {
            name: listed_name(group.name()),
            bytes: group.usage().get(),
            items: self.cache.len_of(group),
            hits: tally(&tenant.hits),
            misses: tally(&tenant.misses),
            evictions: tally(&tenant.evictions),
            traffic: tenant.traffic.counts(),
            limits: tenant.limits(),
        }
    }
}
