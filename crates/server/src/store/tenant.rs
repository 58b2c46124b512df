//! Tenants: the prefix of a key, up to the delimiter, is the name of its tenant.
//!
//! A tenant is created by a store, when its limits are set, or by the configuration: for the tag of
//! a listener, for a user, or for a line of limits. A read creates none, so a reader that guesses
//! names creates nothing. Clients choose the names, so a key creates a tenant only while there are
//! fewer than [`created_by_keys_max`]; keys that name a further tenant belong to the default
//! tenant, as do keys without a delimiter. An administrator's `tenant set` creates tenants up to
//! [`TENANTS_MAX`], and the configuration up to [`CONFIGURED_MAX`], so that no client can keep its
//! tenants out.
//!
//! A thread remembers its last tenant, since most connections have one. A change must ensure that a
//! tenant is never removed, so that its limits stay and a thread may remember it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use dashmap::DashMap;
use lowwater::{ByteSize, Memcg, Runtime};
use parking_lot::Mutex;

use crate::find_byte::find_byte;
use crate::settings::limits::{group_name, Limits, DEFAULT_TENANT};
use crate::traffic::Traffic;

/// `tenant set` creates tenants while there are fewer than this: memcached's bound on prefixes.
pub const TENANTS_MAX: usize = 65_536;

/// Keys create a tenant for each part of the budget of this size. A tenant takes up to 1,200 bytes
/// for good, which are not charged.
const BYTES_PER_TENANT: u64 = 32 << 10;

/// Returns the number of tenants up to which keys create them under `budget`.
pub fn created_by_keys_max(budget: ByteSize) -> usize {
    usize::try_from(budget.get() / BYTES_PER_TENANT).map_or(TENANTS_MAX, |parts| parts.min(TENANTS_MAX))
}

/// The configuration creates tenants while there are fewer than this.
pub const CONFIGURED_MAX: usize = 2 * TENANTS_MAX;

/// A tenant and its statistics.
#[derive(Debug)]
pub struct Tenant {
    /// The group that the tenant's values are charged to. The group has the tenant's name, with
    /// unusual bytes written as `%41`.
    pub group: Memcg,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub evictions: AtomicU64,
    /// The limits and counts of the tenant's connections, which share this state.
    pub traffic: Arc<Traffic>,
    /// The limits as they were set; [`Tenant::set_limits`] derives the group's limits from them.
    limits: Mutex<Limits>,
    /// The server evicts values when memory is short.
    evict: bool,
}

/// A cache of the tenant that a thread looked up last: a lookup of the same tenant needs neither a
/// shared lock nor a hash.
#[derive(Debug)]
struct Recent {
    /// The [`Tenants::id`] of the tenant's [`Tenants`].
    tenants: usize,
    prefix: Box<[u8]>,
    tenant: Arc<Tenant>,
}

thread_local! {
    static RECENT: RefCell<Option<Recent>> = const { RefCell::new(None) };
}

/// The id of the next [`Tenants`] of the process.
static NEXT_ID: AtomicUsize = AtomicUsize::new(0);

/// All tenants, by prefix. Tenants are never removed.
#[derive(Debug)]
pub struct Tenants {
    id: usize,
    runtime: Runtime,
    delimiter: u8,
    default: Arc<Tenant>,
    by_prefix: DashMap<Box<[u8]>, Arc<Tenant>>,
    /// The number of tenants; changes only under the lock of `by_name`.
    count: AtomicUsize,
    /// All tenants, for listings. Locked while a tenant is created, so that threads do not exceed
    /// the maximum together.
    by_name: Mutex<BTreeSet<ByName>>,
    evict: bool,
}

/// A tenant, ordered by the name of its group.
#[derive(Debug)]
struct ByName(Arc<Tenant>);

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.group.name().cmp(other.0.group.name())
    }
}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByName {}

impl Tenants {
    /// Creates the default tenant, and the tenants in `limits`.
    ///
    /// # Errors
    ///
    /// A sentence, if there are more than [`TENANTS_MAX`] tenants, or the runtime cannot create a
    /// tenant's group.
    pub fn new(runtime: &Runtime, delimiter: u8, limits: &[(String, Limits)], evict: bool) -> Result<Self, String> {
        let tenant = |name: &str| match runtime.group(&group_name(name.as_bytes())) {
            Ok(group) => Ok(Arc::new(Tenant::new(group, evict))),
            Err(why) => Err(format!("tenant {name}: {why}")),
        };
        let default = tenant(DEFAULT_TENANT)?;
        let by_prefix: DashMap<Box<[u8]>, _> = DashMap::new();
        by_prefix.insert(DEFAULT_TENANT.as_bytes().into(), Arc::clone(&default));
        for (name, limits) in limits {
            let tenant = if name == DEFAULT_TENANT { Arc::clone(&default) } else { tenant(name)? };
            tenant.set_limits(*limits);
            by_prefix.entry(name.as_bytes().into()).or_insert(tenant);
        }
        if by_prefix.len() > TENANTS_MAX {
            let count = by_prefix.len();
            return Err(format!(
                "there may be {TENANTS_MAX} tenants with limits, the default tenant included, not {count}"
            ));
        }
        let count = AtomicUsize::new(by_prefix.len());
        // Relaxed: it matters only that no id is assigned twice.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let by_name = Mutex::new(by_prefix.iter().map(|entry| ByName(Arc::clone(&entry))).collect());
        Ok(Self { id, runtime: runtime.clone(), delimiter, default, by_prefix, count, by_name, evict })
    }

    /// Returns the tenant that a new value of `key` is charged to. Creates the tenant if it is new
    /// and the present budget has room for another; otherwise returns the default tenant.
    pub fn for_key(&self, key: &[u8]) -> Arc<Tenant> {
        let max = created_by_keys_max(self.runtime.root().max());
        let own = self.prefix(key).and_then(|prefix| self.get_or_create(prefix, max));
        own.unwrap_or_else(|| Arc::clone(&self.default))
    }

    /// Returns the tenant that `key` names, the default tenant for a key without a prefix; creates
    /// none. `None` if the tenant does not exist: [`for_key`](Self::for_key) then creates it, or
    /// returns the default tenant.
    pub fn find_for_key(&self, key: &[u8]) -> Option<Arc<Tenant>> {
        match self.prefix(key) {
            Some(prefix) => self.find(prefix),
            None => Some(Arc::clone(&self.default)),
        }
    }

    /// Returns the tenant of this name, if it exists.
    pub fn find(&self, name: &[u8]) -> Option<Arc<Tenant>> {
        self.with(name, Arc::clone)
    }

    /// Returns the tenant of this name, which the configuration has created; otherwise the default
    /// tenant.
    pub fn named(&self, name: &[u8]) -> Arc<Tenant> {
        self.find(name).unwrap_or_else(|| Arc::clone(&self.default))
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

    /// Returns the tenant of this name, and creates it if it is new. `None` if it is new and there
    /// are `max` tenants, or no group can be created for it.
    pub fn get_or_create(&self, name: &[u8], max: usize) -> Option<Arc<Tenant>> {
        if let Some(tenant) = self.find(name) {
            return Some(tenant);
        }
        // Relaxed: the count is a bound, and guards no other memory. The second check is exact, as
        // the count changes only under the lock.
        let is_full = || self.count.load(Ordering::Relaxed) >= max;
        if is_full() {
            return None;
        }
        let mut by_name = self.by_name.lock();
        if let Some(tenant) = self.find(name) {
            return Some(tenant);
        }
        if is_full() {
            return None;
        }
        // An error means that the name is too long, or that there are no group ids left.
        let group = self.runtime.group(&group_name(name)).ok()?;
        let tenant = Arc::new(Tenant::new(group, self.evict));
        self.by_prefix.insert(name.into(), Arc::clone(&tenant));
        by_name.insert(ByName(Arc::clone(&tenant)));
        // Relaxed: the count guards no other memory.
        self.count.fetch_add(1, Ordering::Relaxed);
        Some(tenant)
    }

    /// Counts a read of `key` for its tenant, or for the default tenant if that tenant does not
    /// exist.
    pub fn count_read(&self, key: &[u8], hit: bool) {
        self.count(key, |tenant| if hit { &tenant.hits } else { &tenant.misses });
    }

    /// Counts the eviction of `key` for its tenant.
    pub fn count_eviction(&self, key: &[u8]) {
        self.count(key, |tenant| &tenant.evictions);
    }

    fn count(&self, key: &[u8], counter: impl Fn(&Tenant) -> &AtomicU64) {
        let add = |tenant: &Tenant| {
            // Relaxed: a statistic that guards no other memory.
            counter(tenant).fetch_add(1, Ordering::Relaxed);
        };
        // Relaxed: the count guards no other memory. Most servers have the default tenant alone.
        let may_be_named = self.count.load(Ordering::Relaxed) > 1;
        let named = if may_be_named { self.prefix(key) } else { None };
        if named.and_then(|prefix| self.with(prefix, |tenant| add(tenant))).is_none() {
            add(&self.default);
        }
    }

    /// Returns the character that ends a tenant's name in a key.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Returns all current tenants, sorted by the names of their groups.
    pub fn all(&self) -> Vec<Arc<Tenant>> {
        self.after(None, usize::MAX)
    }

    /// Returns the first `count` tenants after `last` (`None`: of all) in the order of
    /// [`all`](Self::all); fewer if there are no more. A tenant that exists throughout is in one
    /// page.
    pub fn after(&self, last: Option<&Arc<Tenant>>, count: usize) -> Vec<Arc<Tenant>> {
        let last = last.map(|last| ByName(Arc::clone(last)));
        let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let by_name = self.by_name.lock();
        by_name.range((from, Bound::Unbounded)).take(count).map(|tenant| Arc::clone(&tenant.0)).collect()
    }

    /// Returns the part of `key` before the first delimiter, unless it is empty.
    #[inline]
    fn prefix<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let length = find_byte(self.delimiter, key)?;
        (length > 0).then(|| &key[..length])
    }
}

impl Tenant {
    fn new(group: Memcg, evict: bool) -> Self {
        let tally = AtomicU64::default;
        let (limits, traffic) = (Mutex::default(), Arc::default());
        let tenant = Self { group, hits: tally(), misses: tally(), evictions: tally(), traffic, limits, evict };
        tenant.set_limits(Limits::default());
        tenant
    }

    /// Returns the limits, as they were set.
    pub fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    /// Sets the limits.
    ///
    /// Without evictions, the group gets only their `low`, and an unlimited `min`: all its memory
    /// is protected, nothing is trimmed, and `max` is checked by [`has_room`](Self::has_room)
    /// instead. A group that reaches its own `max` evicts its own values, and no protection
    /// prevents that.
    pub fn set_limits(&self, limits: Limits) {
        // Held until the end: of two calls at the same time, all limits are set by the later one.
        let mut given = self.limits.lock();
        let unlimited = Limits { min: ByteSize::MAX, low: limits.low, ..Limits::default() };
        let Limits { min, low, high, max, .. } = if self.evict { limits } else { unlimited };
        self.group.set_max(max);
        self.group.set_high(high);
        self.group.set_low(low);
        self.group.set_min(min);
        self.traffic.set_limits(&limits.traffic);
        *given = limits;
    }

    /// Returns whether `bytes` more fit within the tenant's `max` and those of the groups above,
    /// without any eviction.
    ///
    /// This check precedes the charge, so several threads may pass it at the same time: without
    /// evictions, a tenant may exceed its `max` by one value for each thread but one.
    pub fn has_room(&self, bytes: ByteSize) -> bool {
        let fits = |group: &Memcg, max| group.usage().saturating_add(bytes) <= max;
        let mut above = std::iter::successors(self.group.parent(), |group| group.parent());
        fits(&self.group, self.limits.lock().max) && above.all(|group| fits(group, group.max()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(limits: &[(String, Limits)]) -> Tenants {
        let runtime = Runtime::builder().budget(ByteSize::mib(4)).build().unwrap();
        Tenants::new(&runtime, b':', limits, true).unwrap()
    }

    #[test]
    fn a_key_belongs_to_its_prefix() {
        let low = Limits { low: ByteSize::kib(7), ..Limits::default() };
        let tenants = tenants(&[("shop".into(), low), ("default".into(), low)]);
        assert_eq!(tenants.for_key(b"plain").limits(), low);
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
            let found = tenants.find_for_key(key).map(|tenant| tenant.group.id());
            let own = tenants.for_key(key);
            assert_eq!(own.group.name(), name);
            assert!(found.is_none_or(|id| id == own.group.id()), "{name}: the same tenant, if it exists");
            assert!(tenants.find_for_key(key).is_some() || key == long, "{name} exists now");
        }
        assert_eq!(tenants.all().len(), 4);
        assert_eq!(tenants.for_key(b"shop:a").group.low(), ByteSize::kib(7));
    }

    #[test]
    fn the_cached_tenant_of_a_thread_belongs_to_its_tenants() {
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
    fn a_read_creates_no_tenant() {
        let tenants = tenants(&[]);
        tenants.count_read(b"guess:a", false);
        assert_eq!(tenants.all().len(), 1);
        assert_eq!(tenants.all()[0].misses.load(Ordering::Relaxed), 1, "counted for the default tenant");
    }

    #[test]
    fn without_evictions_max_is_checked_by_the_tenant() {
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
        let given = Limits {
            min: ByteSize::kib(1),
            low: ByteSize::kib(2),
            high: ByteSize::kib(3),
            max: ByteSize::kib(4),
            ..Limits::default()
        };
        let tenants = Tenants::new(&runtime, b':', &[("shop".into(), given)], false).unwrap();
        let shop = tenants.for_key(b"shop:a");
        assert_eq!(shop.limits(), given);
        assert_eq!(
            (shop.group.min(), shop.group.high(), shop.group.max()),
            (ByteSize::MAX, ByteSize::MAX, ByteSize::MAX)
        );
        assert!(shop.has_room(ByteSize::kib(4)) && !shop.has_room(ByteSize::kib(5)));
        shop.set_limits(Limits { max: ByteSize::mib(2), ..given });
        assert!(shop.has_room(ByteSize::kib(5)) && !shop.has_room(ByteSize::kib(1025)), "the budget still bounds it");
        assert_eq!((shop.limits().max, shop.group.max()), (ByteSize::mib(2), ByteSize::MAX));
    }

    #[test]
    fn threads_do_not_exceed_the_bound_together() {
        const THREADS: usize = 4;
        for round in 0..200 {
            let tenants = tenants(&[]);
            let most = created_by_keys_max(ByteSize::mib(4));
            tenants.count.store(most - 1, Ordering::Relaxed);
            let barrier = std::sync::Barrier::new(THREADS);
            std::thread::scope(|s| {
                for thread in 0..THREADS {
                    let (tenants, barrier) = (&tenants, &barrier);
                    s.spawn(move || {
                        barrier.wait();
                        tenants.for_key(format!("t{thread}:k").as_bytes());
                    });
                }
            });
            assert_eq!(tenants.all().len(), 2, "round {round}: the default tenant and the last one that fits");
            assert_eq!(tenants.count.load(Ordering::Relaxed), most);
        }
    }

    #[test]
    fn a_tenant_of_the_configuration_is_created_among_many_of_clients() {
        let tenants = tenants(&[]);
        tenants.count.store(TENANTS_MAX, Ordering::Relaxed);
        assert_eq!(tenants.for_key(b"shop:k").group.name(), "default");
        assert!(tenants.get_or_create(b"shop", CONFIGURED_MAX).is_some());
        assert_eq!(tenants.for_key(b"shop:k").group.name(), "shop");
        tenants.count.store(CONFIGURED_MAX, Ordering::Relaxed);
        assert!(tenants.get_or_create(b"late", CONFIGURED_MAX).is_none());
    }

    #[test]
    fn configured_tenants_are_bounded_too() {
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
        let mut limits: Vec<_> = (1..TENANTS_MAX).map(|n| (format!("t{n}"), Limits::default())).collect();
        let new = |limits: &[_]| Tenants::new(&runtime, b':', limits, true).map(|tenants| tenants.all().len());
        assert_eq!(new(&limits), Ok(TENANTS_MAX));
        limits.push(("default".into(), Limits::default()));
        assert_eq!(new(&limits), Ok(TENANTS_MAX), "the default tenant is counted once");
        limits.push(("one-more".into(), Limits::default()));
        assert!(new(&limits).unwrap_err().contains("65536 tenants"), "{:?}", new(&limits));
    }

    #[test]
    fn pages_are_sorted_and_complete() {
        let tenants = tenants(&[("b".into(), Limits::default())]);
        for n in 0..100 {
            tenants.for_key(format!("{}:k", n * 7 % 100).as_bytes());
        }
        let names = |page: &[Arc<Tenant>]| page.iter().map(|tenant| tenant.group.name().to_owned()).collect::<Vec<_>>();
        let all = names(&tenants.all());
        assert!(all.len() == 102 && all.is_sorted(), "{all:?}");
        for count in [1, 10, 101, 102, 103] {
            let (mut found, mut last) = (Vec::new(), None);
            loop {
                let page = tenants.after(last.as_ref(), count);
                assert_eq!(page.len(), count.min(all.len() - found.len()), "pages of {count}");
                found.extend(names(&page));
                last = page.last().cloned();
                if last.is_none() {
                    break;
                }
            }
            assert_eq!(found, all, "pages of {count}");
        }
    }

    #[test]
    fn keys_create_a_tenant_for_each_part_of_the_budget() {
        let tenants = tenants(&[]);
        for n in 0..TENANTS_MAX + 10 {
            tenants.for_key(format!("t{n}:k").as_bytes());
        }
        assert_eq!(tenants.all().len(), 128, "one for each 32 KiB of 4 MiB");
        assert_eq!(tenants.for_key(b"one-more:k").group.name(), "default");
        assert_eq!(tenants.for_key(b"t1:k").group.name(), "t1", "existing tenants stay");
        // An administrator may name more; and more memory has room for more.
        assert_eq!(tenants.get_or_create(b"set", TENANTS_MAX).unwrap().group.name(), "set");
        tenants.runtime.set_budget(ByteSize::mib(8));
        assert_eq!(tenants.for_key(b"one-more:k").group.name(), "one-more");
        for (budget, most) in
            [(ByteSize::mib(64), 2_048), (ByteSize::gib(2), TENANTS_MAX), (ByteSize::MAX, TENANTS_MAX)]
        {
            assert_eq!(created_by_keys_max(budget), most);
        }
    }
}
