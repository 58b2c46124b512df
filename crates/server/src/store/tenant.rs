//! Tenants: the prefix of a key, up to the delimiter, names its tenant.
//!
//! Writing makes a tenant, reading does not; so a reader who guesses names takes nothing. There are
//! at most [`TENANTS_MAX`], as memcached bounds its prefixes; keys of later ones belong to the
//! default tenant, as do keys without a delimiter.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use dashmap::DashMap;
use lowwater::{ByteSize, Memcg, Runtime};
use parking_lot::Mutex;

use crate::settings::limits::Limits;

/// memcached's own bound on prefixes.
pub const TENANTS_MAX: usize = 65_536;

/// The tenant of keys that name none. A key `default:x` is its as well.
pub const DEFAULT_TENANT: &str = "default";

/// A tenant and its statistics.
#[derive(Debug)]
pub struct Tenant {
    /// What its values are charged to. Its name is the tenant's; bytes which could confuse a reader
    /// are written as `%41`.
    pub group: Memcg,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub evictions: AtomicU64,
    /// As they were given; what the group is told of them is in [`Tenant::set_limits`].
    limits: Mutex<Limits>,
    /// Its values are dropped when memory is short.
    evict: bool,
}

/// The tenant that a thread asked for last. There it finds it again without a lock that others
/// take, and without a hash.
#[derive(Debug)]
struct Recent {
    /// [`Tenants::id`].
    tenants: usize,
    prefix: Box<[u8]>,
    tenant: Arc<Tenant>,
}

thread_local! {
    static RECENT: RefCell<Option<Recent>> = const { RefCell::new(None) };
}

/// Numbers all [`Tenants`] of the process.
static NEXT_ID: AtomicUsize = AtomicUsize::new(0);

/// All tenants, by prefix. None of them ever leaves.
#[derive(Debug)]
pub struct Tenants {
    id: usize,
    runtime: Runtime,
    delimiter: u8,
    default: Arc<Tenant>,
    by_prefix: DashMap<Box<[u8]>, Arc<Tenant>>,
    count: AtomicUsize,
    evict: bool,
}

impl Tenants {
    /// The tenants with limits, and the default one.
    ///
    /// # Errors
    ///
    /// The runtime does not make a group for one of them.
    pub fn new(runtime: &Runtime, delimiter: u8, limits: &[(String, Limits)], evict: bool) -> Result<Self, String> {
        let tenant = |name: &str| match runtime.group(&shown(name.as_bytes())) {
            Ok(group) => Ok(Arc::new(Tenant::new(group, evict))),
            Err(why) => Err(format!("tenant {name}: {why}")),
        };
        let default = tenant(DEFAULT_TENANT)?;
        let by_prefix: DashMap<Box<[u8]>, _> = DashMap::new();
        by_prefix.insert(DEFAULT_TENANT.as_bytes().into(), Arc::clone(&default));
        for (name, limits) in limits {
            let tenant = tenant(name)?;
            tenant.set_limits(*limits);
            by_prefix.entry(name.as_bytes().into()).or_insert(tenant);
        }
        let count = AtomicUsize::new(by_prefix.len());
        // Relaxed: only that no number is given twice matters.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(Self { id, runtime: runtime.clone(), delimiter, default, by_prefix, count, evict })
    }

    /// Returns the tenant that a new value of `key` is charged to; created if it is new and there
    /// is room for another.
    pub fn for_key(&self, key: &[u8]) -> Arc<Tenant> {
        let own = self.prefix(key).and_then(|prefix| self.get_or_create(prefix));
        own.unwrap_or_else(|| Arc::clone(&self.default))
    }

    /// The tenant of this name, if it is there.
    pub fn find(&self, name: &[u8]) -> Option<Arc<Tenant>> {
        self.with(name, Arc::clone)
    }

    /// Calls `visit` with the tenant of this name, if it exists.
    fn with<R>(&self, name: &[u8], visit: impl FnOnce(&Arc<Tenant>) -> R) -> Option<R> {
        RECENT.with_borrow_mut(|recent| {
            if !recent.as_ref().is_some_and(|recent| recent.tenants == self.id && *recent.prefix == *name) {
                let tenant = Arc::clone(&*self.by_prefix.get(name)?);
                *recent = Some(Recent { tenants: self.id, prefix: name.into(), tenant });
            }
            recent.as_ref().map(|recent| visit(&recent.tenant))
        })
    }

    /// Returns the tenant of this name, created if it is new. None if there is no room for another.
    pub fn get_or_create(&self, name: &[u8]) -> Option<Arc<Tenant>> {
        if let Some(tenant) = self.find(name) {
            return Some(tenant);
        }
        // Relaxed: a count that bounds, and guards no other memory. It may lag behind by as many as
        // there are threads.
        if self.count.load(Ordering::Relaxed) >= TENANTS_MAX {
            return None;
        }
        // No group: the name is too long, or the ids are used up.
        let group = self.runtime.group(&shown(name)).ok()?;
        let tenant = self.by_prefix.entry(name.into()).or_insert_with(|| {
            // Relaxed: as above.
            self.count.fetch_add(1, Ordering::Relaxed);
            Arc::new(Tenant::new(group, self.evict))
        });
        Some(Arc::clone(&tenant))
    }

    /// Counts a read of `key` for its tenant; for the default one if the tenant was never written
    /// to.
    pub fn count_read(&self, key: &[u8], hit: bool) {
        self.count(key, |tenant| if hit { &tenant.hits } else { &tenant.misses });
    }

    /// Counts that `key` had to make room.
    pub fn count_eviction(&self, key: &[u8]) {
        self.count(key, |tenant| &tenant.evictions);
    }

    fn count(&self, key: &[u8], counter: impl Fn(&Tenant) -> &AtomicU64) {
        let add = |tenant: &Tenant| {
            // Relaxed: a tally; nothing is read by its light.
            counter(tenant).fetch_add(1, Ordering::Relaxed);
        };
        if self.prefix(key).and_then(|prefix| self.with(prefix, |tenant| add(tenant))).is_none() {
            add(&self.default);
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
    fn new(group: Memcg, evict: bool) -> Self {
        let tally = AtomicU64::default;
        let limits = Mutex::default();
        let tenant = Self { group, hits: tally(), misses: tally(), evictions: tally(), limits, evict };
        tenant.set_limits(Limits::default());
        tenant
    }

    /// Its limits, as they were given.
    pub fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    /// Gives it others.
    ///
    /// Where nothing is evicted, the group keeps `low` only: all it has is protected, nothing is
    /// trimmed, and its `max` is not the group's. For a group that comes near its own `max` makes
    /// room among its own, whom nothing protects from that.
    pub fn set_limits(&self, limits: Limits) {
        // Held to the end: of two who set at once, one sets everything last.
        let mut given = self.limits.lock();
        let unlimited = Limits { min: ByteSize::MAX, low: limits.low, ..Limits::default() };
        let Limits { min, low, high, max } = if self.evict { limits } else { unlimited };
        self.group.set_max(max);
        self.group.set_high(high);
        self.group.set_low(low);
        self.group.set_min(min);
        *given = limits;
    }

    /// Whether `bytes` more fit in its `max` and those above without anything being dropped.
    ///
    /// It is asked before they are charged, so those who ask at the same time may all be told yes:
    /// where nothing is evicted, a tenant may have one value more than its `max` allows for each
    /// thread but one.
    pub fn has_room(&self, bytes: ByteSize) -> bool {
        let fits = |group: &Memcg, max| group.usage().saturating_add(bytes) <= max;
        let mut above = std::iter::successors(self.group.parent(), |group| group.parent());
        fits(&self.group, self.limits.lock().max) && above.all(|group| fits(group, group.max()))
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

    fn tenants(limits: &[(String, Limits)]) -> Tenants {
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
        Tenants::new(&runtime, b':', limits, true).unwrap()
    }

    #[test]
    fn a_key_belongs_to_its_prefix() {
        let low = Limits { low: ByteSize::kib(7), ..Limits::default() };
        let tenants = tenants(&[("shop".into(), low)]);
        let long = [b"\xff".repeat(100), b":x".to_vec()].concat();
        for (key, name) in [
            (&b"shop:a"[..], "shop"),
            (b"other:a:b", "other"),
            (b"plain", "default"),
            (b":odd", "default"),
            (b"default:x", "default"),
            (b"a/b\xff:x", "a%2Fb%FF"),
            (&long, "default"),
        ] {
            assert_eq!(tenants.for_key(key).group.name(), name);
        }
        assert_eq!(tenants.all().len(), 4);
        assert_eq!(tenants.for_key(b"shop:a").group.low(), ByteSize::kib(7));
    }

    #[test]
    fn what_a_thread_remembers_is_that_of_the_tenants_asked() {
        let (one, other) = (tenants(&[]), tenants(&[]));
        one.for_key(b"shop:a");
        one.for_key(b"shop:b");
        other.count_read(b"shop:a", true);
        let hits =
            |tenants: &Tenants, name: &[u8]| tenants.find(name).map(|tenant| tenant.hits.load(Ordering::Relaxed));
        assert_eq!((hits(&other, b"shop"), hits(&other, b"default")), (None, Some(1)));
        one.count_read(b"shop:a", true);
        one.for_key(b"team:a");
        one.count_read(b"shop:a", true);
        assert_eq!((hits(&one, b"shop"), hits(&one, b"team"), hits(&one, b"default")), (Some(2), Some(0), Some(0)));
    }

    #[test]
    fn a_read_makes_no_tenant() {
        let tenants = tenants(&[]);
        tenants.count_read(b"guess:a", false);
        assert_eq!(tenants.all().len(), 1);
        assert_eq!(tenants.all()[0].misses.load(Ordering::Relaxed), 1, "the default tenant answers for it");
    }

    #[test]
    fn where_nothing_is_evicted_its_max_is_the_tenants_own() {
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
        let given =
            Limits { min: ByteSize::kib(1), low: ByteSize::kib(2), high: ByteSize::kib(3), max: ByteSize::kib(4) };
        let tenants = Tenants::new(&runtime, b':', &[("shop".into(), given)], false).unwrap();
        let shop = tenants.for_key(b"shop:a");
        assert_eq!(shop.limits(), given);
        assert_eq!(
            (shop.group.min(), shop.group.high(), shop.group.max()),
            (ByteSize::MAX, ByteSize::MAX, ByteSize::MAX)
        );
        assert!(shop.has_room(ByteSize::kib(4)) && !shop.has_room(ByteSize::kib(5)));
        shop.set_limits(Limits { max: ByteSize::mib(2), ..given });
        assert!(shop.has_room(ByteSize::kib(5)) && !shop.has_room(ByteSize::kib(1025)), "the budget still holds");
        assert_eq!((shop.limits().max, shop.group.max()), (ByteSize::mib(2), ByteSize::MAX));
    }

    #[test]
    fn tenants_are_bounded() {
        let tenants = tenants(&[]);
        for n in 0..TENANTS_MAX + 10 {
            tenants.for_key(format!("t{n}:k").as_bytes());
        }
        assert!(tenants.all().len() <= TENANTS_MAX);
        assert_eq!(tenants.for_key(b"one-more:k").group.name(), "default");
        assert_eq!(tenants.for_key(b"t1:k").group.name(), "t1", "those who came in time stay");
    }
}
