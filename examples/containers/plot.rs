//! The picture: Linux's four layouts, one list for every id, and lowwater, on one logarithmic
//! scale.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::report::Report;

const SIZE: (u32, u32) = (860, 420);

/// Draws into an SVG file.
pub fn draw(report: &Report, file: &Path) -> Result<(), Box<dyn Error>> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let bars = [
        ("Linux 5.10, model", report.kernel.vanilla_mib as f64, &RED),
        ("transposed, model", report.kernel.transposed_mib as f64, &RED),
        ("lazy, model", report.kernel.lazy_mib as f64, &RED),
        ("xarray, model", report.kernel.xarray_mib as f64, &RED),
        ("every list for every id", mib(report.eager_bytes_predicted), &MAGENTA),
        ("lowwater, counted", mib(report.during.bytes - report.before.bytes), &BLUE),
    ];
    let most = bars.iter().map(|(_, mib, _)| *mib).fold(1.0, f64::max);
    let least = 0.1;
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let machine = report.machine;
    let caption = format!("MiB for {} groups, {} mounts, {} nodes", machine.memcgs, machine.mounts, machine.nodes);
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(170)
        .build_cartesian_2d((least..most * 4.0).log_scale(), 0.0..bars.len() as f64)?;
    let name = |y: &f64| {
        let place = bars.len() as f64 - y - 0.5;
        bars.get(place.round() as usize).filter(|_| place.fract().abs() < 0.01).map_or("", |bar| bar.0).to_string()
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(2 * bars.len())
        .y_label_formatter(&name)
        .x_label_formatter(&|mib| format!("{mib}"))
        .draw()?;
    for (place, (_, mib, color)) in bars.iter().enumerate() {
        let top = (bars.len() - place) as f64;
        chart.draw_series([Rectangle::new(
            [(least, top - 0.8), (mib.max(least), top - 0.2)],
            color.mix(0.7).filled(),
        )])?;
        chart.draw_series([Text::new(format!("{mib:.1}"), (mib.max(least) * 1.1, top - 0.4), ("sans-serif", 14))])?;
    }
    root.present()?;
    Ok(())
}
