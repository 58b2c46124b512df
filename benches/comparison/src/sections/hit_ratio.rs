//! Hit ratios on recorded accesses: a get, and an insert on a miss.
//!
//! One thread, so the result depends on the policy alone. The traces are not in this repository.
//!
//! A change must keep one thread and the order of the accesses, so that runs can be compared.
//! `ci/measured/comparison.py` reads the tables by titles and columns.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::contender::{runs, Contender, Kind, Plan, Run};
use crate::references::ALL;
use crate::report::{progress, Column, Report, Table};

/// Capacities, in per cent of a trace's distinct keys.
const SIZES_PERCENT: [f64; 4] = [0.1, 1.0, 5.0, 10.0];
/// The capacity below which results are not typical of a contender: scc then holds more than its
/// capacity, and others have a shard for every few entries.
const ENTRIES_USUAL: usize = 50;
/// The smallest capacity that is measured.
const ENTRIES_MIN: usize = 2;

type Measure = fn(&[u64], usize) -> Ran;

/// The results of a cache on a trace.
struct Ran {
    hits: usize,
    held: usize,
}

/// Replays each trace of the folder against each reference and contender, in each size; reports a
/// table of all ratios, and one of their means.
pub fn measure(plan: &Plan, folder: &Path, report: &mut Report) -> Result<(), String> {
    let mut runs: Vec<Run<Measure>> = plan.chosen(runs!(replay as Measure));
    runs.retain(|run| run.kind == Kind::Cache);
    let traces = traces_in(folder)?;
    // The references come first, so that the contenders are next to each other.
    let names: Vec<&str> = ALL.iter().map(|policy| policy.0).chain(runs.iter().map(|run| run.name)).collect();
    let mut rows = Vec::new();
    let mut sizes = Vec::new();
    let mut held_most = vec![0.0_f64; runs.len()];
    for trace in &traces {
        let trace_name = trace.file_stem().unwrap_or_default().to_string_lossy();
        let mut keys = keys_of(trace)?;
        if plan.quick {
            keys.truncate(50_000);
        }
        let distinct = keys.iter().collect::<HashSet<_>>().len();
        for percent in SIZES_PERCENT {
            let entries = ((distinct as f64 * percent / 100.0) as usize).max(ENTRIES_MIN);
            sizes.push(entries);
            let mut figures = Vec::new();
            for (name, policy) in ALL {
                progress(&format!("{trace_name} {percent} %: {name}"));
                figures.push(100.0 * policy(&keys, entries) as f64 / keys.len() as f64);
            }
            for (which, run) in runs.iter().enumerate() {
                progress(&format!("{trace_name} {percent} %: {}", run.name));
                let ran = (run.call)(&keys, entries);
                figures.push(100.0 * ran.hits as f64 / keys.len() as f64);
                held_most[which] = held_most[which].max(ran.held as f64 / entries as f64);
            }
            rows.push((format!("{trace_name}, {percent} % = {entries}"), figures));
        }
    }
    progress("");
    let mean = |which: usize, entries_min: usize| {
        let counted = rows.iter().zip(&sizes).filter(|(_, entries)| **entries >= entries_min);
        let figures: Vec<f64> = counted.map(|(row, _): (&(String, Vec<f64>), _)| row.1[which]).collect();
        figures.iter().sum::<f64>() / figures.len() as f64
    };
    let means: Vec<_> = (0..names.len()).map(|which| (mean(which, 0), mean(which, ENTRIES_USUAL))).collect();
    let held = |n: usize| n.checked_sub(ALL.len()).map_or(1.0, |contender| held_most[contender]);
    let overview = Table {
        name: "hit-ratio-mean",
        title: format!("Hit ratio, %, mean over {} traces x {} sizes", traces.len(), SIZES_PERCENT.len()),
        first: "cache",
        columns: vec![
            Column::bars("mean", 2).more(),
            Column::new(format!("of {ENTRIES_USUAL} entries and more"), 2),
            Column::new("held at the end, at most, of what it may", 2),
        ],
        rows: names
            .iter()
            .enumerate()
            .map(|(n, name)| ((*name).to_owned(), vec![means[n].0, means[n].1, held(n)]))
            .collect(),
    };
    let columns = names.iter().map(|name| Column::new(*name, 2)).collect();
    report.table(Table { name: "hit-ratio", title: "Hit ratio, %".into(), first: "trace, size", columns, rows })?;
    report.table(overview)
}

fn replay<P: Contender>(keys: &[u64], entries: usize) -> Ran {
    let cache = P::exact(entries);
    let hits = keys
        .iter()
        .filter(|&&key| {
            cache.get(key).is_some() || {
                cache.insert(key, key);
                false
            }
        })
        .count();
    cache.run_pending_tasks();
    Ran { hits, held: cache.len() }
}

fn traces_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |why: std::io::Error| format!("--traces {}: {why}", folder.display());
    let mut traces = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "u64") {
            traces.push(path);
        }
    }
    traces.sort();
    match traces.is_empty() {
        true => Err(format!("--traces {}: no file *.u64 is there", folder.display())),
        false => Ok(traces),
    }
}

fn keys_of(trace: &Path) -> Result<Vec<u64>, String> {
    let bytes = std::fs::read(trace).map_err(|why| format!("{}: {why}", trace.display()))?;
    let keys = bytes.chunks_exact(8);
    if !keys.remainder().is_empty() || bytes.is_empty() {
        return Err(format!("{}: {} bytes are no whole number of 8-byte keys", trace.display(), bytes.len()));
    }
    Ok(keys.map(|key| u64::from_le_bytes(key.try_into().expect("a chunk has 8 bytes"))).collect())
}
