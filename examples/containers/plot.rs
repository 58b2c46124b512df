//! The picture: Linux's four layouts, one list for every id, and lowwater, on one logarithmic
//! scale.
//!
//! The colours of the bars tell which figures are of a model, computed, or counted.
//!
//! A change must ensure that it draws the figures of the report and computes none. `ci/plots.sh`
//! looks for the texts of the rows and of the legend.

use std::error::Error;
use std::path::Path;

use crate::charts::{Bar, Bars, Scale, COLOURS};
use crate::report::Report;

/// Draws into an SVG file.
pub fn draw(report: &Report, file: &Path) -> Result<(), Box<dyn Error>> {
    let [model, computed, counted] = [0, 1, 2];
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let bars = [
        ("Linux 5.10", report.kernel.vanilla_mib as f64, model),
        ("one array for all nodes", report.kernel.transposed_mib as f64, model),
        ("lists on first use", report.kernel.lazy_mib as f64, model),
        ("xarray, lists on first use", report.kernel.xarray_mib as f64, model),
        ("every list for every id", mib(report.eager_bytes_predicted), computed),
        ("lowwater", mib(report.during.bytes - report.before.bytes), counted),
    ];
    let machine = report.machine;
    let title =
        format!("Memory of the lists of {} groups, {} mounts, {} nodes", machine.memcgs, machine.mounts, machine.nodes);
    let row = |(name, value, series): (&str, f64, usize)| {
        (name.to_owned(), vec![Bar { series, value, text: format!("{value:.1}") }])
    };
    let series = [("Linux, model", COLOURS[3]), ("computed", COLOURS[1]), ("counted", COLOURS[0])];
    Bars {
        title: &title,
        unit: "MiB",
        scale: Scale::Decades,
        series: series.map(|(name, colour)| (name.to_owned(), colour)).into(),
        rows: bars.into_iter().map(row).collect(),
    }
    .draw(file)
}
