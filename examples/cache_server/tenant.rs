//! Whose a key is: what stands before the delimiter.
//!
//! Writing makes a tenant, reading does not; so a reader who guesses names takes nothing. There are at most [`TENANTS_MAX`],
//! as memcached bounds its prefixes; keys of later ones belong to the default tenant, as do keys without a delimiter.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use dashmap::DashMap;

use crate::config::Limits;

/// memcached's own bound on prefixes.
pub const TENANTS_MAX: usize = 65_536;

/// The tenant of keys that name none. A key `default:x` is its as well.
pub const DEFAULT_TENANT: &str = "default";

/// One tenant and its tallies.
#[derive(Debug)]
pub struct Tenant {
    /// As shown: bytes which could confuse a reader of `stats` are written as `%41`.
    pub name: String,
    pub limits: Limits,
    pub bytes: AtomicU64,
    pub items: AtomicU64,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub evictions: AtomicU64,
}

/// All tenants, by prefix.
#[derive(Debug)]
pub struct Tenants {
    delimiter: u8,
    default: Arc<Tenant>,
    by_prefix: DashMap<Box<[u8]>, Arc<Tenant>>,
    count: AtomicUsize,
}

impl Tenants {
    /// The tenants with limits, and the default one.
    pub fn new(delimiter: u8, limits: &[(String, Limits)]) -> Self {
        let of = |name: &str| limits.iter().find(|(other, _)| other == name).map(|(_, limits)| *limits);
        let default = Arc::new(Tenant::new(DEFAULT_TENANT.into(), of(DEFAULT_TENANT).unwrap_or_default()));
        let by_prefix = DashMap::new();
        by_prefix.insert(DEFAULT_TENANT.as_bytes().into(), Arc::clone(&default));
        for (name, limits) in limits.iter().filter(|(name, _)| name != DEFAULT_TENANT) {
            by_prefix.insert(name.as_bytes().into(), Arc::new(Tenant::new(shown(name.as_bytes()), *limits)));
        }
        let count = AtomicUsize::new(by_prefix.len());
        Self { delimiter, default, by_prefix, count }
    }

    /// The tenant a new value of `key` is charged to; made if it is new and there is room.
    pub fn of(&self, key: &[u8]) -> Arc<Tenant> {
        let Some(prefix) = self.prefix(key) else { return Arc::clone(&self.default) };
        if let Some(tenant) = self.by_prefix.get(prefix) {
            return Arc::clone(&tenant);
        }
        // Relaxed: a count that bounds, and guards no other memory.
        if self.count.fetch_add(1, Ordering::Relaxed) >= TENANTS_MAX {
            // Relaxed: as above.
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Arc::clone(&self.default);
        }
        let mut made = false;
        let tenant = self.by_prefix.entry(prefix.into()).or_insert_with(|| {
            made = true;
            Arc::new(Tenant::new(shown(prefix), Limits::default()))
        });
        if !made {
            // Relaxed: as above.
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        Arc::clone(&tenant)
    }

    /// Counts a read of `key` for its tenant; for the default one if the tenant was never written to.
    pub fn count_read(&self, key: &[u8], hit: bool) {
        let count = |tenant: &Tenant| {
            let counter = if hit { &tenant.hits } else { &tenant.misses };
            // Relaxed: a tally; nothing is read by its light.
            counter.fetch_add(1, Ordering::Relaxed);
        };
        match self.prefix(key).and_then(|prefix| self.by_prefix.get(prefix)) {
            Some(tenant) => count(&tenant),
            None => count(&self.default),
        }
    }

    /// All tenants there are now, in no order.
    pub fn all(&self) -> Vec<Arc<Tenant>> {
        self.by_prefix.iter().map(|entry| Arc::clone(&entry)).collect()
    }

    /// What stands before the first delimiter; an empty prefix is none.
    fn prefix<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let length = key.iter().position(|&b| b == self.delimiter)?;
        (length > 0).then(|| &key[..length])
    }
}

impl Tenant {
    fn new(name: String, limits: Limits) -> Self {
        Self {
            name,
            limits,
            bytes: AtomicU64::new(0),
            items: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }
}

fn shown(prefix: &[u8]) -> String {
    let mut name = String::with_capacity(prefix.len());
    for &byte in prefix {
        if byte.is_ascii_graphic() && !b"%/:".contains(&byte) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_its_prefix() {
        let tenants = Tenants::new(b':', &[("shop".into(), Limits::default())]);
        for (key, name) in [
            (&b"shop:a"[..], "shop"),
            (b"other:a:b", "other"),
            (b"plain", "default"),
            (b":odd", "default"),
            (b"default:x", "default"),
            (b"a/b\xff:x", "a%2Fb%FF"),
        ] {
            assert_eq!(tenants.of(key).name, name);
        }
        assert_eq!(tenants.all().len(), 4);
    }

    #[test]
    fn a_read_makes_no_tenant() {
        let tenants = Tenants::new(b':', &[]);
        tenants.count_read(b"guess:a", false);
        assert_eq!(tenants.all().len(), 1);
        assert_eq!(tenants.all()[0].misses.load(Ordering::Relaxed), 1, "the default tenant answers for it");
    }

    #[test]
    fn tenants_are_bounded() {
        let tenants = Tenants::new(b':', &[]);
        for n in 0..TENANTS_MAX + 10 {
            tenants.of(format!("t{n}:k").as_bytes());
        }
        assert_eq!(tenants.all().len(), TENANTS_MAX);
        assert_eq!(tenants.of(b"one-more:k").name, "default");
        assert_eq!(tenants.of(b"t1:k").name, "t1", "those who came in time stay");
    }
}
