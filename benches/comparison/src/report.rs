//! The report: tables as Markdown, as JSON, and as plots.
//!
//! A section hands its tables to the report and does not print them, so that all forms show the
//! same figures.
//!
//! A new form reads the same tables; a section must not depend on the form.

mod plot;
mod record;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use serde_json::{json, Map, Value};

use crate::threads::Control;

pub use record::Record;

/// The results so far.
#[derive(Debug)]
pub struct Report {
    json: Option<Map<String, Value>>,
    plots: Option<PathBuf>,
    record: Option<Record>,
    /// The text about the control.
    says: String,
    tables: Vec<Table>,
}

/// Rows of figures; the first column is a name.
#[derive(Debug)]
pub struct Table {
    /// One word, for file names and JSON. `ci/comparison.sh` lists these names, and `ci/claims.md`
    /// quotes some.
    pub name: &'static str,
    /// The heading. `ci/measured/comparison.py` finds tables by the beginnings of their titles.
    pub title: String,
    /// The heading of the first column.
    pub first: &'static str,
    pub columns: Vec<Column>,
    /// A missing figure is NaN.
    pub rows: Vec<(String, Vec<f64>)>,
}

/// A column, and how its figures are shown.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub decimals: usize,
    pub plotted: Plotted,
    /// Which figure is better; `None` if the column is not compared.
    pub better: Option<Better>,
}

/// Which of two figures is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    More,
    Less,
}

/// Whether a column is plotted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plotted {
    No,
    Bars,
    /// Bars on a logarithmic scale.
    Decades,
}

impl Column {
    pub fn new(name: impl Into<String>, decimals: usize) -> Self {
        Self { name: name.into(), decimals, plotted: Plotted::No, better: None }
    }

    pub fn bars(name: impl Into<String>, decimals: usize) -> Self {
        Self { plotted: Plotted::Bars, ..Self::new(name, decimals) }
    }

    pub fn decades(name: impl Into<String>, decimals: usize) -> Self {
        Self { plotted: Plotted::Decades, ..Self::new(name, decimals) }
    }

    /// The same column, with more as the better.
    pub fn more(self) -> Self {
        Self { better: Some(Better::More), ..self }
    }

    /// The same column, with less as the better.
    pub fn less(self) -> Self {
        Self { better: Some(Better::Less), ..self }
    }
}

impl Report {
    pub fn new(json: bool, plots: Option<PathBuf>, record: Option<Record>) -> Self {
        Self { json: json.then(Map::new), plots, record, says: String::new(), tables: Vec::new() }
    }

    /// Reports the control, which shows whether the results are meaningful. Called first.
    pub fn control(&mut self, control: Control) {
        let Control { processors, threads, ratio } = control;
        let says = match ratio < 1.2 {
            true => "each has a core",
            false => "NOT a core each: rows with more than one say little",
        };
        self.says = format!(
            "control: {processors} processors; {threads} spinning threads take {ratio:.2} times as long as one: {says}"
        );
        match &mut self.json {
            Some(json) => {
                json.insert("control".into(), json!({ "processors": processors, "threads": threads, "ratio": ratio }));
            }
            None => println!("{}", self.says),
        }
    }

    /// Prints a table, unless the report is JSON, and keeps it for [`end`](Self::end).
    pub fn table(&mut self, table: Table) -> Result<(), String> {
        match &mut self.json {
            Some(json) => {
                json.insert(table.name.into(), table.json());
            }
            None => println!("\n{}", table.markdown()),
        }
        self.tables.push(table);
        Ok(())
    }

    /// Writes the tables that were kept. `command` is the command line of the run.
    pub fn end(self, command: &str) -> Result<(), String> {
        if let Some(json) = self.json {
            println!("{:#}", Value::Object(json));
        }
        if let Some(record) = self.record {
            record.write(&format!("`{command}`. {}. ", self.says), &self.tables)?;
        }
        let Some(folder) = self.plots else { return Ok(()) };
        std::fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        self.tables.iter().try_for_each(|table| plot::draw(table, &folder).map(drop))
    }
}

impl Table {
    fn markdown(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let mut text = format!("### {}\n\n| {} | {} |\n|---|", self.title, self.first, names.join(" | "));
        text.push_str(&"---|".repeat(names.len()));
        for (name, figures) in &self.rows {
            let shown = self.columns.iter().zip(figures).map(|(column, &figure)| {
                if figure.is_nan() {
                    String::new()
                } else {
                    format!("{figure:.*}", column.decimals)
                }
            });
            text.push_str(&format!("\n| {name} | {} |", shown.collect::<Vec<_>>().join(" | ")));
        }
        text
    }

    fn json(&self) -> Value {
        let row = |(name, figures): &(String, Vec<f64>)| {
            let mut row = Map::new();
            row.insert(self.first.into(), json!(name));
            row.extend(self.columns.iter().zip(figures).map(|(column, figure)| (column.name.clone(), json!(figure))));
            Value::Object(row)
        };
        json!({ "title": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

/// Shows the current measurement on a terminal; an empty text clears the line.
pub fn progress(what: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // Ignores errors: the terminal may be closed.
        let _ = write!(terminal, "\r\x1b[K{what}").and_then(|()| terminal.flush());
    }
}

/// Returns the median; NaN without figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => figures[n / 2],
        n => (figures[n / 2 - 1] + figures[n / 2]) / 2.0,
    }
}

/// Returns the median of each column over rounds.
pub fn medians(rounds: &[Vec<f64>]) -> Vec<f64> {
    let columns = rounds.first().map_or(0, Vec::len);
    (0..columns).map(|column| median(rounds.iter().map(|round| round[column]).collect())).collect()
}
