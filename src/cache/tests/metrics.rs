//! What a scrape sees.

use super::cache_of;
use crate::{ByteSize, Labels};
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Book(Arc<Mutex<BTreeMap<String, u64>>>);

struct Entry(Book, String);

impl Entry {
    fn write(&self, value: u64) {
        self.0 .0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl CounterFn for Entry {
    fn increment(&self, _: u64) {}
    fn absolute(&self, value: u64) {
        self.write(value);
    }
}

impl GaugeFn for Entry {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.write(value as u64);
    }
}

fn name(key: &Key) -> String {
    let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl Recorder for Book {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Entry(self.clone(), name(key))))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Entry(self.clone(), name(key))))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn groups_are_named_only_if_that_is_asked_for() {
    let cache = cache_of(ByteSize::mib(1));
    let tenant = cache.runtime().group("tenant").unwrap();
    for key in 0..10 {
        cache.entry(key).group(&tenant).insert(vec![0; 10]).unwrap();
    }
    assert!(cache.get(&1).is_some() && cache.get(&2).is_some() && cache.get(&100).is_none());
    cache.remove(&3);
    cache.insert(1, vec![]).unwrap();
    cache.runtime().tree().drain_stock();
    let published = |labels| {
        let book = Book::default();
        metrics::with_local_recorder(&book, || cache.publish_metrics(labels));
        let entries = book.0.lock().unwrap().clone();
        entries
    };
    let plain = published(Labels::Shrinkers);
    for (metric, value) in [
        ("lowwater_cache_hits_total{cache=cache-0}", 2),
        ("lowwater_cache_misses_total{cache=cache-0}", 1),
        ("lowwater_cache_inserts_total{cache=cache-0}", 11),
        ("lowwater_cache_removals_total{cache=cache-0,cause=explicit}", 1),
        ("lowwater_cache_removals_total{cache=cache-0,cause=replaced}", 1),
        ("lowwater_cache_removals_total{cache=cache-0,cause=size}", 0),
        ("lowwater_cache_entries{cache=cache-0}", 9),
    ] {
        assert_eq!(plain.get(metric), Some(&value), "{metric}: {plain:?}");
    }
    assert!(plain["lowwater_cache_footprint_bytes{cache=cache-0}"] > 0);
    assert!(!plain.keys().any(|name| name.contains("tenant")));
    let groups = published(Labels::Groups);
    assert_eq!(groups["lowwater_cache_group_entries{cache=cache-0,group=/tenant}"], 8);
    assert_eq!(groups["lowwater_group_bytes{group=/tenant}"], tenant.usage().get());
}
