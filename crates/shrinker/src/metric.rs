//! Metrics: name, unit and description, and the calls that set them.
//!
//! The registry and the runtime share it, so that names, units and descriptions have one form. A
//! name that was published must not change: dashboards use it.

use metrics::{counter, describe_counter, describe_gauge, gauge, Label, Unit};

/// A metric of the `metrics` facade: a counter or a gauge, with its name, unit and description.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    name: &'static str,
    unit: Unit,
    description: &'static str,
    is_counter: bool,
}

impl Metric {
    /// Creates a counter: a total that never falls, which [`set`](Self::set) sets.
    pub const fn counter(name: &'static str, unit: Unit, description: &'static str) -> Self {
        Self { name, unit, description, is_counter: true }
    }

    /// Creates a gauge: a value that may rise and fall, which [`set`](Self::set) or
    /// [`set_float`](Self::set_float) sets.
    pub const fn gauge(name: &'static str, unit: Unit, description: &'static str) -> Self {
        Self { name, unit, description, is_counter: false }
    }

    /// Describes the metric to the recorder of the calling thread.
    pub fn describe(&self) {
        match self.is_counter {
            true => describe_counter!(self.name, self.unit, self.description),
            false => describe_gauge!(self.name, self.unit, self.description),
        }
    }

    /// Sets the series with these labels. With concurrent calls, the older value of a counter may
    /// arrive last: recorders keep the largest value, as `CounterFn::absolute` requires.
    pub fn set(&self, labels: &[Label], value: u64) {
        match self.is_counter {
            true => counter!(self.name, labels.iter()).absolute(value),
            false => gauge!(self.name, labels.iter()).set(value as f64),
        }
    }

    /// Sets the series with these labels to a fractional value. For gauges only.
    pub fn set_float(&self, labels: &[Label], value: f64) {
        gauge!(self.name, labels.iter()).set(value);
    }
}
