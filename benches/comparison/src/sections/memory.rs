//! Resident memory, including the allocator's; each measurement in a child process.
//!
//! A child per measurement, since freed memory of one would serve the next.
//!
//! A change must ensure that a child measures one contender and ends. `ci/measured/comparison.py`
//! reads the tables by titles and columns.

use std::hint::black_box;

use crate::child::{ask, resident_bytes, Figures, Measure};
use crate::contender::{runs, Contender, Kind, Plan, Run};
use crate::contenders::Lowwater;
use crate::keys::key;
use crate::report::{medians, Column, Report, Table};

/// A key and a value.
const PAYLOAD_BYTES: f64 = 16.0;
/// The number of empty caches, large enough that a page more or less does not matter.
const CACHES: usize = 1000;
/// The capacity of each of them.
const CACHE_ENTRIES: usize = 10_000;
/// Tenants of one cache.
const TENANTS: usize = 10_000;

/// Reports the bytes of an entry and of an empty cache for each contender, and of a tenant for
/// ours; each figure comes from a child process.
pub fn measure(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let rows = children(plan, "fill", fills(), plan.entries)?;
    report.table(Table {
        name: "memory-entries",
        title: format!("Resident bytes beyond the payload, {} entries of u64 under u64", plan.entries),
        first: "cache",
        columns: vec![Column::bars("bytes an entry", 1).less(), Column::new("held", 0), Column::new("resident MB", 0)],
        rows,
    })?;

    let mut empties = empties();
    empties.retain(|run| run.kind == Kind::Cache);
    let rows = children(plan, "empty", empties, CACHES)?;
    report.table(Table {
        name: "memory-empty",
        title: format!("Resident bytes of a cache for {CACHE_ENTRIES} entries, the mean of {CACHES} in one process (ours in one runtime)"),
        first: "cache",
        columns: vec![Column::decades("empty", 0).less(), Column::decades("its first entry adds", 0).less()],
        rows,
    })?;

    let rows = children(plan, "tenants", tenants(), TENANTS)?;
    report.table(Table {
        name: "memory-tenants",
        title: format!("Resident bytes of a tenant, the mean of {TENANTS} in one cache"),
        first: "cache",
        columns: vec![
            Column::new("the group itself", 0),
            Column::new("a cache beside them adds, each", 1),
            Column::bars("its first entry adds", 0),
        ],
        rows,
    })
}

pub fn fills() -> Vec<Run<Measure>> {
    runs!(fill as Measure)
}

pub fn empties() -> Vec<Run<Measure>> {
    runs!(empty as Measure)
}

pub fn tenants() -> Vec<Run<Measure>> {
    vec![Run { name: Lowwater::NAME, kind: Lowwater::KIND, shrink: None, call: tenant }]
}

fn children(
    plan: &Plan,
    section: &str,
    runs: Vec<Run<Measure>>,
    number: usize,
) -> Result<Vec<(String, Figures)>, String> {
    let runs = plan.chosen(runs);
    let mut rounds = vec![Vec::new(); runs.len()];
    let mut failed = None;
    plan.interleaved(&runs, |which, run| match ask(section, run.name, number) {
        Ok(figures) => rounds[which].push(figures),
        Err(why) => failed = Some(why),
    });
    let rows = runs.iter().zip(&rounds).map(|(run, rounds)| (run.name.to_owned(), medians(rounds)));
    failed.map_or_else(|| Ok(rows.collect()), Err)
}

fn fill<P: Contender>(entries: usize) -> Figures {
    let before = resident_bytes();
    let cache = P::roomy(entries);
    for number in 0..entries as u64 {
        cache.insert(key(number), number);
    }
    cache.run_pending_tasks();
    let bytes = resident_bytes() - before;
    let held = cache.len() as f64;
    vec![bytes / held - PAYLOAD_BYTES, held, bytes / 1e6]
}

fn empty<P: Contender>(count: usize) -> Figures {
    // A first cache, so that one-time allocations of the process do not count.
    let first = P::several(1, CACHE_ENTRIES);
    first[0].insert(key(0), 0);
    let before = resident_bytes();
    let caches = P::several(count, CACHE_ENTRIES);
    let empty = resident_bytes() - before;
    for (number, cache) in caches.iter().enumerate() {
        cache.insert(key(number as u64), number as u64);
        cache.run_pending_tasks();
    }
    let filled = resident_bytes() - before;
    black_box(&caches);
    vec![empty / count as f64, (filled - empty) / count as f64]
}

fn tenant(count: usize) -> Figures {
    let cache = Lowwater::roomy(2 * count);
    cache.insert(key(0), 0);
    let before = resident_bytes();
    let cache = cache.with_tenants(count);
    let groups = resident_bytes() - before;
    let beside = cache.beside();
    let another = resident_bytes() - before - groups;
    for tenant in 0..count {
        cache.insert_for(tenant, key(tenant as u64 + 1), 0);
    }
    let filled = resident_bytes() - before - groups - another;
    black_box(&beside);
    vec![groups / count as f64, another / count as f64, filled / count as f64]
}
