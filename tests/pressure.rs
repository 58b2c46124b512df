//! Memory pressure through public names only:
//!
//! - a cache cannot exceed a lowered budget before pressure is reassessed; afterwards it fills the
//!   budget again;
//! - while usage falls, no insert is refused, and lookups continue;
//! - the budget follows a control group's limit, and an error names a source that cannot be used;
//! - the trim hook, which returns freed memory to the system, is called after a large shrink.
//!
//! The sources are tested in `lowwater-pressure`. A change must ensure that pressure is raised by
//! hand, so that the result does not depend on the machine.

#[path = "common/wait.rs"]
mod wait;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wait::until;

use lowwater::cache::{CacheBuildError, RejectReason, RemovalCause};
use lowwater::pressure::cgroup::{Cgroup, Version};
use lowwater::pressure::{CgroupLimit, Level, PressureConfig, Psi, Trigger, Trim};
use lowwater::{ByteSize, Cache, Runtime};

const VALUE_BYTES: usize = 4096;
/// Every value here is read right after its insert, so a walk may give all values a second chance
/// before it evicts the first. On a busy machine that takes longer than a charge waits by default.
const DIRECT_TIME_MAX: Duration = Duration::from_secs(60);

/// The keys of the evicted values of a cache.
type Evicted = Arc<Mutex<HashSet<u64>>>;

fn cache(runtime: &Runtime) -> (Cache<u64, Vec<u8>>, Evicted) {
    let evicted = Evicted::default();
    let keys = Arc::clone(&evicted);
    let cache = Cache::builder(runtime)
        .weigher(|_, value: &Vec<u8>| ByteSize::new(value.capacity() as u64))
        .eviction_listener(move |key: &u64, _, cause| {
            if cause == RemovalCause::Size {
                keys.lock().unwrap().insert(*key);
            }
        })
        .build()
        .unwrap();
    (cache, evicted)
}

/// A thread's inserts of new values, each of which is read at once.
///
/// All older values have been read and get a second chance. So while the thread waits for a
/// processor between an insert and its read, the new value may be the first that is evicted.
struct Writer<'a> {
    cache: &'a Cache<u64, Vec<u8>>,
    evicted: &'a Evicted,
    next: u64,
    inserted: u64,
    missing: u64,
}

impl<'a> Writer<'a> {
    fn new((cache, evicted): &'a (Cache<u64, Vec<u8>>, Evicted), next: u64) -> Self {
        Self { cache, evicted, next, inserted: 0, missing: 0 }
    }

    /// Inserts `bytes` of new values and reads each; returns how many were refused.
    fn pour(&mut self, bytes: ByteSize) -> u64 {
        let mut refused = 0;
        for _ in 0..bytes.get() / VALUE_BYTES as u64 {
            self.next += 1;
            if self.cache.insert(self.next, vec![0; VALUE_BYTES]).is_err() {
                refused += 1;
                continue;
            }
            self.inserted += 1;
            match self.cache.get(&self.next) {
                Some(value) => assert_eq!(value.len(), VALUE_BYTES),
                None => {
                    self.missing += 1;
                    until("a missing value was evicted", || self.evicted.lock().unwrap().contains(&self.next));
                }
            }
        }
        refused
    }

    /// Compares the missing values with all: those of a few inserts depend on how often the thread
    /// waited in them.
    fn assert_few_are_missing(&self) {
        let Self { inserted, missing, .. } = self;
        assert!(*missing <= 1 + inserted / 100, "{missing} of {inserted} values were missing after their insert");
    }
}

#[test]
fn a_value_that_pressure_has_no_room_for_is_not_too_large() {
    let config = PressureConfig { quiet: Duration::from_secs(3_600), ..PressureConfig::default() };
    let runtime = Runtime::builder().budget(ByteSize::mib(8)).pressure(config).build().unwrap();
    let (cache, _) = cache(&runtime);
    (0..100).for_each(|key| drop(cache.insert(key, vec![0; VALUE_BYTES]).unwrap()));
    runtime.pressure().unwrap().raise(Level::Critical);
    until("the ceiling", || runtime.root().max() < ByteSize::mib(8));
    let insert = |bytes: ByteSize| cache.insert(0, vec![0; bytes.get() as usize]).unwrap_err().reason;
    assert!(matches!(insert(ByteSize::mib(7)), RejectReason::NoRoom { .. }));
    assert!(matches!(insert(ByteSize::mib(8)), RejectReason::TooLarge { .. }));
}

#[test]
fn a_cache_does_not_exceed_the_ceiling_until_it_rises() {
    let budget = ByteSize::mib(32);
    let config = PressureConfig {
        quiet: Duration::from_secs(1),
        step_time: Duration::from_millis(20),
        ..PressureConfig::default()
    };
    let runtime = Runtime::builder().budget(budget).direct_time_max(DIRECT_TIME_MAX).pressure(config).build().unwrap();
    let cache = cache(&runtime);
    let mut writer = Writer::new(&cache, 0);
    writer.pour(ByteSize::mib(64));
    let full = runtime.root().usage();
    assert!(full > ByteSize::mib(24), "{full} bytes of {budget} are not full");

    let pressure = runtime.pressure().unwrap();
    let raised = Instant::now();
    pressure.raise(Level::Medium);
    let target = pressure.stats().ceiling;
    assert!(target < full);

    // Inserts begin at once, and end at twice the budget, or when the ceiling may rise again.
    let (mut most, mut refused, mut poured) = (ByteSize::ZERO, 0, ByteSize::ZERO);
    while poured < ByteSize::mib(64) && raised.elapsed() < config.quiet {
        refused += writer.pour(ByteSize::mib(1));
        poured = poured.saturating_add(ByteSize::mib(1));
        most = most.max(runtime.root().usage());
    }
    assert!(most <= full, "{most} bytes are more than when the pressure came");
    assert_eq!(refused, 0, "of {poured} bytes");
    let is_over = || raised.elapsed() >= config.quiet * 2;
    until("usage comes down to the target", || runtime.root().usage() <= target || is_over());
    // On a slow machine the ceiling may have risen already: then this shows nothing.
    if !is_over() {
        writer.pour(ByteSize::mib(8));
        let after = runtime.root().usage();
        assert!(is_over() || after <= target, "{after} bytes are above {target}");
    }

    until("the budget is given back", || runtime.stats().budget == budget);
    assert_eq!(pressure.stats().level, Level::Calm);
    writer.pour(ByteSize::mib(64));
    assert!(runtime.root().usage() > target, "the cache fills the returned memory");
    writer.assert_few_are_missing();
}

#[test]
fn lookups_and_inserts_work_while_usage_falls() {
    let runtime = Runtime::builder()
        .budget(ByteSize::mib(64))
        .direct_time_max(DIRECT_TIME_MAX)
        // The ceiling must not rise before the usage has come down to it.
        .pressure(PressureConfig { quiet: Duration::from_secs(600), ..PressureConfig::default() })
        .build()
        .unwrap();
    let cache = cache(&runtime);
    let stop = AtomicBool::new(false);
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (cache, stop, refused) = (&cache, &stop, &refused);
            scope.spawn(move || {
                let mut writer = Writer::new(cache, thread << 32);
                while !stop.load(Ordering::Relaxed) {
                    refused.fetch_add(writer.pour(ByteSize::mib(1)), Ordering::Relaxed);
                }
                writer.assert_few_are_missing();
            });
        }
        until("it is full", || runtime.root().usage() > ByteSize::mib(48));
        runtime.pressure().unwrap().raise(Level::Critical);
        let target = runtime.pressure().unwrap().stats().ceiling;
        until("usage comes down beside two writers", || runtime.root().usage() <= target);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(refused.load(Ordering::Relaxed), 0);
}

#[test]
fn the_control_groups_limit_is_the_budget_if_it_is_less() {
    let directory = std::env::temp_dir().join(format!("lowwater-limit-{}", std::process::id()));
    let inner = directory.join("service");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::write(directory.join("memory.max"), "100663296\n").unwrap();
    std::fs::write(inner.join("memory.max"), "max\n").unwrap();
    let limit = CgroupLimit::of(Cgroup::at(Version::V2, &directory, &inner));
    let runtime = Runtime::builder().budget(ByteSize::gib(1)).cgroup(limit.clone()).build().unwrap();
    assert_eq!(runtime.root().max(), ByteSize::mib(68));
    let stats = runtime.stats().pressure.unwrap();
    assert_eq!((stats.cgroup.unwrap().limit, stats.budget), (ByteSize::mib(96), ByteSize::mib(68)));
    runtime.set_budget(ByteSize::gib(2));
    assert_eq!(runtime.root().max(), ByteSize::mib(68), "the group's limit still holds");
    runtime.set_budget(ByteSize::mib(8));
    assert_eq!(runtime.root().max(), ByteSize::mib(8));

    std::fs::write(inner.join("memory.max"), "a lot\n").unwrap();
    let error = Runtime::builder().cgroup(limit).build().unwrap_err().to_string();
    for part in ["service/memory.max", "a lot", "give the budget by hand"] {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A directory with the limit file of a control group, which is removed at the end.
struct FakeGroup(std::path::PathBuf);

impl FakeGroup {
    fn new(name: &str, limit: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("lowwater-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let group = Self(directory);
        group.set(limit);
        group
    }

    fn set(&self, limit: &str) {
        std::fs::write(self.0.join("memory.max"), limit).unwrap();
    }

    fn limit(&self) -> CgroupLimit {
        CgroupLimit::of(Cgroup::at(Version::V2, &self.0, &self.0))
    }
}

impl Drop for FakeGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_a_budget_the_control_groups_limit_is_the_budget_and_is_followed() {
    let group = FakeGroup::new("no-budget", "100663296\n");
    let runtime = Runtime::builder().cgroup(group.limit()).build().unwrap();
    assert_eq!(runtime.root().max(), ByteSize::mib(68), "96 MiB, less an eighth and 16 MiB");
    let cache = cache(&runtime);
    let mut writer = Writer::new(&cache, 0);
    writer.pour(ByteSize::mib(80));
    writer.assert_few_are_missing();
    assert!(runtime.root().usage() <= ByteSize::mib(68));
    // A raised limit raises the budget, and a removed one leaves a budget below the machine's
    // memory.
    group.set("134217728\n");
    until("a raised limit is followed", || runtime.root().max() == ByteSize::mib(96));
    group.set("max\n");
    until("a removed limit is followed", || runtime.root().max() > ByteSize::mib(96));
    assert!(runtime.root().max() < lowwater::pressure::machine_memory().unwrap(), "it is never unlimited");
}

#[test]
fn without_a_budget_and_without_a_limit_there_is_an_error_with_a_remedy() {
    use lowwater::runtime::RuntimeBuildError::{LimitTooSmall, NoBudget, Pressure, ZeroBudget};
    let group = FakeGroup::new("no-limit", "max\n");
    let error = Runtime::builder().cgroup(group.limit()).build().unwrap_err();
    assert!(matches!(error, NoBudget), "{error}");
    for part in ["no memory limit", "budget(..)", "unlimited()"] {
        assert!(error.to_string().contains(part), "{error} does not say {part:?}");
    }
    group.set("a lot\n");
    let error = Runtime::builder().cgroup(group.limit()).build().unwrap_err();
    assert!(matches!(error, Pressure(_)) && error.to_string().contains("memory.max"), "{error}");
    group.set("1048576\n");
    let error = Runtime::builder().cgroup(group.limit().margin(ByteSize::mib(2))).build().unwrap_err();
    assert!(matches!(error, LimitTooSmall) && error.to_string().contains("margin(..)"), "{error}");
    // The same holds where a budget is configured, and where there is none.
    for builder in [Runtime::builder().budget(ByteSize::gib(1)), Runtime::builder().unlimited()] {
        let error = builder.cgroup(group.limit().margin(ByteSize::mib(1))).build().unwrap_err();
        assert!(matches!(error, LimitTooSmall), "{error}");
    }
    // A limit above the machine's memory leaves what the machine leaves.
    group.set("1125899906842624\n");
    let runtime = Runtime::builder().cgroup(group.limit()).build().unwrap();
    assert!(runtime.root().max() < lowwater::pressure::machine_memory().unwrap());
    let error = Runtime::builder().budget(ByteSize::ZERO).build().unwrap_err();
    assert!(matches!(error, ZeroBudget), "{error}");

    let unlimited = Runtime::builder().unlimited().build().unwrap();
    assert_eq!(unlimited.root().max(), ByteSize::MAX);
    assert!(unlimited.pressure().is_none());
    // The last of the two calls decides.
    let runtime = Runtime::builder().unlimited().budget(ByteSize::mib(1)).build().unwrap();
    assert_eq!(runtime.root().max(), ByteSize::mib(1));
}

#[test]
fn all_sources_of_this_machine_are_watched_or_their_absence_is_explained() {
    let group = FakeGroup::new("auto", "100663296\n");
    let builder = Runtime::builder().budget(ByteSize::gib(1)).auto_pressure(true);
    let runtime = builder.clone().cgroup(group.limit()).build().unwrap();
    assert_eq!(runtime.root().max(), ByteSize::mib(68), "a named group is the limit");
    let stats = runtime.stats().pressure.unwrap();
    // The file of the system's stalls; in the top group it is the group's, too.
    let watched = stats.sources.iter().filter(|source| source.file.ends_with("memory")).count();
    let explained = stats.missing.len();
    // Sources are the service manager's file, the group's stalls and the system's.
    assert!((2..=3).contains(&(watched + explained)), "{stats:?}");
    assert!(stats.missing.iter().all(|reason| reason.len() > 20), "{stats:?}");
    // A source that is both found and named is watched once.
    if stats.sources.iter().any(|source| source.file == "/proc/pressure/memory") {
        let trigger = Trigger::some(Duration::from_millis(150), Duration::from_secs(2)).unwrap();
        let both = builder.clone().watch_psi(Psi::system(trigger)).build().unwrap();
        let files: Vec<_> = both.stats().pressure.unwrap().sources.into_iter().map(|source| source.file).collect();
        assert_eq!(files.iter().filter(|file| *file == "/proc/pressure/memory").count(), 1, "{files:?}");
    }
    assert!(builder.auto_pressure(false).build().unwrap().stats().pressure.is_none(), "nothing is watched");
}

#[test]
fn a_single_source_that_does_not_exist_is_explained() {
    let builder = Runtime::builder().budget(ByteSize::gib(1));
    // Either the source is watched or its absence is explained, also in a container, and once.
    let stats = builder.clone().systemd(true).build().unwrap().stats().pressure.unwrap();
    assert_eq!(stats.sources.len() + stats.missing.len(), 1, "{stats:?}");
    let stats = builder.clone().cgroup_limit(true).build().unwrap().stats().pressure.unwrap();
    assert_eq!(usize::from(stats.cgroup.is_some()) + stats.missing.len(), 1, "{stats:?}");
    let stats = builder.clone().auto_pressure(true).build().unwrap().stats().pressure.unwrap();
    let named = builder.auto_pressure(true).systemd(true).cgroup_limit(true).build().unwrap();
    assert_eq!(named.stats().pressure.unwrap().missing, stats.missing);
}

#[test]
fn an_unusable_source_is_named_in_the_error() {
    let trigger = Trigger::some(Duration::from_millis(100), Duration::from_secs(2)).unwrap();
    let error = Runtime::builder()
        .budget(ByteSize::mib(1))
        .watch_psi(Psi::cgroup("/nowhere", trigger))
        .build()
        .unwrap_err()
        .to_string();
    assert!(error.contains("/nowhere/memory.pressure"), "{error}");
}

#[test]
fn a_runtime_watches_no_source_by_default() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).cgroup_limit(false).systemd(false).build().unwrap();
    assert!(runtime.pressure().is_none());
    assert!(runtime.stats().pressure.is_none());
}

#[test]
fn the_trim_hook_is_called_after_a_large_shrink_and_not_after_a_small_one() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let trim = Trim::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let runtime = Runtime::builder()
        .budget(ByteSize::mib(32))
        .trim(trim.threshold(ByteSize::mib(4)).interval(Duration::ZERO))
        .build()
        .unwrap();
    let cache = cache(&runtime);
    let mut writer = Writer::new(&cache, 0);
    writer.pour(ByteSize::mib(2));
    runtime.drop_caches();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(calls.load(Ordering::Relaxed), 0, "2 MiB are less than the threshold");
    writer.pour(ByteSize::mib(16));
    runtime.reclaim(runtime.root(), ByteSize::mib(8));
    until("the hook is called", || calls.load(Ordering::Relaxed) == 1);
}

/// Such a `min` would protect more than the whole budget, and each later insert would be refused. A
/// configured budget may be larger than a control group's limit that holds for a while.
#[test]
fn a_cache_cannot_claim_more_than_the_control_groups_limit_leaves() {
    let group = FakeGroup::new("large-min", "134217728\n");
    let with_min = |runtime: &Runtime, mib| {
        Cache::<u64, Vec<u8>>::builder(runtime).weigher(|_, value| value.capacity()).min(ByteSize::mib(mib)).build()
    };
    let runtime = Runtime::builder().cgroup(group.limit()).build().unwrap();
    for mib in [97, 256] {
        let error = with_min(&runtime, mib).unwrap_err();
        let expected = matches!(error, CacheBuildError::LimitTooLarge { max, .. } if max == ByteSize::mib(96));
        assert!(expected, "{error}");
    }
    drop(with_min(&runtime, 96).unwrap());
    runtime.pressure().unwrap().set_budget(ByteSize::mib(256));
    with_min(&runtime, 256).unwrap();
    let runtime = Runtime::builder().budget(ByteSize::mib(256)).cgroup(group.limit()).build().unwrap();
    with_min(&runtime, 256).unwrap();
}
