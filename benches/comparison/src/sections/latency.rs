//! Latencies of single calls when every insert has to evict.
//!
//! Means hide the calls that a service notices; so percentiles and maxima of single calls are
//! shown.
//!
//! A change must ensure that the cache is full before the clock starts, and before the Zipf load
//! holds what such a load leaves there. `ci/measured/comparison.py` reads the tables by titles and
//! columns.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::contender::{runs, Contender, Kind, Plan, Run};
use crate::keys::{key, zipf_keys};
use crate::recorder::Recorder;
use crate::report::{medians, Column, Report, Table};
use crate::threads::timed;

const ENTRIES: usize = 1_000_000;
/// Timed calls of each thread.
const CALLS: usize = 2_000_000;
/// Zipf's exponent, as in `throughput`.
const EXPONENT: f64 = 0.99;
/// Keys of the Zipf load for each entry that fits.
const KEYS_PER_ENTRY: usize = 10;
/// Untimed calls of the Zipf load for each entry, by which the cache fills.
const WARM_UP_PER_ENTRY: usize = 10;

type Measure = fn(usize, usize) -> Vec<f64>;

/// Reports percentiles and maxima of single inserts into a full cache, and of a get-and-insert
/// load, for each contender.
pub fn measure(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let scale = if plan.quick { 20 } else { 1 };
    let columns = || {
        vec![
            Column::new("p50 us", 2).less(),
            Column::new("p99 us", 2).less(),
            Column::decades("p99.9 us", 2).less(),
            Column::decades("max unpreempted us", 0).less(),
            Column::new("max us", 0),
            Column::new("held", 0),
            Column::new("refused", 0),
        ]
    };
    for (name, title, measure) in [
        ("latency-insert-1", "Inserts of new keys into a full cache, 1 thread", runs!(insert_1 as Measure)),
        ("latency-insert-2", "Inserts of new keys into a full cache, 2 threads", runs!(insert_2 as Measure)),
        (
            "latency-zipf-2",
            "Zipf 0.99, a tenth of the keys fits, get or get and insert as one, 2 threads",
            runs!(zipf_2 as Measure),
        ),
    ] {
        let mut runs: Vec<Run<Measure>> = plan.chosen(measure);
        runs.retain(|run| run.kind == Kind::Cache);
        let mut rounds = vec![Vec::new(); runs.len()];
        plan.interleaved(&runs, |which, run| rounds[which].push((run.call)(ENTRIES / scale, CALLS / scale)));
        let rows = runs.iter().zip(&rounds).map(|(run, rounds)| (run.name.to_owned(), medians(rounds))).collect();
        let title = format!("{title}; {} entries", ENTRIES / scale);
        let mut columns = columns();
        if name == "latency-zipf-2" {
            columns.push(Column::new("hit %", 1));
        }
        report.table(Table { name, title, first: "cache", columns, rows })?;
    }
    Ok(())
}

fn insert_1<P: Contender>(entries: usize, calls: usize) -> Vec<f64> {
    insert::<P>(1, entries, calls)
}

fn insert_2<P: Contender>(entries: usize, calls: usize) -> Vec<f64> {
    insert::<P>(2, entries, calls)
}

fn insert<P: Contender>(threads: usize, entries: usize, calls: usize) -> Vec<f64> {
    let cache = full::<P>(entries);
    let next = |thread: usize, call: usize| (2 * entries + thread * calls + call) as u64;
    recorded(&cache, threads, |thread, recorder| {
        for call in 0..calls {
            let number = next(thread, call);
            recorder.time(|| cache.insert(key(number), number));
        }
    })
}

fn zipf_2<P: Contender>(entries: usize, calls: usize) -> Vec<f64> {
    let cache = warm::<P>(entries);
    let keys: Vec<_> = (0..2).map(|thread| zipf(entries, calls, thread)).collect();
    let hits = AtomicUsize::new(0);
    let mut figures = recorded(&cache, 2, |thread, recorder| {
        let mine = keys[thread].iter().filter(|&&key| recorder.time(|| cache.get_or_insert(key))).count();
        // Relaxed: the join of the threads makes the sum visible.
        hits.fetch_add(mine, Ordering::Relaxed);
    });
    figures.push(100.0 * hits.into_inner() as f64 / (2 * calls) as f64);
    figures
}

/// Returns the keys of the Zipf load; a different sequence for each `seed`.
fn zipf(entries: usize, length: usize, seed: u64) -> Vec<u64> {
    zipf_keys(KEYS_PER_ENTRY * entries, EXPONENT, length, seed)
}

/// Returns a cache that the Zipf load has filled, by other requests than those of the threads.
fn warm<P: Contender>(entries: usize) -> P {
    let cache = P::new(entries);
    for key in zipf(entries, WARM_UP_PER_ENTRY * entries, 2) {
        cache.get_or_insert(key);
    }
    cache.run_pending_tasks();
    cache
}

/// Returns a cache into which twice its capacity was inserted.
fn full<P: Contender>(entries: usize) -> P {
    let cache = P::new(entries);
    for number in 0..2 * entries as u64 {
        cache.insert(key(number), number);
    }
    cache.run_pending_tasks();
    cache
}

fn recorded<P: Contender>(cache: &P, threads: usize, work: impl Fn(usize, &mut Recorder) + Sync) -> Vec<f64> {
    let all = Mutex::new(Recorder::new());
    let refused = cache.refused();
    timed(threads, |thread| {
        let mut recorder = Recorder::new();
        work(thread, &mut recorder);
        all.lock().add(&recorder);
    });
    let all = all.into_inner();
    vec![
        all.percentile_us(50.0),
        all.percentile_us(99.0),
        all.percentile_us(99.9),
        all.max_unpreempted_us(),
        all.max_us(),
        cache.len() as f64,
        (cache.refused() - refused) as f64,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::{Lowwater, Lru, QuickCache};

    /// Returns the hits of the first and of the last tenth of the calls, in per cent.
    fn first_and_last_hits<P: Contender>() -> (f64, f64) {
        const ENTRIES: usize = 10_000;
        let cache = warm::<P>(ENTRIES);
        let keys = zipf(ENTRIES, 10 * ENTRIES, 0);
        let hits: Vec<_> = keys
            .chunks(ENTRIES)
            .map(|part| part.iter().filter(|&&key| cache.get_or_insert(key)).count() as f64 * 100.0 / ENTRIES as f64)
            .collect();
        (hits[0], hits[9])
    }

    #[test]
    fn the_zipf_load_begins_in_a_steady_state() {
        for (name, (first, last)) in [
            (Lowwater::NAME, first_and_last_hits::<Lowwater>()),
            (Lru::NAME, first_and_last_hits::<Lru>()),
            (QuickCache::NAME, first_and_last_hits::<QuickCache>()),
        ] {
            assert!((first - last).abs() < 3.0, "{name}: {first} % of the first calls hit, {last} % of the last");
        }
    }
}
