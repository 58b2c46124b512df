//! Failing allocations: each allocation of each operation fails once, in a process of its own.
//!
//! There are two good results. The operation does without, or reports the failure to its caller;
//! then everything is as exact as before and the next try succeeds. Or Rust's standard library
//! aborts the process with a message; the operations for which that must not happen are listed in
//! [`NEVER_ABORTS`]. Every other result fails the test: a panic, a wrong count, a memory fault, a
//! reported failure where none was. A child process that hangs makes the test hang.
//!
//! `cargo test --test faults_memory -- --nocapture` prints where the process would abort. The lists
//! and their tables are tested in one process (`lru-core/tests/list_lru_alloc.rs`).
//!
//! Numbers such as S11 are those of docs/INVARIANTS.md.

use lowwater::cache::{Eviction, Op, Origin, TenantKey};
use lowwater::runtime::ManualClock;
use lowwater::topology::Fixed;
use lowwater::{
    linked, ByteSize, Cache, Count, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId, Registry, Runtime, Scan,
};
use lowwater::{Reclaim, ShrinkControl, Shrinker};
use lowwater_dcache_model::{backend::Memory, Dcache, Kind};
use lowwater_shrinker::{Reclaimer, Select, Watermarks};
use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const N0: NodeId = NodeId::ZERO;
/// The child's task: `OPERATION:N`, to run the operation and let its N-th allocation fail.
const ORDER: &str = "LOWWATER_FAIL";

/// Operations that must continue or return an error at every failing allocation: all of reclaim,
/// which runs because memory is exhausted, and the paths between a cache and its lists.
const NEVER_ABORTS: [&str; 16] = [
    "list add",
    "list add many",
    "list walk",
    "list walk of a node",
    "charge",
    "pass",
    "direct reclaim",
    "reclaim of a part",
    "wake",
    "sweep",
    "cache insert",
    "cache insert without any more memory",
    "cache get",
    "charge guard",
    "runtime reclaim",
    "runtime reclaim by SIEVE",
];

/// An operation with more allocations than this repeats the same ones.
const NTH_MAX: usize = 40;

/// Longer than any machine takes, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

struct Faulty;

thread_local! {
    /// The number of this thread's allocations that succeed before one fails.
    static FAIL_AFTER: Cell<Option<usize>> = const { Cell::new(None) };
    /// After the one that fails, all others fail as well.
    static FAIL_ALL: Cell<bool> = const { Cell::new(false) };
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

fn fails_now() -> bool {
    let Ok(Some(n)) = FAIL_AFTER.try_with(Cell::get) else { return false };
    FAIL_AFTER.set(n.checked_sub(1));
    if n == 0 {
        FAILED.set(true);
        // If the process aborts here, this is its last output.
        eprintln!("site: {}", site(&Backtrace::force_capture().to_string()));
        FAIL_AFTER.set(FAIL_ALL.get().then_some(0));
    }
    n == 0
}

/// The innermost function of this workspace on the stack.
fn site(stack: &str) -> String {
    let ours = |line: &&str| line.contains("lowwater") && !line.contains("faults_memory");
    let names = stack.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    let name = names.filter_map(|line| line.split_once(": ").map(|(_, name)| name)).find(ours);
    name.unwrap_or("the test itself").to_string()
}

// SAFETY: every call goes to `System` unchanged, or returns null, which an allocator may do at any
// time.
unsafe impl GlobalAlloc for Faulty {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails_now() {
            return std::ptr::null_mut();
        }
        // SAFETY: `System::alloc` demands of `layout` what this function demands of its caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout, since `alloc` goes there.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static FAULTY: Faulty = Faulty;

struct Item(Links);

linked!(impl[] for Item { 0, handle: Arc<Item> });

fn item() -> Arc<Item> {
    Arc::new(Item(Links::new()))
}

/// A cache that consists of a list and a shrinker.
#[derive(Default)]
struct Shelf(OnceLock<ListLru<Item>>);

impl Shelf {
    fn list(&self) -> &ListLru<Item> {
        self.0.get().unwrap()
    }
}

impl Shrinker for Shelf {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.list().count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut gone = Isolated::new();
        let freed = self.list().walk_one(sc.memcg(), sc.node(), &mut sc.nr_to_scan(), |it| it.isolate(&mut gone));
        sc.set_nr_scanned(freed);
        Scan::Freed(freed)
    }
}

fn group(tree: &MemcgTree) -> Memcg {
    tree.root().create("a").unwrap().create("b").unwrap()
}

type ShelfWorld = (MemcgTree, Memcg, Registry, Arc<Shelf>, lowwater::Registration);

/// A tree, a registry, and a shelf in it with `items` for a group.
fn shelf(items: usize) -> ShelfWorld {
    let tree = MemcgTree::new(2);
    let group = group(&tree);
    let registry = Registry::new(&tree, 1);
    let shelf = Arc::new(Shelf::default());
    let prepared = registry.builder("shelf").alloc().unwrap();
    assert!(shelf.0.set(ListLru::with_occupancy(prepared.occupancy())).is_ok());
    let registration = prepared.register(Arc::clone(&shelf) as Arc<dyn Shrinker>);
    for _ in 0..items {
        shelf.list().add(item(), &group, N0).unwrap();
    }
    (tree, group, registry, shelf, registration)
}

type Pages = Cache<u64, Vec<u8>>;

fn cache() -> (Runtime, Pages) {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).topology(Arc::new(Fixed::new(1))).build().unwrap();
    let cache = Pages::builder(&runtime).weigher(|_, v| ByteSize::new(v.capacity() as u64)).build().unwrap();
    (runtime, cache)
}

/// Lets an allocation fail in the first evictions of a cache.
fn reclaim(nth: usize, eviction: Eviction) -> bool {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).topology(Arc::new(Fixed::new(1))).build().unwrap();
    let cache = Pages::builder(&runtime).weigher(|_, v| v.capacity()).eviction(eviction).build().unwrap();
    (0..1_000).for_each(|key| drop(cache.insert(key, vec![0; 100]).unwrap()));
    // Far below the limit, so no other thread evicts.
    failing(nth, || {
        runtime.reclaim(runtime.root(), ByteSize::kib(20));
        false
    });
    cache_is_exact(&cache);
    // Without memory the call may free nothing.
    assert!(runtime.reclaim(runtime.root(), ByteSize::kib(20)) >= ByteSize::kib(20));
    cache_is_exact(&cache);
    false
}

/// A cache with one entry, which is due for a reload.
fn due() -> (Runtime, Pages) {
    let clock = ManualClock::new();
    let builder = Runtime::builder().budget(ByteSize::mib(1)).topology(Arc::new(Fixed::new(1)));
    let runtime = builder.clock(&clock).build().unwrap();
    let builder = Pages::builder(&runtime).weigher(|_, v| v.capacity()).time_to_live(Duration::from_secs(10));
    let cache = builder.refresh_ahead(Duration::from_secs(3)).build().unwrap();
    cache.insert(1, vec![1; 100]).unwrap();
    clock.advance(Duration::from_secs(8));
    (runtime, cache)
}

fn cache_is_exact(cache: &Pages) {
    let values: usize = (0..2_000).filter_map(|key| cache.peek(&key)).map(|v| v.capacity()).sum();
    cache.runtime().tree().drain_stock();
    let used = cache.runtime().root().usage().get();
    assert_eq!(used, values as u64 + cache.len() as u64 * Pages::ENTRY_BYTES.get());
}

/// Runs `f` with the requested allocation failing. Returns the result of `f`: whether it reported
/// the failure.
fn failing(nth: usize, f: impl FnOnce() -> bool) -> bool {
    FAIL_AFTER.set(Some(nth));
    let told = f();
    FAIL_AFTER.set(None);
    told
}

/// The operations: each sets up, does one thing with the N-th allocation failing, and checks the
/// state. Returns true if the failure was reported.
type Operation = (&'static str, fn(usize) -> bool);

const OPERATIONS: [Operation; 29] = [
    ("list add", |nth| {
        let (tree, lru, it) = (MemcgTree::new(2), ListLru::<Item>::new(), item());
        let group = group(&tree);
        let told = failing(nth, || lru.add(it.clone(), &group, N0).is_err());
        lru.assert_valid();
        assert_eq!((lru.count_node(N0), Arc::strong_count(&it)), (u64::from(!told), 2 - usize::from(told)));
        assert!(!told || lru.add(it, &group, N0).is_ok());
        told
    }),
    ("list add many", |nth| {
        let (tree, lru) = (MemcgTree::new(2), ListLru::<Item>::new());
        let group = group(&tree);
        let mut items = Isolated::new();
        (0..10).for_each(|_| items.push(item()).map_err(drop).unwrap());
        let told = failing(nth, || lru.add_batch(&mut items, &group, N0).is_err());
        lru.assert_valid();
        assert_eq!(lru.count_node(N0) as usize + items.count(), 10, "nothing is lost");
        told
    }),
    ("list walk", |nth| {
        let (tree, lru) = (MemcgTree::new(2), ListLru::<Item>::new());
        let group = group(&tree);
        (0..10).for_each(|_| lru.add(item(), &group, N0).map_err(drop).unwrap());
        let mut gone = Isolated::new();
        let told = failing(nth, || lru.walk_one(&group, N0, &mut 5, |it| it.isolate(&mut gone)) != 5);
        lru.assert_valid();
        assert_eq!(lru.count_one(&group, N0), 5);
        told
    }),
    ("list walk of a node", |nth| {
        let (tree, lru) = (MemcgTree::new(2), ListLru::<Item>::new());
        let group = group(&tree);
        (0..10).for_each(|_| lru.add(item(), &group, N0).map_err(drop).unwrap());
        let mut gone = Isolated::new();
        let told = failing(nth, || lru.walk_node(N0, &mut 5, |it| it.isolate(&mut gone)) != 5);
        lru.assert_valid();
        assert_eq!(lru.count_node(N0) as usize + gone.count(), 10);
        told
    }),
    ("group create", |nth| {
        let tree = MemcgTree::new(2);
        let told = failing(nth, || tree.root().create("g").is_err());
        let there = tree.root().child("g").is_some();
        assert_eq!((there, tree.len()), (!told, 2 - usize::from(told)));
        told
    }),
    ("group end", |nth| {
        let (tree, group, _registry, shelf, _registration) = shelf(10);
        let parent = group.parent().unwrap().clone();
        let told = failing(nth, || group.offline().is_err());
        shelf.list().assert_valid();
        let at = if told { &group } else { &parent };
        assert_eq!(shelf.list().count_one(at, N0), 10);
        drop(tree);
        told
    }),
    ("charge", |nth| {
        let tree = MemcgTree::new(2);
        let group = group(&tree);
        let told = failing(nth, || group.try_charge(ByteSize::kib(100)).is_err());
        tree.drain_stock();
        assert_eq!(group.usage(), if told { ByteSize::ZERO } else { ByteSize::kib(100) });
        told
    }),
    ("register", |nth| {
        let tree = MemcgTree::new(2);
        let registry = Registry::new(&tree, 1);
        let shelf = Arc::new(Shelf::default());
        let mut registration = None;
        let told = failing(nth, || match registry.builder("late").alloc() {
            Ok(prepared) => {
                registration = Some(prepared.register(Arc::clone(&shelf) as Arc<dyn Shrinker>));
                false
            }
            Err(_) => true,
        });
        assert_eq!(registry.snapshot().shrinkers.len(), usize::from(!told));
        told
    }),
    // S11.
    ("first object of a group", |nth| {
        let (_tree, group, registry, shelf, _registration) = shelf(0);
        let told = failing(nth, || shelf.list().add(item(), &group, N0).is_err());
        assert_eq!(registry.drop_caches(), u64::from(!told), "no object is hidden (S11)");
        told
    }),
    ("pass", |nth| {
        let (_tree, group, registry, shelf, _registration) = shelf(1_000);
        let mut freed = 0;
        failing(nth, || {
            let mut work = lowwater_shrinker::Work::unlimited();
            freed = registry.shrink(registry.root(), N0, 2, Reclaim::KSWAPD, &mut work).freed;
            false
        });
        shelf.list().assert_valid();
        assert_eq!(shelf.list().count_one(&group, N0), 1_000 - freed);
        assert_eq!(registry.drop_caches(), 1_000 - freed);
        false
    }),
    ("direct reclaim", |nth| {
        let (_tree, group, registry, shelf, _registration) = shelf(1_000);
        let mut freed = 0;
        failing(nth, || {
            freed = registry.direct_reclaim(registry.root(), Reclaim::FOREGROUND, &|| false).freed;
            false
        });
        assert_eq!(shelf.list().count_one(&group, N0), 1_000 - freed);
        assert_eq!(registry.drop_caches(), 1_000 - freed);
        false
    }),
    ("reclaim of a part", |nth| {
        let (_tree, group, registry, shelf, _registration) = shelf(1_000);
        // The shelf never uncharges these bytes, so reclaim asks for every object.
        let _ = group.try_charge(ByteSize::new(1_000)).unwrap();
        failing(nth, || {
            registry.reclaim_selected(&Select::all().memcg(&group), ByteSize::new(1_000));
            false
        });
        shelf.list().assert_valid();
        let left = shelf.list().count_one(&group, N0);
        assert_eq!(registry.drop_caches(), left);
        false
    }),
    ("wake", |nth| {
        let (_tree, group, registry, shelf, _registration) = shelf(1_000);
        let _ = group.try_charge(ByteSize::new(1_000)).unwrap();
        group.set_high(ByteSize::ZERO);
        let marks = Watermarks::for_budget(ByteSize::mib(1));
        let reclaimer = Reclaimer::start(&registry, Arc::new(Fixed::new(1)), marks).unwrap();
        failing(nth, || {
            reclaimer.charged(&group);
            false
        });
        // A request that was lost is repeated by the next charge.
        reclaimer.charged(&group);
        let began = Instant::now();
        while shelf.list().count_one(&group, N0) > 0 {
            assert!(began.elapsed() < PATIENCE, "no thread reclaims");
            std::thread::yield_now();
        }
        false
    }),
    ("sweep", |nth| {
        let (_tree, _group, registry, shelf, _registration) = shelf(1);
        assert_eq!(registry.drop_caches(), 1);
        registry.sweep();
        failing(nth, || {
            registry.sweep();
            false
        });
        shelf.list().assert_valid();
        (0..4).for_each(|_| _ = registry.sweep());
        assert_eq!(shelf.list().pairs(), 0, "later sweeps free the skipped lists");
        false
    }),
    ("cache insert", |nth| {
        let (runtime, cache) = cache();
        (0..1_000).for_each(|key| drop(cache.insert(key, vec![0; 100]).unwrap()));
        let group = runtime.group("late").unwrap();
        let value = vec![0; 300];
        let told = failing(nth, || cache.entry(1_500).group(&group).insert(value).is_err());
        cache_is_exact(&cache);
        assert_eq!(cache.peek(&1_500).is_some(), !told);
        assert_eq!(cache.stats().rejected, u64::from(told), "an insert without memory counts as rejected");
        told
    }),
    // The error has the path of the group, for which there is no memory, too.
    ("cache insert without any more memory", |nth| {
        let (runtime, cache) = cache();
        (0..1_000).for_each(|key| drop(cache.insert(key, vec![0; 100]).unwrap()));
        let group = runtime.group("late").unwrap();
        let value = vec![0; 300];
        FAIL_ALL.set(true);
        let told = failing(nth, || cache.entry(1_500).group(&group).insert(value).is_err());
        FAIL_ALL.set(false);
        cache_is_exact(&cache);
        assert_eq!(cache.peek(&1_500).is_some(), !told);
        told
    }),
    ("cache get", |nth| {
        let (_runtime, cache) = cache();
        (0..100).for_each(|key| drop(cache.insert(key, Vec::new()).unwrap()));
        let told = failing(nth, || (0..200).filter(|key| cache.get(key).is_some()).count() != 100);
        cache_is_exact(&cache);
        told
    }),
    ("cache with limits", |nth| {
        let (runtime, _cache) = cache();
        let builder = Pages::builder(&runtime).weigher(|_, _| ByteSize::ZERO).low(ByteSize::kib(1));
        let mut built = None;
        let told = failing(nth, || {
            built = builder.build().ok();
            built.is_none()
        });
        assert_eq!(runtime.tree().len(), 2 - usize::from(told), "a build that fails leaves no group");
        drop(built);
        assert_eq!(runtime.tree().len(), 1);
        told
    }),
    ("cache load", |nth| {
        let (runtime, cache) = cache();
        let group = runtime.group("late").unwrap();
        let mut value = Some(vec![0; 300]);
        let told = failing(nth, || {
            let entry = cache.entry(1_500).group(&group);
            let filled = entry.or_try_fill_with(|| value.take().ok_or(())).unwrap();
            matches!(filled.origin, Origin::Rejected(_))
        });
        cache_is_exact(&cache);
        assert_eq!(cache.peek(&1_500).is_some(), !told);
        assert_eq!(cache.get_or_insert_with(1_500, Vec::new).is_empty(), told, "a load is in flight for ever");
        told
    }),
    ("cache compute", |nth| {
        let (runtime, cache) = cache();
        let group = runtime.group("late").unwrap();
        let mut value = Some(vec![0; 300]);
        let told =
            failing(nth, || cache.entry(1_500).group(&group).and_compute(|_| Op::Put(value.take().unwrap())).is_err());
        cache_is_exact(&cache);
        assert_eq!(cache.peek(&1_500).is_some(), !told);
        told
    }),
    ("cache refresh", |nth| {
        let (_runtime, cache) = due();
        let mut value = Some(vec![2; 300]);
        let told = failing(nth, || {
            let refresh = cache.get_or_refresh(&1).and_then(|hit| hit.refresh).expect("the entry is due");
            let filled = refresh.try_fill_with(|| value.take().ok_or(())).unwrap();
            matches!(filled.origin, Origin::Rejected(_))
        });
        cache_is_exact(&cache);
        assert_eq!(cache.peek(&1).map(|value| value[0]), Some(if told { 1 } else { 2 }));
        told
    }),
    ("name space", |nth| {
        let (runtime, _cache) = cache();
        let rows = Cache::<TenantKey<u64>, u64>::builder(&runtime).weigher(|_, _| ByteSize::kib(1)).build().unwrap();
        let tenant = runtime.group("late").unwrap();
        let view = rows.tenant(&tenant).unwrap();
        let told = failing(nth, || {
            let refused = view.insert(1, 1).is_err();
            let loaded = view.get_or_insert_with(2, || 2);
            assert_eq!((loaded, view.get_many(&[1, 2])[0]), (2, (!refused).then_some(1)));
            refused || !view.contains_key(&2)
        });
        assert_eq!(rows.len(), if told { 1 } else { 2 });
        runtime.tree().drain_stock();
        let each = ByteSize::kib(1) + Cache::<TenantKey<u64>, u64>::ENTRY_BYTES;
        assert_eq!(tenant.usage(), each * rows.len() as u64);
        told
    }),
    ("runtime group", |nth| {
        let (runtime, _cache) = cache();
        let mut group = None;
        let told = failing(nth, || {
            group = runtime.group("a/b").ok();
            group.is_none()
        });
        let again = runtime.group("a/b").unwrap();
        assert!(group.is_none_or(|group| group == again));
        assert_eq!(runtime.stats().groups, 3);
        told
    }),
    ("runtime statistics", |nth| {
        let (runtime, cache) = cache();
        cache.insert(1, vec![0; 100]).unwrap();
        failing(nth, || {
            assert_eq!(runtime.stats().groups, 1);
            false
        });
        cache_is_exact(&cache);
        false
    }),
    ("runtime reclaim", |nth| reclaim(nth, Eviction::default())),
    ("runtime reclaim by SIEVE", |nth| reclaim(nth, Eviction::Sieve)),
    ("charge guard", |nth| {
        let (runtime, _cache) = cache();
        let other = MemcgTree::new(0);
        let told = failing(nth, || {
            let foreign = runtime.charge_guard(other.root(), ByteSize::kib(1));
            assert!(matches!(foreign, Err(lowwater::runtime::ChargeError::ForeignGroup { .. })));
            runtime.charge_guard(runtime.root(), ByteSize::kib(100)).is_err()
        });
        runtime.tree().drain_stock();
        assert_eq!(runtime.root().usage(), ByteSize::ZERO);
        told
    }),
    ("dentry lookup", |nth| {
        let (_tree, dcache, mount, _registry) = names();
        let told = failing(nth, || mount.lookup(b"/there/missing").is_err() || mount.lookup(b"/there/file").is_err());
        let census = mount.assert_valid();
        assert_eq!(dcache.statistics().nr_dentry, census.dentries);
        assert!(mount.lookup(b"/there/file").unwrap().is_some());
        told
    }),
    ("dentry create", |nth| {
        let (_tree, dcache, mount, registry) = names();
        let told = failing(nth, || mount.create(b"/there/new").is_err());
        assert_eq!(dcache.statistics().nr_dentry, mount.assert_valid().dentries);
        // The mount shows the backend's state, whether the failure was reported or not.
        let there = mount.lookup(b"/there/new").unwrap().is_some();
        while registry.drop_caches() > 0 {}
        assert_eq!(mount.lookup(b"/there/new").unwrap().is_some(), there);
        told
    }),
];

fn names() -> (MemcgTree, Dcache, lowwater_dcache_model::Mount, Registry) {
    let tree = MemcgTree::new(2);
    let registry = Registry::new(&tree, 1);
    let dcache = Dcache::builder().buckets(64).topology(Arc::new(Fixed::new(1))).build();
    let memory = Arc::new(Memory::new());
    memory.create_path(b"/there/file", Kind::File).unwrap();
    let mount = dcache.mount(memory, &registry, tree.root()).unwrap();
    (tree, dcache, mount, registry)
}

#[test]
fn no_allocation_that_fails_loses_anything() {
    if let Ok(order) = std::env::var(ORDER) {
        return child(&order);
    }
    for (name, _) in OPERATIONS {
        let (mut sites, mut survived) = (BTreeMap::new(), 0);
        for nth in 0..NTH_MAX {
            let out = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "no_allocation_that_fails_loses_anything", "--test-threads=1", "--nocapture"])
                .env(ORDER, format!("{name}:{nth}"))
                .env("RUST_BACKTRACE", "0")
                .output()
                .unwrap();
            let (said, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            if said.contains("outcome: no allocation failed") {
                assert!(nth > 0 || NEVER_ABORTS.contains(&name), "{name} allocates nothing, so nothing was tried");
                break;
            }
            if out.status.success() && said.contains("outcome: went on") {
                survived += 1;
                continue;
            }
            assert!(
                err.contains("memory allocation of ") && !err.contains("panicked"),
                "{name}, allocation {nth}: {}\n{said}{err}",
                out.status
            );
            let site = err.lines().find_map(|line| line.strip_prefix("site: ")).unwrap_or("?").to_string();
            *sites.entry(site).or_insert(0) += 1;
        }
        let aborts: usize = sites.values().sum();
        println!("{name}: {survived} reported or tolerated, {aborts} abort the process");
        sites.iter().for_each(|(site, times)| println!("    {times} in {site}"));
        assert!(aborts == 0 || !NEVER_ABORTS.contains(&name), "{name} must not end the process");
    }
}

fn child(order: &str) {
    let (name, nth) = order.split_once(':').unwrap();
    let (_, operation) = OPERATIONS.iter().find(|(other, _)| *other == name).unwrap();
    // Allocations that a thread or the program makes once are not the operation's.
    operation(usize::MAX);
    FAILED.set(false);
    let told = operation(nth.parse().unwrap());
    let failed = FAILED.get();
    assert!(failed || !told, "{name} tells of a failure that was not");
    println!("outcome: {}", if failed { "went on" } else { "no allocation failed" });
}
