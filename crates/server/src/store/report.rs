//! What is shown of the store, as a whole and by tenant.

use std::sync::atomic::{AtomicU64, Ordering};

use super::tenant::Tenant;
use super::Store;
use crate::settings::limits::Limits;

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

impl Store {
    /// The whole of it.
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

    /// The tenants by name.
    pub fn tenants(&self) -> Vec<TenantReport> {
        let mut tenants: Vec<_> = self.tenants.all().iter().map(|tenant| self.report(tenant)).collect();
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        tenants
    }

    fn report(&self, tenant: &Tenant) -> TenantReport {
        let group = &tenant.group;
        // Relaxed: tallies for people.
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
