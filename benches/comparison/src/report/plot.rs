//! The plot of a table: bars, one colour per column.
//!
//! Only for a first look; the tables are the result.
//!
//! A change must ensure that every plotted figure is in the table.

// By path, because the examples are no library.
#[path = "../../../../examples/charts/mod.rs"]
mod charts;

use std::path::Path;

use charts::{Bar, Bars, Scale, COLOURS};

use super::{Plotted, Table};

/// Writes `folder/NAME.svg`, unless no column of the table is plotted. Returns whether it did.
pub fn draw(table: &Table, folder: &Path) -> Result<bool, String> {
    let drawn: Vec<usize> = (0..table.columns.len()).filter(|&n| table.columns[n].plotted != Plotted::No).collect();
    if drawn.is_empty() || table.rows.is_empty() {
        return Ok(false);
    }
    let path = folder.join(format!("{}.svg", table.name));
    let bars = bars(table, &drawn);
    bars.draw(&path).map(|()| true).map_err(|why| format!("cannot draw {}: {why}", path.display()))
}

/// Returns one group of bars for each row, on the scale that the columns demand.
fn bars<'a>(table: &'a Table, drawn: &[usize]) -> Bars<'a> {
    let names: Vec<_> = drawn.iter().map(|&n| table.columns[n].name.clone()).collect();
    let bar = |figures: &[f64], series: usize| {
        let (value, decimals) = (figures[drawn[series]], table.columns[drawn[series]].decimals);
        Bar { series, value, text: format!("{value:.decimals$}") }
    };
    let row = |(name, figures): &(String, Vec<f64>)| {
        (name.clone(), (0..drawn.len()).map(|series| bar(figures, series)).collect())
    };
    let decades = drawn.iter().any(|&n| table.columns[n].plotted == Plotted::Decades);
    Bars {
        title: &table.title,
        unit: if drawn.len() == 1 { &table.columns[drawn[0]].name } else { "" },
        scale: if decades { Scale::Decades } else { Scale::Linear },
        series: names.into_iter().zip(COLOURS.iter().copied().cycle()).collect(),
        rows: table.rows.iter().map(row).collect(),
    }
}
