//! Statistics of the store, as a whole and by tenant.

use std::sync::atomic::{AtomicU64, Ordering};

use super::tenant::Tenant;
use super::Store;
use crate::settings::limits::Limits;

/// Statistics of the whole store, for `stats`.
#[derive(Debug)]
pub struct Totals {
    pub bytes: u64,
    pub items: u64,
    pub total_items: u64,
    pub evictions: u64,
    pub expired: u64,
}

/// Statistics of a tenant, for `stats tenants`.
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

impl Store {
    /// Returns the statistics of the whole store.
    pub fn totals(&self) -> Totals {
        let stats = self.cache.stats();
        Totals {
            bytes: self.runtime.root().usage().get(),
            items: self.cache.len() as u64,
            total_items: stats.inserts,
            evictions: stats.evictions,
            expired: stats.expired,
        }
    }

    /// Returns the statistics of all tenants, sorted by name.
    pub fn tenants(&self) -> Vec<TenantReport> {
        let mut tenants: Vec<_> = self.tenants.all().iter().map(|tenant| self.report(tenant)).collect();
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        tenants
    }

    fn report(&self, tenant: &Tenant) -> TenantReport {
        let group = &tenant.group;
        // Relaxed: statistics that guard no other memory.
        let tally = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TenantReport {
            name: group.name().to_owned(),
            bytes: group.usage().get(),
            items: self.cache.len_of(group),
            hits: tally(&tenant.hits),
            misses: tally(&tenant.misses),
            evictions: tally(&tenant.evictions),
            limits: tenant.limits(),
        }
    }
}
