//! The cache of `examples/kernel_module/one_cache`, in user space: the source that is also compiled
//! into three kernel modules (`examples/kernel_module/modules`), here on this crate's registry.
//! Workers of four groups use it while everything is dropped; at the end the counts are exact, and
//! no entry is left.
//!
//! The parts that differ from the kernel (lock, table, allocation, clock) are the modules of this
//! file. The test does not compile if the shared source uses something that they do not have.
//!
//! A change must ensure that the shared source is included unchanged.

#![cfg(all(feature = "std", not(lowwater_loom)))]

#[path = "../../../examples/kernel_module/one_cache/cache.rs"]
mod cache;
#[path = "../../../examples/kernel_module/one_cache/lists_lowwater.rs"]
mod lists;
#[path = "../../../examples/kernel_module/one_cache/load.rs"]
mod load;

/// The lock, the table and the clock of user space.
mod sys {
    pub(crate) use std::vec::Vec as Table;

    /// There is no memory.
    #[derive(Debug)]
    pub(crate) struct NoMemory;

    pub(crate) fn try_table<T>(
        len: usize,
        mut element: impl FnMut() -> Result<T, NoMemory>,
    ) -> Result<Table<T>, NoMemory> {
        let mut table = Vec::new();
        table.try_reserve_exact(len).map_err(|_| NoMemory)?;
        for _ in 0..len {
            table.push(element()?);
        }
        Ok(table)
    }

    pub(crate) struct Lock<T>(std::sync::Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn try_new(value: T) -> Result<Self, NoMemory> {
            Ok(Self(std::sync::Mutex::new(value)))
        }

        pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    pub(crate) fn now_ns() -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    }
}

/// The group and the node of a new entry: those of the thread.
mod place {
    use super::sys::NoMemory;
    use lowwater_lru_core::{Memcg, NodeId};
    use std::cell::RefCell;

    pub(crate) use std::sync::Arc as Shared;

    thread_local! {
        pub(crate) static GROUP: RefCell<Option<(Memcg, NodeId)>> = const { RefCell::new(None) };
    }

    pub(crate) fn current_group() -> Result<Memcg, NoMemory> {
        GROUP.with_borrow(|group| group.as_ref().map(|(memcg, _)| memcg.clone())).ok_or(NoMemory)
    }

    pub(crate) fn alloc<T>(item: impl FnOnce(NodeId) -> T) -> Result<Shared<T>, NoMemory> {
        let node = GROUP.with_borrow(|group| group.as_ref().map(|(_, node)| *node)).ok_or(NoMemory)?;
        Ok(Shared::new(item(node)))
    }

    pub(crate) fn nodes() -> impl Iterator<Item = NodeId> {
        (0..super::NODES as u16).map(NodeId::new)
    }
}

use cache::Cache;
use load::{Load, NUMBERS_PER_WORKER, WORKERS};
use lowwater_lru_core::{Memcg, MemcgTree, NodeId};
use lowwater_shrinker::{Registration, Registry};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

const NODES: usize = 2;
/// The entries of one worker, and the number of its random operations.
const NUMBERS: usize = 500;
const OPERATIONS: usize = 5_000;

/// As the kernel's `Registration<Cache>`: dereferences to the cache.
struct Registered {
    _registration: Registration,
    cache: Arc<Cache>,
}

impl Deref for Registered {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

fn registered(registry: &Registry) -> Load<Registered> {
    let prepared = registry.builder("one_cache").alloc().unwrap();
    let lists = lists::ListLru::with_occupancy(prepared.occupancy());
    let cache = Arc::new(Cache::try_new(WORKERS * NUMBERS_PER_WORKER, lists).unwrap());
    let registration = prepared.register(cache.clone());
    Load::new(Registered { _registration: registration, cache })
}

fn enter(memcg: &Memcg, worker: usize) {
    place::GROUP.set(Some((memcg.clone(), NodeId::new((worker % NODES) as u16))));
}

/// Runs a command, and returns the numbers of its result.
fn run(load: &Load<Registered>, worker: usize, command: &str) -> Vec<u64> {
    let mut said = String::new();
    assert!(load.run(worker, command, &mut said).is_ok(), "{command}");
    said.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn the_kernel_modules_cache_runs_in_user_space() {
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, NODES);
    let groups: Vec<_> = (0..WORKERS).map(|at| tree.root().create(&format!("task{at}")).unwrap()).collect();
    let load = registered(&registry);

    // A second chance: of ten entries, the three that were read survive the first scan.
    enter(&groups[0], 0);
    assert_eq!(run(&load, 0, "fill 10"), [10]);
    for number in [1, 4, 7] {
        assert_eq!(load.cache.get(number), Some(number as u64));
    }
    assert!(load.cache.promote(2) && !load.cache.promote(10));
    registry.shrink(
        tree.root(),
        NodeId::ZERO,
        0,
        lowwater_shrinker::Reclaim::KSWAPD,
        &mut lowwater_shrinker::Work::objects(10),
    );
    assert_eq!([1, 4, 7].map(|number| load.cache.get(number).is_some()), [true; 3]);
    assert_eq!((load.cache.listed(), Cache::alive()), (3, 3));
    assert!(
        load.run(0, "fill", &mut String::new()).is_err() && load.run(WORKERS, "count", &mut String::new()).is_err()
    );
    assert_eq!(run(&load, 0, "empty"), [3]);

    let working = AtomicUsize::new(WORKERS);
    /// Counts the end of a worker, also by a panic.
    struct Ended<'a>(&'a AtomicUsize);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }
    std::thread::scope(|scope| {
        for (worker, group) in groups.iter().enumerate() {
            let (load, working) = (&load, &working);
            scope.spawn(move || {
                let _ended = Ended(working);
                enter(group, worker);
                assert_eq!(run(load, worker, &format!("fill {NUMBERS}")).len(), 1);
                let done = run(load, worker, &format!("churn {OPERATIONS}"));
                assert!(done.iter().all(|&count| count > 0), "{done:?}");
            });
        }
        while working.load(Relaxed) > 0 {
            registry.drop_caches();
        }
    });
    // The counts are exact: each live entry is on a list, in its group.
    let [listed, alive] = run(&load, 0, "count")[..] else { panic!("two numbers") };
    assert_eq!(listed, alive);
    let pairs = run(&load, 0, "pairs 100 1");
    assert!(pairs[0] == 100 || load.cache.get(0).is_none());

    // A group that ends leaves its entries to its parent.
    for group in groups {
        place::GROUP.set(None);
        group.offline().unwrap();
    }
    assert_eq!(load.cache.listed(), listed);
    while registry.drop_caches() > 0 {}
    assert_eq!((load.cache.listed(), Cache::alive()), (0, 0));
    drop(load);
}
