//! A user's types and functions with lowwater's types in them: one error type for a service,
//! results that are named in signatures, a builder and a guard, and keys that are looked up by
//! references (`Equivalent`). And the messages of errors that contain other errors.
//!
//! Most of it only has to compile. It names some types; that each type in a public signature can be
//! named through `lowwater` alone is checked by `ci/supply.sh names`.
//!
//! A change must ensure that a type with a parameter that has a default is named here without it,
//! and that each variant of an error which contains another error is in
//! `each_fact_is_printed_once`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io;
use std::time::Duration;

use lowwater::cache::{CacheBuildError, CacheBuilder, DefaultHashBuilder, Entry, Iter, Pinned, Weigher};
use lowwater::lru_core::list::{Handle, Linked};
use lowwater::lru_core::topology::TopologyError;
use lowwater::lru_core::{AddError, AllocError, MemcgError, OverLimit, ParseByteSizeError, Prepared};
use lowwater::pressure::cgroup::CgroupError;
use lowwater::pressure::psi::Trigger;
use lowwater::pressure::systemd::SystemdError;
use lowwater::pressure::{MonitorError, SourceError};
use lowwater::runtime::{ChargeError, RuntimeBuildError, TenantError};
use lowwater::shrinker::{DirectOutcome, NoReclaim, ShrinkerAllocError, StartError, UnregisterError};
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

/// Each error that contains another one, with a text of the innermost one.
#[test]
fn each_fact_is_printed_once() {
    let os = || io::Error::from_raw_os_error(13);
    let file = || "file".to_owned();
    let over = || {
        let runtime = Runtime::builder().budget(ByteSize::new(1)).build().unwrap();
        runtime.root().try_charge(ByteSize::new(2)).unwrap_err()
    };
    let text = || lowwater::pressure::cgroup::Events::parse("high many").unwrap_err();
    let list = || lowwater::topology::parse_list("many").unwrap_err();
    let open = || SourceError::Open { file: file(), error: os(), advice: "mount it" };
    let trigger = || Trigger::some(Duration::from_millis(150), Duration::from_secs(1)).unwrap();
    let too_deep = MemcgError::TooDeep;
    let node = NodeId::ZERO;
    let errors: Vec<(Box<dyn Error>, &str)> = vec![
        (Box::new(RuntimeBuildError::Start(StartError::Thread { node, error: os() })), "os error 13"),
        (Box::new(RuntimeBuildError::Housekeeper(os())), "os error 13"),
        (Box::new(RuntimeBuildError::Pressure(MonitorError::Source(open()))), "os error 13"),
        (Box::new(RuntimeBuildError::Systemd(SystemdError::Path("dev".into()))), "\"dev\""),
        (Box::new(MonitorError::Cgroup(CgroupError::Read { file: "file".into(), error: os() })), "os error 13"),
        (Box::new(MonitorError::Thread(os())), "os error 13"),
        (
            Box::new(SourceError::Trigger { file: file(), trigger: trigger(), error: os(), advice: "use another" }),
            "os error 13",
        ),
        (Box::new(SourceError::Write { file: file(), error: os() }), "os error 13"),
        (Box::new(SourceError::Read { file: file(), error: os() }), "os error 13"),
        (Box::new(SourceError::Cgroup(CgroupError::Malformed { file: "file".into(), error: text() })), "many"),
        (Box::new(TopologyError::Read { file: "file".into(), error: os() }), "os error 13"),
        (Box::new(TopologyError::Malformed { file: "file".into(), text: file(), reason: list() }), "0-3,8,10-11"),
        (Box::new(CacheBuildError::Register(ShrinkerAllocError::OutOfIds)), "ids are in use"),
        (Box::new(CacheBuildError::OwnGroup { parent: "shop".into(), error: too_deep }), "too deep"),
        (Box::new(ChargeError::OverLimit(over())), "cannot charge 2 bytes"),
        (Box::new(TenantError::Group(too_deep)), "too deep"),
    ];
    for (error, innermost) in errors {
        let message = error.to_string();
        assert!(message.contains(innermost), "`{innermost}` is missing: {message}");
        let mut cause = error.source();
        while let Some(repeated) = cause {
            assert!(!message.contains(&repeated.to_string()), "`{repeated}` is printed twice: {message}");
            cause = repeated.source();
        }
    }
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
