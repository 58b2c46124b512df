//! The metrics in Prometheus' text format. A service with metrics of its own installs one recorder
//! for all, such as the crate `metrics-exporter-prometheus`, and calls `publish_metrics` from a
//! timer.
//!
//! This recorder serves one scrape and is dropped, which keeps the example free of another
//! dependency.
//!
//! A change must keep it small: it shows the interface.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lowwater::{Labels, Runtime};
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// A recorder of one scrape: the values by series.
#[derive(Default)]
struct Scrape(Mutex<BTreeMap<String, Arc<Series>>>);

/// The value of a series, as the bits of an `f64`.
#[derive(Default)]
struct Series(AtomicU64);

/// All metrics of the runtime, its caches and its groups.
pub fn text(runtime: &Runtime) -> String {
    let scrape = Scrape::default();
    metrics::with_local_recorder(&scrape, || runtime.publish_metrics(Labels::Groups));
    let series = scrape.0.lock().unwrap_or_else(PoisonError::into_inner);
    series.iter().map(|(name, series)| format!("{name} {}\n", series.get())).collect()
}

/// Escapes a label's value; the text format has no other escapes.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

impl Series {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn store(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl CounterFn for Series {
    fn increment(&self, more: u64) {
        self.store(self.get() + more as f64);
    }

    fn absolute(&self, value: u64) {
        // The largest value stays, as the trait demands. Floats that are not negative are ordered
        // as their bits.
        self.0.fetch_max((value as f64).to_bits(), Ordering::Relaxed);
    }
}

impl GaugeFn for Series {
    fn increment(&self, more: f64) {
        self.store(self.get() + more);
    }

    fn decrement(&self, less: f64) {
        self.store(self.get() - less);
    }

    fn set(&self, value: f64) {
        self.store(value);
    }
}

impl Scrape {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels: Vec<_> =
            key.labels().map(|label| format!("{}=\"{}\"", label.key(), escaped(label.value()))).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default())
    }
}

impl Recorder for Scrape {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_have_the_escapes_of_the_text_format() {
        assert_eq!(escaped("a \\ \"b\"\n\r\t\u{7f} é"), "a \\\\ \\\"b\\\"\\n\r\t\u{7f} é");
    }

    #[test]
    fn a_counter_keeps_its_largest_value() {
        let series = Series::default();
        for (value, expected) in [(5, 5.0), (3, 5.0), (1 << 40, (1_u64 << 40) as f64), (0, (1_u64 << 40) as f64)] {
            series.absolute(value);
            assert_eq!(series.get(), expected);
        }
    }
}
