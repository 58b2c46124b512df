//! A user's types and functions with lowwater's types in them: one error type for a service,
//! results that are named in signatures, a builder and a guard, and keys that are looked up by
//! references (`Equivalent`).
//!
//! Most of it only has to compile. It names some types; that each type in a public signature can be
//! named through `lowwater` alone is checked by `ci/supply.sh names`.
//!
//! A change must ensure that a type with a parameter that has a default is named here without it.

#![forbid(unsafe_code)]

use lowwater::cache::{CacheBuildError, CacheBuilder, DefaultHashBuilder, Entry, Iter, Pinned, Weigher};
use lowwater::lru_core::list::{Handle, Linked};
use lowwater::lru_core::{AddError, AllocError, MemcgError, OverLimit, ParseByteSizeError, Prepared};
use lowwater::runtime::TenantError;
use lowwater::shrinker::{DirectOutcome, NoReclaim, UnregisterError};
use lowwater::{ByteSize, Cache, Equivalent, ListLru, Memcg, NodeId, Registration, Registry, Runtime};

/// The error type of a service. It can hold each of the library's errors: they implement
/// `std::error::Error`, `Send` and `Sync`, and borrow nothing.
#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error("the memory's configuration is wrong: {0}")]
    Runtime(#[from] lowwater::runtime::RuntimeBuildError),
    #[error("a cache cannot be built: {0}")]
    Cache(#[from] lowwater::cache::CacheBuildError),
    #[error("a tenant cannot be created: {0}")]
    Group(#[from] MemcgError),
    #[error("no group for a client's name: {0}")]
    Tenant(#[from] TenantError),
    #[error("not stored: {0}")]
    Insert(#[from] lowwater::InsertError<Vec<u8>>),
    #[error("out of memory: {0}")]
    Charge(#[from] lowwater::runtime::ChargeError),
    #[error("over a limit: {0}")]
    OverLimit(#[from] OverLimit),
    #[error("not a size: {0}")]
    Size(#[from] ParseByteSizeError),
    #[error("no memory for a list: {0}")]
    List(#[from] AllocError),
}

fn is_an_error<E: std::error::Error + Send + Sync + 'static>() {}

#[test]
fn a_service_has_one_error() {
    is_an_error::<ServiceError>();
    is_an_error::<UnregisterError>();
    let serve = |budget: &str, tenant: &str, bytes: usize| -> Result<usize, ServiceError> {
        let runtime = Runtime::builder().budget(budget.parse()?).build()?;
        let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.len()).build()?;
        let tenant = runtime.group(tenant)?;
        cache.entry(1).group(&tenant).insert(vec![0; bytes])?;
        Ok(cache.len())
    };
    assert_eq!(serve("64 MiB", "shop", 100).unwrap(), 1);
    for (budget, tenant, bytes, part) in [
        ("64 MB", "shop", 1, "not a size"),
        ("64M", "", 1, "a tenant cannot be created"),
        ("1M", "shop", 2 << 20, "not stored"),
    ] {
        let why = serve(budget, tenant, bytes).unwrap_err().to_string();
        assert!(why.starts_with(part), "{why}");
    }
}

/// Functions with the types of results in their signatures, as a user's own functions have them.
#[test]
fn results_can_be_named() {
    fn prepare<T: Linked>(lists: &ListLru<T>, group: &Memcg) -> Result<(), AllocError> {
        let prepared: Prepared<'_, T> = lists.prepare(group, NodeId::ZERO)?;
        drop(prepared);
        Ok(())
    }
    fn add<T: Linked>(lists: &ListLru<T>, object: T::Handle, group: &Memcg) -> Result<(), AddError<T::Handle>>
    where
        T::Handle: Handle<Target = T>,
    {
        lists.add(object, group, NodeId::ZERO)
    }
    fn charge(group: &Memcg) -> Result<lowwater::lru_core::Charged, OverLimit> {
        group.try_charge(ByteSize::new(1))
    }
    fn scope(registry: &Registry) -> NoReclaim<'_> {
        registry.no_reclaim_scope()
    }
    fn reclaim(registry: &Registry, group: &Memcg) -> DirectOutcome {
        registry.direct_reclaim(group, lowwater::Reclaim::all(), &|| false)
    }
    fn end(registration: Registration) -> Result<(), (UnregisterError, Registration)> {
        registration.unregister()
    }
    let _named = (prepare::<Item>, add::<Item>, charge, scope, reclaim, end);
}

/// The types of one hasher for all keys can be named without it, and with it.
#[test]
fn a_default_hasher_needs_no_name() {
    fn pin(cache: &Cache<u64, u64>) -> Pinned<'_, u64, u64> {
        cache.pin()
    }
    fn iter<'p>(pinned: &'p Pinned<'p, u64, u64>) -> Iter<'p, u64, u64> {
        pinned.iter()
    }
    fn entry(cache: &Cache<u64, u64>) -> Entry<'_, u64, u64> {
        cache.entry(1)
    }
    fn builder(runtime: &Runtime) -> CacheBuilder<u64, u64, Weigher<u64, u64>> {
        Cache::builder(runtime).weigher(|_, _| ByteSize::ZERO)
    }
    let build = |runtime: &Runtime| -> Result<Cache<u64, u64, DefaultHashBuilder>, CacheBuildError> {
        builder(runtime).hasher(DefaultHashBuilder::default()).build()
    };
    let cache = build(&Runtime::builder().unlimited().build().unwrap()).unwrap();
    entry(&cache).insert(7).unwrap();
    let pinned = pin(&cache);
    assert_eq!(iter(&pinned).collect::<Vec<_>>(), [(&1, &7)]);
}

struct Item(lowwater::Links);
lowwater::linked!(impl[] for Item { 0, handle: std::sync::Arc<Item> });

/// A key that is looked up by a pair of references.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Page {
    site: String,
    number: u64,
}

#[derive(Hash)]
struct PageRef<'a> {
    site: &'a str,
    number: u64,
}

impl Equivalent<Page> for PageRef<'_> {
    fn equivalent(&self, page: &Page) -> bool {
        self.site == page.site && self.number == page.number
    }
}

#[test]
fn a_lookup_by_references_needs_no_owned_key() {
    let runtime = Runtime::builder().unlimited().build().unwrap();
    let cache = Cache::<Page, u32>::builder(&runtime).weigher(|page, _| page.site.capacity()).build().unwrap();
    cache.insert(Page { site: "a".into(), number: 7 }, 1).unwrap();
    assert_eq!(cache.get(&PageRef { site: "a", number: 7 }), Some(1));
    assert_eq!(cache.get(&PageRef { site: "b", number: 7 }), None);
    assert_eq!(cache.remove(&PageRef { site: "a", number: 7 }), Some(1));
}
