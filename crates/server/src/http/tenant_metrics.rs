//! The metrics of tenants in `/metrics`, for `--metrics-tenants NUM`.
//!
//! While fewer than `names_max` are listed, a scrape adds the tenants that are not listed yet, the
//! largest first. So a tenant that was once in the sum of the others is never listed later: its
//! counts would be subtracted from the sum, and a counter would fall. For the same reason a listed
//! tenant is never replaced by another one. Tenants are never removed, and their counts are never
//! reset (`store/tenant.rs`, `Store::reset_stats`).
//!
//! The number of listed tenants is bounded, because each adds several time series, which never end.
//!
//! A change must ensure that no counter of a tenant, or of the sum of the others, ever falls.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::store::TenantReport;
use crate::traffic::TrafficCounts;

/// The label of the sum of all tenants that are not listed. A tenant with this name is never
/// listed; it is part of the sum.
pub const OTHERS: &str = "other";

/// The tenants that are listed by name.
#[derive(Debug)]
pub struct ListedTenants {
    names_max: usize,
    names: Mutex<BTreeSet<String>>,
}

/// The numbers of a tenant, or of all tenants that are not listed.
#[derive(Debug, PartialEq, Eq)]
pub struct TenantNumbers {
    pub name: String,
    pub bytes: u64,
    pub items: u64,
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    pub traffic: TrafficCounts,
}

impl ListedTenants {
    /// Lists at most `names_max` tenants; 0: no numbers of tenants are shown.
    pub fn new(names_max: usize) -> Self {
        Self { names_max, names: Mutex::default() }
    }

    /// Returns the numbers to show: those of the listed tenants, sorted by name, and the sum of all
    /// others. Nothing if no tenants are to be listed.
    pub fn numbers(&self, mut tenants: Vec<TenantReport>) -> Vec<TenantNumbers> {
        if self.names_max == 0 {
            return Vec::new();
        }
        let mut names = self.names.lock();
        tenants.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        for tenant in &tenants {
            if names.len() < self.names_max && tenant.name != OTHERS {
                names.insert(tenant.name.clone());
            }
        }
        let traffic = TrafficCounts::default();
        let mut others =
            TenantNumbers { name: OTHERS.into(), bytes: 0, items: 0, hits: 0, misses: 0, evictions: 0, traffic };
        let mut listed = Vec::new();
        for TenantReport { name, bytes, items, hits, misses, evictions, traffic, .. } in tenants {
            if names.contains(&name) {
                listed.push(TenantNumbers { name, bytes, items, hits, misses, evictions, traffic });
            } else {
                others.bytes += bytes;
                others.items += items;
                others.hits += hits;
                others.misses += misses;
                others.evictions += evictions;
                others.traffic += traffic;
            }
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        listed.push(others);
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::limits::Limits;

    fn tenant(name: &str, bytes: u64, hits: u64) -> TenantReport {
        let limits = Limits::default();
        let traffic = TrafficCounts { refused_requests: hits, ..TrafficCounts::default() };
        TenantReport { name: name.into(), bytes, items: 1, hits, misses: 2, evictions: 3, traffic, limits }
    }

    fn shown(listed: &ListedTenants, tenants: Vec<TenantReport>) -> Vec<(String, u64, u64)> {
        let numbers = listed.numbers(tenants);
        assert!(numbers.iter().all(|numbers| numbers.traffic.refused_requests == numbers.hits));
        numbers.into_iter().map(|numbers| (numbers.name, numbers.bytes, numbers.hits)).collect()
    }

    #[test]
    fn a_listed_tenant_stays_listed() {
        let listed = ListedTenants::new(2);
        let one = |name: &str, bytes, hits| (name.to_owned(), bytes, hits);
        assert_eq!(shown(&listed, vec![tenant("small", 1, 10)]), [one("small", 1, 10), one("other", 0, 0)]);
        let tenants = || vec![tenant("small", 1, 11), tenant("large", 9, 20), tenant("mid", 5, 30)];
        assert_eq!(shown(&listed, tenants()), [one("large", 9, 20), one("small", 1, 11), one("other", 5, 30)]);
        let mut later = tenants();
        later.push(tenant("huge", 99, 7));
        assert_eq!(shown(&listed, later), [one("large", 9, 20), one("small", 1, 11), one("other", 104, 37)]);
    }

    #[test]
    fn a_tenant_with_the_name_of_the_others_is_one_of_them() {
        let listed = ListedTenants::new(5);
        let numbers = shown(&listed, vec![tenant("other", 3, 1), tenant("a", 1, 1)]);
        assert_eq!(numbers, [("a".into(), 1, 1), ("other".into(), 3, 1)]);
        assert!(ListedTenants::new(0).numbers(vec![tenant("a", 1, 1)]).is_empty());
    }
}
