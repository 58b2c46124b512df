//! Tests of the series that a recorder gets from a runtime.
//!
//! A series that is not set to 0 at an end, or a counter that falls, gives a wrong graph or rate in
//! each monitoring system. A change must ensure that all tests use [`Book`], which fails if a
//! counter falls or a name gets a second description.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use super::GROUPS_MAX;
use crate::pressure::{Level, PressureConfig};
use crate::runtime::maintenance::no_records::NoRecords;
use crate::runtime::maintenance::{CacheFigures, MaintenanceId};
use crate::topology::Fixed;
use crate::{ByteSize, Cache, Labels, Runtime};

/// A recorder that keeps the last value of each series, and checks that no counter falls.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    series: BTreeMap<String, f64>,
    /// For each described name: whether it is a counter, its unit, its text.
    described: BTreeMap<String, (bool, Option<Unit>, String)>,
    /// For each registered name: whether it is a counter.
    registered: BTreeMap<String, bool>,
    /// Called whenever a value is set, without the lock.
    on_set: Option<Arc<dyn Fn() + Send + Sync>>,
}

struct Row(Book, String);

impl Row {
    fn set(&self, value: f64, is_counter: bool) {
        let on_set = {
            let mut pages = self.0 .0.lock().unwrap();
            let before = pages.series.insert(self.1.clone(), value);
            assert!(!is_counter || before.is_none_or(|before| before <= value), "{} fell: {before:?} {value}", self.1);
            pages.on_set.clone()
        };
        if let Some(on_set) = on_set {
            on_set();
        }
    }
}

impl CounterFn for Row {
    fn increment(&self, _: u64) {
        panic!("counters are absolute");
    }
    fn absolute(&self, value: u64) {
        self.set(value as f64, true);
    }
}

impl GaugeFn for Row {
    fn increment(&self, _: f64) {
        panic!("gauges are set");
    }
    fn decrement(&self, _: f64) {
        panic!("gauges are set");
    }
    fn set(&self, value: f64) {
        self.set(value, false);
    }
}

impl Book {
    fn describe(&self, name: &KeyName, is_counter: bool, unit: Option<Unit>, text: &SharedString) {
        let described = (is_counter, unit, text.to_string());
        let before = self.0.lock().unwrap().described.insert(name.as_str().to_owned(), described.clone());
        assert!(before.is_none_or(|before| before == described), "{} has two descriptions", name.as_str());
    }

    fn row(&self, key: &Key, is_counter: bool) -> Arc<Row> {
        let mut labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        labels.sort();
        self.0.lock().unwrap().registered.insert(key.name().to_owned(), is_counter);
        Arc::new(Row(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    fn publish(&self, runtime: &Runtime, labels: Labels) {
        metrics::with_local_recorder(self, || runtime.publish_metrics(labels));
    }

    fn get(&self, series: &str) -> Option<f64> {
        self.0.lock().unwrap().series.get(series).copied()
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().series.keys().cloned().collect()
    }
}

impl Recorder for Book {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, true, unit, &text);
    }
    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, false, unit, &text);
    }
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.row(key, true))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.row(key, false))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

fn runtime() -> Runtime {
    let builder = Runtime::builder().budget(ByteSize::mib(1)).topology(Arc::new(Fixed::new(1)));
    builder.pressure(PressureConfig::default()).build().unwrap()
}

fn cache_of(runtime: &Runtime, name: &str) -> Cache<u64, Vec<u8>> {
    let builder = Cache::builder(runtime).name(name).weigher(|_, v: &Vec<u8>| ByteSize::new(v.capacity() as u64));
    builder.build().unwrap()
}

#[test]
fn each_metric_has_a_unit_a_description_and_a_row_in_the_guide() {
    let (runtime, book) = (runtime(), Book::default());
    let cache = cache_of(&runtime, "pages");
    cache.insert(1, vec![0; 10]).unwrap();
    book.publish(&runtime, Labels::Groups);
    metrics::with_local_recorder(&book, || runtime.registry().publish_metrics(Labels::Groups));
    let pages = book.0.lock().unwrap();
    assert!(pages.registered.len() > 35, "{}", pages.registered.len());
    let described: Vec<_> = pages.described.keys().collect();
    assert_eq!(described, pages.registered.keys().collect::<Vec<_>>(), "the described metrics are the registered ones");
    let guide = include_str!("../../../docs/GUIDE.md");
    for (name, is_counter) in &pages.registered {
        let (described_counter, unit, text) = &pages.described[name];
        assert_eq!(described_counter, is_counter, "{name}");
        assert_eq!(name.ends_with("_total"), *is_counter, "{name}");
        let expected = match name {
            name if name.ends_with("_bytes") => Unit::Bytes,
            name if name.contains("_microseconds_") => Unit::Microseconds,
            _ => Unit::Count,
        };
        assert_eq!(*unit, Some(expected), "{name}");
        assert!(text.len() > 5 && !text.ends_with('.'), "{name}: {text}");
        assert!(guide.contains(&format!("`{name}`")), "{name} is not in docs/GUIDE.md");
    }
}

#[test]
fn figures_are_those_of_the_runtime() {
    let (runtime, book) = (runtime(), Book::default());
    let cache = cache_of(&runtime, "pages");
    for key in 0..10 {
        cache.insert(key, vec![0; 100]).unwrap();
    }
    assert!(cache.get(&1).is_some() && cache.get(&100).is_none());
    cache.remove(&3);
    cache.insert(1, vec![]).unwrap();
    cache.get_or_insert_with(50, Vec::new);
    assert!(cache.insert(4, vec![0; 4 << 20]).is_err());
    runtime.tree().drain_stock();
    book.publish(&runtime, Labels::Shrinkers);
    let entries = 8 * (100 + Cache::<u64, Vec<u8>>::ENTRY_BYTES.get()) + 2 * Cache::<u64, Vec<u8>>::ENTRY_BYTES.get();
    for (series, value) in [
        ("lowwater_budget_bytes{}", (1 << 20) as f64),
        ("lowwater_usage_bytes{}", entries as f64),
        ("lowwater_reclaim_start_bytes{}", ((1 << 20) / 32 * 31) as f64),
        ("lowwater_reclaim_stop_bytes{}", ((1 << 20) / 16 * 15) as f64),
        ("lowwater_pressure_level{}", 0.0),
        ("lowwater_groups{}", 1.0),
        ("lowwater_caches{}", 1.0),
        ("lowwater_cache_hits_total{cache=pages}", 1.0),
        ("lowwater_cache_misses_total{cache=pages}", 2.0),
        ("lowwater_cache_inserts_total{cache=pages}", 12.0),
        ("lowwater_cache_rejected_total{cache=pages}", 1.0),
        ("lowwater_cache_loads_total{cache=pages}", 1.0),
        ("lowwater_cache_panics_total{cache=pages}", 0.0),
        ("lowwater_cache_removals_total{cache=pages,cause=explicit}", 1.0),
        ("lowwater_cache_removals_total{cache=pages,cause=replaced}", 1.0),
        ("lowwater_cache_removals_total{cache=pages,cause=size}", 0.0),
        ("lowwater_cache_removals_total{cache=pages,cause=expired}", 0.0),
        ("lowwater_cache_entries{cache=pages}", 10.0),
        ("lowwater_cache_bytes{cache=pages}", entries as f64),
        ("lowwater_live_pairs{}", 1.0),
    ] {
        assert_eq!(book.get(series), Some(value), "{series}");
    }
    assert!(book.get("lowwater_cache_footprint_bytes{cache=pages}").unwrap() > 1_000.0);
    assert!(book.get("lowwater_reclaimer_wakeups_total{node=0}").is_some());
    assert!(book.get("lowwater_shrinker_freed_total{shrinker=pages}").is_some());
    assert!(!book.names().iter().any(|name| name.contains("group=")));
    runtime.pressure().unwrap().raise(Level::Critical);
    runtime.root().set_max(ByteSize::MAX);
    book.publish(&runtime, Labels::Shrinkers);
    assert_eq!(book.get("lowwater_pressure_level{}"), Some(3.0));
}

#[test]
fn a_runtime_without_a_limit_has_infinite_ones() {
    let (runtime, book) = (Runtime::builder().unlimited().build().unwrap(), Book::default());
    runtime.group("tenant").unwrap().set_low(ByteSize::new(7));
    book.publish(&runtime, Labels::Groups);
    for series in
        ["lowwater_budget_bytes{}", "lowwater_reclaim_start_bytes{}", "lowwater_group_max_bytes{group=/tenant}"]
    {
        assert_eq!(book.get(series), Some(f64::INFINITY), "{series}");
    }
    assert_eq!(book.get("lowwater_group_low_bytes{group=/tenant}"), Some(7.0));
    assert_eq!(book.get("lowwater_pressure_level{}"), None, "nothing watches");
}

/// A recorder keeps each series that it has seen.
#[test]
fn a_group_whose_usage_was_not_published_ends_without_series_of_it() {
    let (runtime, book) = (runtime(), Book::default());
    let cache = cache_of(&runtime, "pages");
    let tenant = runtime.group("tenant").unwrap();
    cache.entry(1).group(&tenant).insert(vec![0; 10]).unwrap();
    let publish = || metrics::with_local_recorder(&book, || cache.publish_metrics(Labels::Groups));
    publish();
    runtime.end_group(&tenant).unwrap();
    publish();
    assert_eq!(book.get("lowwater_cache_group_entries{cache=pages,group=/tenant}"), Some(0.0));
    assert!(!book.names().iter().any(|name| name.contains("lowwater_group_")), "{:?}", book.names());
}

#[test]
fn groups_are_named_only_if_that_is_asked_for_and_end() {
    let (runtime, book) = (runtime(), Book::default());
    let cache = cache_of(&runtime, "pages");
    let tenant = runtime.group("shop/tenant").unwrap();
    tenant.set_max(ByteSize::kib(64));
    tenant.set_low(ByteSize::kib(16));
    for key in 0..10 {
        cache.entry(key).group(&tenant).insert(vec![0; 10]).unwrap();
    }
    runtime.tree().drain_stock();
    metrics::with_local_recorder(&book, || cache.publish_metrics(Labels::Shrinkers));
    assert_eq!(book.get("lowwater_cache_entries{cache=pages}"), Some(10.0));
    assert!(!book.names().iter().any(|name| name.contains("tenant")));
    book.publish(&runtime, Labels::Groups);
    let entries = "lowwater_cache_group_entries{cache=pages,group=/shop/tenant}";
    let usage = "lowwater_group_usage_bytes{group=/shop/tenant}";
    assert_eq!(book.get(entries), Some(10.0));
    assert_eq!(book.get(usage), Some(tenant.usage().get() as f64));
    assert_eq!(book.get("lowwater_group_usage_bytes{group=/}"), book.get("lowwater_usage_bytes{}"));
    assert_eq!(book.get("lowwater_group_max_bytes{group=/shop/tenant}"), Some(65_536.0));
    assert_eq!(book.get("lowwater_cache_group_entries{cache=pages,group=/}"), None, "there are none");
    cache.remove(&0);
    metrics::with_local_recorder(&book, || cache.publish_metrics(Labels::Groups));
    assert_eq!(book.get(entries), Some(9.0));
    runtime.end_group(&tenant).unwrap();
    book.publish(&runtime, Labels::Groups);
    assert_eq!((book.get(entries), book.get(usage)), (Some(0.0), Some(0.0)));
    for limit in ["min", "low", "high", "max"] {
        let series = format!("lowwater_group_{limit}_bytes{{group=/shop/tenant}}");
        assert_eq!(book.get(&series), Some(0.0), "{series}: the group has ended");
    }
    assert_eq!(book.get("lowwater_cache_group_entries{cache=pages,group=/shop}"), Some(9.0), "they are the parent's");
}

#[test]
fn the_own_group_of_a_cache_has_series_while_the_cache_exists() {
    let (runtime, book) = (runtime(), Book::default());
    let limited = || {
        let builder = Cache::<u64, Vec<u8>>::builder(&runtime).name("pages").weigher(|_, _| ByteSize::ZERO);
        builder.low(ByteSize::kib(64)).max(ByteSize::kib(128)).build().unwrap()
    };
    let caches = [limited(), limited()];
    for (cache, entries) in caches.iter().zip([3, 5]) {
        (0..entries).for_each(|key| drop(cache.insert(key, vec![])));
    }
    runtime.tree().drain_stock();
    book.publish(&runtime, Labels::Groups);
    for (label, entries) in [("pages", 3.0), ("pages#2", 5.0)] {
        let of_group = |what: &str| book.get(&format!("lowwater_group_{what}_bytes{{group=/cache:{label}}}"));
        assert_eq!((of_group("low"), of_group("max")), (Some(65_536.0), Some(131_072.0)));
        assert_eq!(of_group("usage"), book.get(&format!("lowwater_cache_bytes{{cache={label}}}")));
        let series = format!("lowwater_cache_group_entries{{cache={label},group=/cache:{label}}}");
        assert_eq!(book.get(&series), Some(entries));
    }
    drop(caches);
    book.publish(&runtime, Labels::Groups);
    assert_eq!(book.get("lowwater_group_usage_bytes{group=/cache:pages}"), Some(0.0));
    assert_eq!(book.get("lowwater_cache_group_entries{cache=pages#2,group=/cache:pages#2}"), Some(0.0));
    let names = book.names();
    let _again = limited();
    book.publish(&runtime, Labels::Groups);
    assert_eq!(book.names(), names, "the next cache of the name has the same series");
}

#[test]
fn labels_are_deterministic_and_continue_after_an_end() {
    let caches = |book: &Book, what: &str| -> Vec<f64> {
        let labels = ["pages", "pages#2", "pages#3", "thumbs"];
        labels.iter().map_while(|label| book.get(&format!("lowwater_cache_{what}{{cache={label}}}"))).collect()
    };
    let runs: Vec<_> = (0..2)
        .map(|_| {
            let (runtime, book) = (runtime(), Book::default());
            let [first, second, third] = ["pages", "thumbs", "pages"].map(|name| cache_of(&runtime, name));
            (0..5).for_each(|key| drop(first.insert(key, vec![])));
            (0..3).for_each(|key| drop(third.insert(key, vec![])));
            second.insert(0, vec![]).unwrap();
            // The label does not depend on which one is published first.
            metrics::with_local_recorder(&book, || third.publish_metrics(Labels::Shrinkers));
            assert_eq!(book.get("lowwater_cache_entries{cache=pages#2}"), Some(3.0));
            assert_eq!(book.get("lowwater_cache_entries{cache=pages}"), None);
            book.publish(&runtime, Labels::Groups);
            assert_eq!(book.get("lowwater_cache_inserts_total{cache=thumbs}"), Some(1.0));
            assert_eq!(caches(&book, "inserts_total"), [5.0, 3.0]);
            let names = book.names();

            drop(first);
            third.insert(7, vec![]).unwrap();
            book.publish(&runtime, Labels::Groups);
            assert_eq!(caches(&book, "inserts_total"), [5.0, 4.0], "one stays where it was");
            assert_eq!(caches(&book, "entries"), [0.0, 4.0]);
            assert_eq!(caches(&book, "bytes")[0], 0.0);
            assert_eq!(book.get("lowwater_cache_group_entries{cache=pages,group=/}"), Some(0.0));

            let fourth = cache_of(&runtime, "pages");
            (0..2).for_each(|key| drop(fourth.insert(key, vec![])));
            book.publish(&runtime, Labels::Groups);
            assert_eq!(caches(&book, "inserts_total"), [7.0, 4.0], "and goes on from there");
            assert_eq!(caches(&book, "entries"), [2.0, 4.0]);
            assert!(book.get("lowwater_shrinker_callbacks_total{shrinker=pages#2}").is_some());
            assert_eq!(book.names(), names, "no new series");
            names
        })
        .collect();
    assert_eq!(runs[0], runs[1]);
}

/// The ids of shrinkers are reused, the lowest first.
#[test]
fn caches_of_a_name_are_numbered_in_the_order_in_which_they_were_built() {
    let (runtime, book) = (runtime(), Book::default());
    let [first_id, second_id] = ["first id", "second id"].map(|name| cache_of(&runtime, name));
    // More caches have had the first id than the second.
    drop(first_id);
    (0..3).for_each(|_| drop(cache_of(&runtime, "first id")));
    let first_id = cache_of(&runtime, "first id");
    drop(second_id);
    let older = cache_of(&runtime, "pages");
    drop(first_id);
    let younger = cache_of(&runtime, "pages");
    (0..3).for_each(|key| drop(older.insert(key, vec![])));
    (0..5).for_each(|key| drop(younger.insert(key, vec![])));
    book.publish(&runtime, Labels::Shrinkers);
    let entries = |label: &str| book.get(&format!("lowwater_cache_entries{{cache={label}}}"));
    assert_eq!((entries("pages"), entries("pages#2")), (Some(3.0), Some(5.0)));
    // Between two calls, one cache of the name takes the id of the other's label.
    drop((older, younger));
    let other = cache_of(&runtime, "other");
    let next = cache_of(&runtime, "pages");
    next.insert(0, vec![]).unwrap();
    book.publish(&runtime, Labels::Shrinkers);
    assert_eq!((entries("pages"), entries("pages#2")), (Some(1.0), Some(0.0)));
    drop(other);
}

/// The label's next cache takes the place of the ended one, whose end no call reports otherwise.
#[test]
fn entries_by_group_of_a_label_end_with_their_cache() {
    let (runtime, book) = (runtime(), Book::default());
    let cache = cache_of(&runtime, "pages");
    let group = runtime.group("t").unwrap();
    (0..5).for_each(|key| drop(cache.entry(key).group(&group).insert(vec![])));
    book.publish(&runtime, Labels::Groups);
    let series = "lowwater_cache_group_entries{cache=pages,group=/t}";
    assert_eq!(book.get(series), Some(5.0));
    book.publish(&runtime, Labels::Shrinkers);
    assert_eq!(book.get(series), Some(5.0), "it is not published, and has not ended");
    drop(cache);
    let next = cache_of(&runtime, "pages");
    book.publish(&runtime, Labels::Shrinkers);
    assert_eq!(book.get(series), Some(0.0));
    drop(next);
}

#[test]
fn more_groups_than_the_bound_are_counted_and_not_named() {
    let (runtime, book) = (runtime(), Book::default());
    let groups: Vec<_> = (0..GROUPS_MAX + 20).map(|n| runtime.group(&format!("g{n}")).unwrap()).collect();
    let published = || book.names().iter().filter(|name| name.starts_with("lowwater_group_usage_bytes{")).count();
    book.publish(&runtime, Labels::Groups);
    assert_eq!((published(), book.get("lowwater_groups_unpublished{}")), (GROUPS_MAX, Some(21.0)), "the root is one");
    assert!(book.get("lowwater_group_usage_bytes{group=/g0}").is_some(), "the oldest");
    let start = Instant::now();
    book.publish(&runtime, Labels::Groups);
    println!("{:?} for {GROUPS_MAX} groups", start.elapsed());
    assert_eq!(published(), GROUPS_MAX, "the same");
    groups[..30].iter().for_each(|group| runtime.end_group(group).unwrap());
    book.publish(&runtime, Labels::Groups);
    assert_eq!((published(), book.get("lowwater_groups_unpublished{}")), (GROUPS_MAX + 21, Some(0.0)));
}

#[test]
fn a_recorder_may_use_the_runtime() {
    let (runtime, book) = (runtime(), Book::default());
    let pages = cache_of(&runtime, "pages");
    let (theirs, cache) = (runtime.clone(), pages.clone());
    let tenant = runtime.group("tenant").unwrap();
    cache.entry(1).group(&tenant).insert(vec![]).unwrap();
    // Each of these calls takes locks that a publish holds while it reads.
    book.0.lock().unwrap().on_set = Some(Arc::new(move || {
        cache.entry(2).group(&tenant).time_to_live(Duration::from_secs(1)).insert(vec![]).unwrap();
        let other = cache_of(&theirs, "other");
        other.insert(1, vec![]).unwrap();
        drop(other);
        theirs.end_group(&theirs.group("other").unwrap()).unwrap();
        let none = metrics::NoopRecorder;
        metrics::with_local_recorder(&none, || theirs.publish_metrics(Labels::Groups));
    }));
    book.publish(&runtime, Labels::Groups);
    metrics::with_local_recorder(&book, || pages.publish_metrics(Labels::Groups));
    book.0.lock().unwrap().on_set = None;
}

#[test]
fn caches_and_groups_that_come_and_go_disturb_nothing() {
    let (runtime, book, stop) = (runtime(), Book::default(), AtomicBool::new(false));
    std::thread::scope(|s| {
        for thread in 0..2_u64 {
            let (runtime, stop) = (&runtime, &stop);
            s.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let cache = cache_of(runtime, ["a", "b"][(n % 2) as usize]);
                    let group = runtime.group(&format!("t{thread}/g{}", n % 3)).unwrap();
                    (0..20).for_each(|key| drop(cache.entry(key).group(&group).insert(vec![0; 100])));
                    runtime.end_group(&group).unwrap();
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            // The book checks that no counter falls.
            book.publish(&runtime, Labels::Groups);
        }
        stop.store(true, Ordering::Relaxed);
    });
    book.publish(&runtime, Labels::Groups);
    for name in book.names().iter().filter(|name| {
        ["lowwater_cache_entries{", "lowwater_cache_bytes{", "lowwater_cache_group_entries{"]
            .iter()
            .any(|gauge| name.starts_with(gauge))
    }) {
        assert_eq!(book.get(name), Some(0.0), "{name}");
    }
    assert!(runtime.housekeeper().caches() == 0);
}

#[test]
fn a_cache_that_ends_while_the_figures_are_read_is_counted_once() {
    let (runtime, book) = (runtime(), Book::default());
    let first = cache_of(&runtime, "pages");
    (0..5).for_each(|key| drop(first.insert(key, vec![])));
    book.publish(&runtime, Labels::Shrinkers);

    // After the first cache was read, and before the hook's figures are, the first cache ends, and
    // another publisher gives its label to the next cache of the name.
    let (first, second) = (Mutex::new(Some(first)), Mutex::new(None));
    let (theirs, their_book) = (runtime.clone(), book.clone());
    let on_read = move || {
        let Some(first) = first.lock().unwrap().take() else { return };
        drop(first);
        let next = cache_of(&theirs, "pages");
        (0..3).for_each(|key| drop(next.insert(key, vec![])));
        *second.lock().unwrap() = Some(next);
        their_book.publish(&theirs, Labels::Shrinkers);
    };
    let unregistered = runtime.registry().builder("hook").alloc().unwrap();
    let figures = CacheFigures {
        shrinker: unregistered.id(),
        hits: 0,
        misses: 0,
        inserts: 0,
        rejected: 0,
        loads: 0,
        listener_panics: 0,
        drop_panics: 0,
        evictions: 0,
        expired: 0,
        removed: 0,
        replaced: 0,
        entries: 0,
        bytes: ByteSize::ZERO,
        footprint: ByteSize::ZERO,
    };
    let read = move || {
        on_read();
        figures.clone()
    };
    let hook = MaintenanceId::new();
    runtime.housekeeper().add(hook, Arc::new(NoRecords::publishing(read)));
    for _ in 0..3 {
        book.publish(&runtime, Labels::Shrinkers);
        assert_eq!(book.get("lowwater_cache_inserts_total{cache=pages}"), Some(8.0));
        assert_eq!(book.get("lowwater_cache_entries{cache=pages}"), Some(3.0), "those of the next cache");
    }
    runtime.housekeeper().remove(hook);
}

#[test]
fn a_program_that_publishes_single_caches_keeps_nothing_of_ended_ones() {
    let (runtime, book) = (runtime(), Book::default());
    let publish = |cache: &Cache<u64, Vec<u8>>| {
        metrics::with_local_recorder(&book, || cache.publish_metrics(Labels::Groups));
    };
    let stays = cache_of(&runtime, "stays");
    stays.insert(1, vec![]).unwrap();
    publish(&stays);
    for n in 0..5 {
        let cache = cache_of(&runtime, &format!("c{n}"));
        cache.insert(1, vec![]).unwrap();
        publish(&cache);
    }
    let last = cache_of(&runtime, "last");
    publish(&last);
    for n in 0..5 {
        for gauge in ["entries{cache=c", "bytes{cache=c", "footprint_bytes{cache=c"] {
            assert_eq!(book.get(&format!("lowwater_cache_{gauge}{n}}}")), Some(0.0), "{gauge}{n}");
        }
        let entries = book.get(&format!("lowwater_cache_group_entries{{cache=c{n},group=/}}"));
        assert_eq!(entries, Some(0.0));
        assert_eq!(book.get(&format!("lowwater_cache_inserts_total{{cache=c{n}}}")), Some(1.0));
    }
    assert_eq!(book.get("lowwater_cache_entries{cache=stays}"), Some(1.0), "it is not published, and has not ended");
    let published = runtime.inner.published.lock();
    assert_eq!(published.pairs.keys().collect::<Vec<_>>(), ["last", "stays"]);
}

#[test]
fn concurrent_publishers_lose_no_group() {
    let (runtime, stop) = (runtime(), AtomicBool::new(false));
    // Many, so that the other thread's walk is past the children of `g0` most of the time when a
    // new one is added.
    (0..200).for_each(|n| drop(runtime.group(&format!("g{n}")).unwrap()));
    std::thread::scope(|s| {
        let (theirs, stop) = (&runtime, &stop);
        s.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                theirs.update_groups();
            }
        });
        let lost = (0..60).find(|n| {
            let group = runtime.group(&format!("g0/new{n}")).unwrap();
            let path = group.path();
            let is_known = || runtime.inner.published.lock().groups.contains(&path);
            let mut is_lost = !runtime.update_groups().contains_key(&path);
            for _ in 0..4 {
                is_lost |= !is_known();
                std::thread::sleep(Duration::from_micros(500));
            }
            runtime.end_group(&group).unwrap();
            is_lost
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(lost, None, "a group that has series was forgotten before its end");
    });
}
