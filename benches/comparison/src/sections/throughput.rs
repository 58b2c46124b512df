//! Operations per second: Zipf with misses, reads that all hit, and reads with some writes.
//!
//! Contenders run interleaved in several rounds, and the median counts, so that a disturbance hits
//! all of them.
//!
//! A change must keep the interleaving: contenders that run one after the other meet different
//! disturbances. `ci/measured/comparison.py` reads the tables by titles and columns.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::contender::{runs, Contender, Kind, Plan, Run};
use crate::contenders::Lowwater;
use crate::keys::{key, zipf_keys};
use crate::report::{medians, Column, Report, Table};
use crate::threads::timed;

/// Zipf's exponent, as in YCSB.
const EXPONENT: f64 = 0.99;
/// Figures for each number of threads: operations, processor time, hits.
const FIGURES_PER_COUNT: usize = 3;
/// Operations of a thread in one measurement.
const LENGTH: usize = 5_000_000;

/// The operations of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// A get; on a miss, an insert. A tenth of the keys fits.
    GetOrInsert,
    /// Gets; everything fits.
    Hits,
    /// One operation of twenty is an insert of an existing key; everything fits.
    SomeWrites,
}

/// The sizes and the key sequences of a measurement.
struct Bench {
    load: Load,
    /// The capacity of the caches, in entries.
    entries: usize,
    /// Keys that are inserted before the measurement.
    resident: usize,
    threads: Vec<usize>,
    /// Sequences of keys: the first for the warm-up, then one for each thread of each measurement,
    /// so that none is used twice on one cache.
    keys: Vec<Vec<u64>>,
}

/// Returns, for each number of threads, millions of operations per second, ns of processor time per
/// operation, and per cent of hits; then the entries held, and the values refused.
type Measure = fn(&Bench) -> Vec<f64>;

/// Reports operations per second for each load, contender and number of threads, and the ratios to
/// this library's.
pub fn measure(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let scale = if plan.quick { 20 } else { 1 };
    for (load, name, ratios_name, what, keys) in [
        (
            Load::GetOrInsert,
            "throughput-zipf",
            "ratios-zipf",
            "a tenth of the keys fits, get + insert on a miss",
            10_000_000 / scale,
        ),
        (Load::Hits, "throughput-hits", "ratios-hits", "100 % hits", 1_000_000 / scale),
        (
            Load::SomeWrites,
            "throughput-95-5",
            "ratios-95-5",
            "95 % gets, 5 % inserts over what is there",
            1_000_000 / scale,
        ),
    ] {
        let sequences = 1 + plan.threads.iter().sum::<usize>();
        let bench = Bench {
            load,
            // Twice the resident keys, so that few shards are full by chance.
            entries: if load == Load::GetOrInsert { keys / 10 } else { 2 * keys },
            resident: if load == Load::GetOrInsert { 0 } else { keys },
            threads: plan.threads.clone(),
            keys: (0..sequences).map(|seed| zipf_keys(keys, EXPONENT, LENGTH / scale, seed as u64)).collect(),
        };
        let title = format!("{what}; Zipf {EXPONENT} over {keys} keys, room for {}", bench.entries);
        let table = one(plan, &bench, name, title);
        let ratios = ratios(&table, &plan.threads, ratios_name);
        report.table(table)?;
        ratios.map_or(Ok(()), |ratios| report.table(ratios))?;
    }
    Ok(())
}

fn one(plan: &Plan, bench: &Bench, name: &'static str, title: String) -> Table {
    let mut runs: Vec<Run<Measure>> = plan.chosen(runs!(contender as Measure));
    if bench.load == Load::GetOrInsert {
        runs.retain(|run| run.kind == Kind::Cache);
    }
    let mut rounds = vec![Vec::new(); runs.len()];
    plan.interleaved(&runs, |which, run| rounds[which].push((run.call)(bench)));
    let mut columns = Vec::new();
    for threads in &bench.threads {
        columns.push(Column::bars(format!("Mops, threads: {threads}"), 2).more());
        columns.push(Column::new(format!("cpu ns/op, {threads}"), 0));
        columns.push(Column::new(format!("hit %, {threads}"), 1));
    }
    columns.extend([Column::new("held", 0), Column::new("refused", 0)]);
    let rows = runs.iter().zip(&rounds).map(|(run, rounds)| (run.name.to_owned(), medians(rounds))).collect();
    Table { name, title, first: "cache", columns, rows }
}

/// Returns the number of our operations divided by that of each contender, in the same time and in
/// the same processor time; `None` if ours was not measured.
fn ratios(table: &Table, threads: &[usize], name: &'static str) -> Option<Table> {
    let is_ours = |row: &&(String, Vec<f64>)| row.0 == Lowwater::NAME;
    let (_, ours) = table.rows.iter().find(is_ours)?;
    // For each number of threads, the column of the operations comes first, then that of their
    // cost.
    let column = |n: usize| n * FIGURES_PER_COUNT;
    let row = |(name, theirs): &(String, Vec<f64>)| {
        let rates = (0..threads.len()).map(|n| ours[column(n)] / theirs[column(n)]);
        let costs = (0..threads.len()).map(|n| theirs[column(n) + 1] / ours[column(n) + 1]);
        (name.clone(), rates.chain(costs).collect())
    };
    let columns = |what: &'static str| threads.iter().map(move |n| Column::new(format!("{what}, threads: {n}"), 2));
    Some(Table {
        name,
        title: format!("How many times as much lowwater does as the contender: {}", table.title),
        first: "cache",
        columns: columns("in the same time").chain(columns("in the same cpu time")).collect(),
        rows: table.rows.iter().filter(|row| !is_ours(row)).map(row).collect(),
    })
}

/// Runs a load on a contender for each number of threads; returns the figures of one row.
fn contender<P: Contender>(bench: &Bench) -> Vec<f64> {
    let cache = if bench.load == Load::GetOrInsert { P::new(bench.entries) } else { P::roomy(bench.entries) };
    for number in 0..bench.resident {
        cache.insert(key(number as u64), number as u64);
    }
    if bench.load == Load::GetOrInsert {
        work(&cache, bench.load, &bench.keys[0]);
    }
    cache.run_pending_tasks();
    let mut figures = Vec::new();
    let mut unmet = &bench.keys[1..];
    for &threads in &bench.threads {
        let (keys, rest) = unmet.split_at(threads);
        unmet = rest;
        let hits = AtomicUsize::new(0);
        let took = timed(threads, |thread| {
            let mine = work(&cache, bench.load, &keys[thread]);
            // Relaxed: the join of the threads makes the sum visible.
            hits.fetch_add(mine, Ordering::Relaxed);
        });
        let operations = (threads * keys[0].len()) as f64;
        figures.extend([
            operations / took.wall.as_secs_f64() / 1e6,
            took.cpu.as_secs_f64() * 1e9 / operations,
            100.0 * hits.into_inner() as f64 / operations,
        ]);
    }
    cache.run_pending_tasks();
    figures.extend([cache.len() as f64, cache.refused() as f64]);
    figures
}

/// Returns the number of operations that hit; a write counts as a hit.
fn work<P: Contender>(cache: &P, load: Load, keys: &[u64]) -> usize {
    match load {
        Load::GetOrInsert => keys.iter().filter(|&&key| cache.get_or_insert(key)).count(),
        Load::Hits => keys.iter().filter(|&&key| cache.get(key).is_some()).count(),
        Load::SomeWrites => {
            let operation = |(n, &key): (usize, &u64)| {
                if n % 20 == 0 {
                    cache.insert(key, key);
                    true
                } else {
                    cache.get(key).is_some()
                }
            };
            keys.iter().enumerate().filter(|pair| operation(*pair)).count()
        }
    }
}
