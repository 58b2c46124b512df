//! Numbers, names, records and topologies at the ends of their ranges.
//!
//! Sums must saturate; values out of range must be refused or mean "never". docs/HAZARDS.md names
//! the tests.

use crate::common::within;
use crate::{assert_whole, cache, filled, runtime, Numbers};
use lowwater::cache::{Loaded, Meta};
use lowwater::pressure::{Level, PressureConfig, Trim};
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Memcg, NodeId, Runtime, Topology, Watermarks};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Times around the ends of the encodings of `src/cache/expiry`: deadlines are in ticks for 20 days
/// and in seconds for 34 years, idle times end at 8.5 years.
fn times() -> Vec<Duration> {
    let [days20, years8, years34] = [Duration::from_secs(20 * 86_400), 8 * YEAR, 34 * YEAR];
    let mut times = vec![Duration::ZERO, Duration::from_nanos(1), days20, years8, years34, 1000 * YEAR];
    times.extend([Duration::from_nanos(u64::MAX), Duration::from_secs(u64::MAX), Duration::MAX]);
    times
}

#[test]
fn extreme_times_are_kept_or_mean_never() {
    within("times", || {
        let runtime = runtime(ByteSize::mib(4));
        let cache = cache(&runtime);
        for time in times() {
            let is_long = time > Duration::from_secs(1);
            let lives = |cache: &Numbers| {
                let found = cache.get(&1).is_some();
                assert!(found || !is_long, "{time:?}");
                cache.remove(&1);
            };
            cache.entry(1).time_to_live(time).insert(vec![1]).unwrap();
            lives(&cache);
            cache.entry(1).time_to_idle(time).insert(vec![1]).unwrap();
            lives(&cache);
            cache.insert(1, vec![1]).unwrap();
            cache.touch(&1, Some(time));
            lives(&cache);
            let meta = Meta { time_left: Some(time), time_to_idle: Some(time), ..Meta::default() };
            let meta = Meta { group: "/".into(), ..meta };
            cache.load([(1, vec![1], meta)]);
            lives(&cache);
            let builder = || Cache::builder(&runtime).weigher(|_: &u64, _: &Vec<u8>| ByteSize::ZERO);
            let both = builder().time_to_live(time).time_to_idle(time).build();
            for cache in [builder().time_to_live(time).build(), builder().time_to_idle(time).build(), both] {
                let cache = cache.unwrap();
                cache.insert(1, vec![1]).unwrap();
                lives(&cache);
            }
        }
        assert_whole(&runtime, &cache);
    });
}

#[test]
fn hostile_records_are_loaded_or_refused() {
    within("records", || {
        let runtime = runtime(ByteSize::mib(4));
        let cache = cache(&runtime);
        let deep = "d/".repeat(Memcg::DEPTH_MAX) + "d";
        let (long, wide) = ("n".repeat(256), "w".repeat(255));
        let groups = [
            ("/", true),
            ("a", true),
            ("/a/b", true),
            (&wide, true),
            ("\0", true),
            (" ", true),
            ("..", true),
            ("\u{202e}\n", true),
            // The cache's own group.
            ("", true),
            ("//", false),
            ("a//b", false),
            ("/a/", false),
            (&long, false),
            (&deep, false),
        ];
        let mut expected = Loaded::default();
        let mut records = Vec::new();
        let time = [None, Some(Duration::ZERO), Some(Duration::MAX)];
        for (group, is_one) in groups {
            for time_left in time {
                for (time_to_idle, heat) in time.into_iter().zip([0, 7, 255]) {
                    let meta = Meta { group: group.into(), time_left, time_to_idle, heat, ..Meta::default() };
                    let key = records.len() as u64;
                    records.push((key, vec![1; 10], meta.clone()));
                    records.push((key, vec![2; 10], meta));
                    match (time_left, is_one) {
                        (Some(Duration::ZERO), _) => expected.expired += 2,
                        (_, false) => expected.refused += 2,
                        // An entry with an idle time of 0 is expired at once, and the second one
                        // may replace it.
                        (_, true) => expected.put += 1,
                    }
                }
            }
        }
        let nr = records.len() as u64;
        let loaded = cache.load(records);
        assert_eq!((loaded.expired, loaded.refused), (expected.expired, expected.refused));
        assert!(loaded.put >= expected.put && loaded.put + loaded.present == nr - loaded.expired - loaded.refused);
        assert!(cache.peek(&0) == Some(vec![1; 10]), "an existing value is newer");
        // Entries that do not fit are refused, and the others stay.
        let huge = (0..20).map(|n| (1 << 32 | n, vec![0; 1 << 22], Meta { group: "/".into(), ..Meta::default() }));
        assert_eq!(cache.load(huge).put, 0);
        assert_whole(&runtime, &cache);
    });
}

#[test]
fn a_cache_accepts_any_name_and_numbers() {
    within("caches", || {
        let runtime = runtime(ByteSize::mib(4));
        let long = "x".repeat(1 << 20);
        let names = ["", "\0", "a\nb", "\u{202e}", "a-0", "a-0", &long];
        let caches: Vec<Numbers> = names
            .iter()
            .enumerate()
            .map(|(n, name)| {
                let seeks = [0, 1, u32::MAX][n % 3];
                let builder =
                    Cache::builder(&runtime).weigher(|_, _: &Vec<u8>| ByteSize::ZERO).name(*name).seeks(seeks);
                builder.recreation_cost(|_, _| u64::MAX).build().unwrap()
            })
            .collect();
        for cache in &caches {
            for n in 0..1000 {
                cache.insert(n, vec![]).unwrap();
            }
        }
        let registry = runtime.registry();
        let shown = registry.debugfs_names();
        assert_eq!(shown.len(), names.len());
        for (cache, shown) in caches.iter().zip(&shown) {
            let id = registry.debugfs_find(shown).unwrap();
            assert_eq!(registry.debugfs_count(id).unwrap(), format!("0 {}\n", cache.len()));
            let _ = format!("{cache:?} {:?}", registry.snapshot());
        }
        assert!(runtime.drop_caches() >= 7000);
        assert!(caches.iter().all(Cache::is_empty));
    });
}

#[test]
fn a_runtime_with_extreme_numbers_works() {
    within("runtimes", || {
        let ends = [ByteSize::ZERO, ByteSize::new(1), ByteSize::new(u64::MAX - 1), ByteSize::MAX];
        let pressure = |percent, time| PressureConfig {
            low_percent: percent,
            medium_percent: percent,
            critical_percent: percent,
            floor: Some(ByteSize::new(u64::from(percent))),
            debounce: time,
            quiet: time,
            step_time: time,
        };
        for (n, gap) in ends.into_iter().enumerate() {
            for time in [Duration::ZERO, Duration::MAX] {
                for budget in [ByteSize::new(1), ByteSize::kib(64), ByteSize::new(u64::MAX - 1), ByteSize::MAX] {
                    let mut builder = Runtime::builder()
                        .topology(Arc::new(Fixed::new(1)))
                        .budget(budget)
                        .direct_time_max(time)
                        .watermarks(Watermarks { low_gap: gap, high_gap: ends[3 - n] });
                    if n % 2 == 0 {
                        builder = builder.pressure(pressure(255, time)).trim(Trim::new(|| ()).interval(time));
                    }
                    let runtime = builder.build().unwrap();
                    let cache = cache(&runtime);
                    let mut kept = 0;
                    for n in 0..2000 {
                        kept += u64::from(cache.insert(n, vec![1; 100]).is_ok());
                    }
                    assert_eq!(kept == 0, budget < ByteSize::kib(64), "{budget}");
                    let _ = runtime.charge(runtime.root(), ByteSize::MAX);
                    if let Some(monitor) = runtime.pressure() {
                        monitor.raise(Level::Critical);
                        monitor.freed(ByteSize::MAX);
                    }
                    for other in ends {
                        runtime.set_budget(other);
                        let _ = (cache.insert(1, vec![1]), runtime.stats());
                    }
                    runtime.reclaim(runtime.root(), ByteSize::MAX);
                    // Entries that the reclaimer has just isolated are on no list.
                    while !cache.is_empty() {
                        runtime.drop_caches();
                    }
                }
            }
        }
    });
}

/// A topology with given answers; the calls of `nodes` return the given numbers in turn.
struct Liar {
    nodes: Vec<usize>,
    asked: AtomicUsize,
    current: NodeId,
    cpus: Option<Vec<usize>>,
}

impl Liar {
    fn new(nodes: &[usize]) -> Self {
        Self { nodes: nodes.into(), asked: AtomicUsize::new(0), current: NodeId::new(0), cpus: Some(vec![]) }
    }
}

impl Topology for Liar {
    fn nodes(&self) -> usize {
        self.nodes[self.asked.fetch_add(1, Relaxed) % self.nodes.len()]
    }

    fn current(&self) -> NodeId {
        self.current
    }

    fn cpus_of(&self, _: NodeId) -> &[usize] {
        self.cpus.as_ref().expect("the topology's own fault")
    }

    fn distance(&self, _: NodeId, _: NodeId) -> u32 {
        panic!("the topology's own fault")
    }
}

#[test]
fn an_inconsistent_topology_leaves_a_whole_cache_or_no_runtime() {
    let liars = [
        Liar::new(&[0]),
        Liar::new(&[0, 1]),
        Liar::new(&[1, 1, 0, 2]),
        Liar::new(&[2, 2, 1, 1]),
        Liar::new(&[1, 2, 3]),
        Liar::new(&[1, 1, 1 << 20]),
        Liar { current: NodeId::new(u16::MAX), ..Liar::new(&[1]) },
        Liar { current: NodeId::new(u16::MAX), ..Liar::new(&[2]) },
        Liar { current: NodeId::new(2), ..Liar::new(&[2]) },
        Liar { cpus: Some(vec![usize::MAX, 1 << 40, 5, 5, 1]), ..Liar::new(&[2]) },
        Liar { cpus: None, ..Liar::new(&[2]) },
    ];
    for liar in liars {
        let said = format!("{:?} {:?} {:?}", liar.nodes, liar.current, liar.cpus);
        within(&said.clone(), move || {
            let liar = Arc::new(liar);
            let built = catch_unwind(AssertUnwindSafe(|| {
                Runtime::builder().budget(ByteSize::kib(512)).topology(liar.clone()).build()
            }));
            assert_eq!(built.is_err(), liar.cpus.is_none(), "a panic reaches the caller");
            let Ok(Ok(runtime)) = built else {
                // No thread was started, and nothing keeps the topology.
                return assert_eq!(Arc::strong_count(&liar), 1);
            };
            let cache = filled(&runtime, 1000);
            for n in 0..6_000 {
                let _ = cache.insert(n, vec![1; 100]);
            }
            let _ = (cache.len_of(runtime.root()), cache.footprint(), runtime.stats());
            runtime.reclaim(runtime.root(), ByteSize::kib(100));
            let tenant = runtime.group("tenant").unwrap();
            cache.entry(1 << 40).group(&tenant).insert(vec![1]).unwrap();
            runtime.drop_group(&tenant).unwrap();
            assert_whole(&runtime, &cache);
            drop((cache, runtime));
        });
    }
}
