//! A metric's name, unit and description, and the calls that set it.

use metrics::{counter, describe_counter, describe_gauge, gauge, Label, Unit};

/// A metric of the `metrics` facade.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    name: &'static str,
    unit: Unit,
    description: &'static str,
    is_counter: bool,
}

impl Metric {
    /// A counter.
    pub const fn counter(name: &'static str, unit: Unit, description: &'static str) -> Self {
        Self { name, unit, description, is_counter: true }
    }

    /// A gauge.
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

    /// Sets the series of these labels. Of concurrent calls, the one with the older value of a
    /// counter may come last: recorders keep the largest value, as `CounterFn::absolute` demands.
    pub fn set(&self, labels: &[Label], value: u64) {
        match self.is_counter {
            true => counter!(self.name, labels.iter()).absolute(value),
            false => gauge!(self.name, labels.iter()).set(value as f64),
        }
    }

    /// As [`set`](Self::set), of a gauge that may be no whole number.
    pub fn set_float(&self, labels: &[Label], value: f64) {
        gauge!(self.name, labels.iter()).set(value);
    }
}
