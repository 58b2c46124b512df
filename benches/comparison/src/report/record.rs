//! Replaces the tables in a Markdown file, with their plots, the machine, and the results in which
//! a contender is better.
//!
//! The text outside of the delimiters is written by hand and must stay. The list of results in
//! which others are better is generated, so that none is left out.

use std::path::{Path, PathBuf};

use super::{plot, Better, Table};

/// The lines that delimit the tables. `ci/measured/comparison.py` and `ci/comparison.sh` repeat
/// them.
const BEGIN: &str = "<!-- benches/comparison: begin -->";
const END: &str = "<!-- benches/comparison: end -->";
/// The folder of the plots, beside the file.
const PLOTS: &str = "plots";
/// The prefix of the names of our own rows.
const OURS: &str = "lowwater";
/// Not compared, because it knows the future.
const OPTIMUM: &str = "ref: optimum";
/// The contenders whose versions are listed, by their packages' names in Cargo.toml.
const CONTENDERS: [&str; 8] = ["moka", "mini-moka", "quick_cache", "foyer-memory", "lru", "scc", "dashmap", "papaya"];

/// A file with the delimiters of the tables.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
}

impl Record {
    /// Opens the file, and returns an error if it lacks the delimiters. Called before the
    /// measurements.
    pub fn new(path: PathBuf) -> Result<Self, String> {
        let record = Self { path };
        record.parts().map(|_| record)
    }

    /// Replaces the text between the delimiters by `says` and the tables, and writes their plots
    /// into `plots` beside the file.
    pub fn write(&self, says: &str, tables: &[Table]) -> Result<(), String> {
        let folder = self.path.parent().unwrap_or(Path::new("")).join(PLOTS);
        std::fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        let mut text = format!("{says}\n{}\n\n{}\n", machine(), behind(tables));
        for table in tables {
            text.push_str(&format!("\n{}\n", table.markdown()));
            if plot::draw(table, &folder)? {
                text.push_str(&format!("\n![{}]({PLOTS}/{}.svg)\n", table.title, table.name));
            }
        }
        let (before, after) = self.parts()?;
        let whole = format!("{before}{BEGIN}\n{text}{END}{after}");
        std::fs::write(&self.path, whole).map_err(|why| format!("--record {}: {why}", self.path.display()))
    }

    /// Returns the text before the delimiters, and the text after them.
    fn parts(&self) -> Result<(String, String), String> {
        let path = self.path.display();
        let text = std::fs::read_to_string(&self.path).map_err(|why| format!("--record {path}: {why}"))?;
        let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        let (before, after) =
            parts.ok_or_else(|| format!("--record {path}: it has no line {BEGIN:?} with {END:?} after it"))?;
        Ok((before.to_owned(), after.to_owned()))
    }
}

/// Returns the processor's model, the system, and the contenders' versions.
fn machine() -> String {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |pair| pair.1);
    let system = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // Exact versions, after the name: alone, or as a field of a table.
    let version = |name: &str| {
        let line = include_str!("../../Cargo.toml").lines().find(|line| line.starts_with(&format!("{name} = ")))?;
        line.split_once("\"=")?.1.split_once('"').map(|pair| pair.0)
    };
    let contenders: Vec<_> = CONTENDERS.iter().map(|name| format!("{name} {}", version(name).unwrap_or("?"))).collect();
    format!("{model}, Linux {}; {}.", system.trim(), contenders.join(", "))
}

/// Returns a table of all figures in which a contender is better, with the ratio.
/// `ci/comparison.sh` and `ci/measured/comparison.py` look for its heading.
fn behind(tables: &[Table]) -> String {
    let mut text = String::from(
        "### Where another is better\n\n| what | the best | it | ours | ours / it |\n|---|---|---|---|---|",
    );
    for table in tables {
        for (n, column) in table.columns.iter().enumerate() {
            let Some(better) = column.better else { continue };
            let best = |ours: bool| {
                let counts = |(name, figures): &&(String, Vec<f64>)| {
                    name.starts_with(OURS) == ours && name != OPTIMUM && figures[n].is_finite()
                };
                let rows = table.rows.iter().filter(counts);
                rows.map(|(name, figures)| (name, figures[n])).reduce(|a, b| if better.is(b.1, a.1) { b } else { a })
            };
            let (Some((_, ours)), Some((name, theirs))) = (best(true), best(false)) else { continue };
            if better.is(theirs, ours) {
                let (decimals, ratio) = (column.decimals, ours / theirs);
                text.push_str(&format!(
                    "\n| {}: {} | {name} | {theirs:.decimals$} | {ours:.decimals$} | {ratio:.2} |",
                    table.name, column.name
                ));
            }
        }
    }
    text
}

impl Better {
    /// Returns whether `a` is better than `b`.
    fn is(self, a: f64, b: f64) -> bool {
        match self {
            Self::More => a > b,
            Self::Less => a < b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Column;
    use super::*;

    fn table() -> Table {
        let columns = vec![Column::bars("Mops", 1).more(), Column::new("us", 0).less(), Column::new("held", 0)];
        let rows = [("lowwater", [2.0, 5.0, 1.0]), ("slow", [1.0, 4.0, 9.0]), ("none", [f64::NAN, 6.0, 9.0])];
        let rows = rows.map(|(name, figures)| (name.to_owned(), figures.to_vec())).into();
        Table { name: "made", title: "Made".into(), first: "cache", columns, rows }
    }

    #[test]
    fn results_of_better_contenders_are_listed() {
        let text = behind(&[table()]);
        assert!(text.contains("| made: us | slow | 4 | 5 | 1.25 |") && !text.contains("Mops"), "{text}");
    }

    #[test]
    fn repeated_writes_replace_only_the_tables() {
        let folder = std::env::temp_dir().join(format!("record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("measured.md");
        std::fs::write(&path, "no place\n").unwrap();
        assert!(Record::new(path.clone()).unwrap_err().contains("benches/comparison: begin"));
        std::fs::write(&path, format!("before\n{BEGIN}\nold\n{END}\nafter\n")).unwrap();
        for says in ["first", "second"] {
            Record::new(path.clone()).unwrap().write(says, &[table()]).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("\nafter\n"), "{text}");
        assert!(text.contains("second") && !text.contains("first\n") && !text.contains("old"), "{text}");
        assert!(text.contains("![Made](plots/made.svg)") && folder.join("plots/made.svg").exists());
        assert!(text.contains("moka 0.") && text.contains("dashmap 6.") && !text.contains(" ?"), "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
