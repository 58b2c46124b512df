//! The plot of a table: bars, one colour per column.

use std::path::Path;

use plotters::prelude::*;

use super::{Plotted, Table};

const WIDTH: u32 = 900;
const ROW_HEIGHT: u32 = 16;
const COLOURS: [RGBColor; 5] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
];

/// Writes `folder/NAME.svg`, unless no column of the table is plotted. Returns whether it did.
pub fn draw(table: &Table, folder: &Path) -> Result<bool, String> {
    let drawn: Vec<usize> = (0..table.columns.len()).filter(|&n| table.columns[n].plotted != Plotted::No).collect();
    if drawn.is_empty() || table.rows.is_empty() {
        return Ok(false);
    }
    let path = folder.join(format!("{}.svg", table.name));
    bars(table, &drawn, &path).map(|()| true).map_err(|why| format!("cannot draw {}: {why}", path.display()))
}

fn bars(table: &Table, drawn: &[usize], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let decades = drawn.iter().any(|&n| table.columns[n].plotted == Plotted::Decades);
    // A bar starts at the origin of the scale: 0, or a thousandth on a logarithmic scale.
    let scaled = |figure: f64| if decades { figure.max(1e-3).log10() + 3.0 } else { figure.max(0.0) };
    let figures =
        || table.rows.iter().flat_map(|row| drawn.iter().map(|&n| row.1[n])).filter(|figure| figure.is_finite());
    let most = figures().map(scaled).fold(0.1, f64::max) * 1.05;
    let bars = table.rows.len() * (drawn.len() + 1);
    let root = SVGBackend::new(path, (WIDTH, bars as u32 * ROW_HEIGHT + 110)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(&table.title, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(230)
        .build_cartesian_2d(0.0..most, bars as f64..0.0)?;
    let slot = (drawn.len() + 1) as f64;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_label_formatter(&|x| if decades { format!("{}", 10_f64.powf((x - 3.0).round())) } else { format!("{x}") })
        .draw()?;
    for (turn, &column) in drawn.iter().enumerate() {
        let colour = COLOURS[turn % COLOURS.len()];
        let bar = |row: usize, figure: f64| {
            let top = row as f64 * slot + turn as f64 + 0.5;
            Rectangle::new([(0.0, top), (scaled(figure), top + 0.9)], colour.filled())
        };
        let figures = table.rows.iter().enumerate().map(|(row, figures)| (row, figures.1[column]));
        chart
            .draw_series(figures.filter(|(_, figure)| figure.is_finite()).map(|(row, figure)| bar(row, figure)))?
            .label(&table.columns[column].name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
    }
    // The names are left of the axis, outside of the chart's own drawing area.
    let (area, _) = chart.plotting_area().get_pixel_range();
    for (row, (name, _)) in table.rows.iter().enumerate() {
        let (_, y) = chart.backend_coord(&(0.0, row as f64 * slot + slot / 2.0));
        root.draw(&Text::new(name.clone(), (area.start - 225, y - 6), ("sans-serif", 12)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
