//! A cache of 2 M entries is shrunk to a tenth, while a thread reads. Each measurement is in a
//! child process.
//!
//! It shows whether a shrink blocks readers, and how much memory comes back.
//!
//! A change must ensure that the reader runs before the shrink begins, and until it is done
//! or panics: the scope waits for the reader. `ci/measured/comparison.py` reads the table by its
//! title, its columns, and our row's name.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::at_end::AtEnd;
use crate::child::{ask, resident_bytes, Figures, Measure};
use crate::contender::{runs, Contender, Plan, Run};
use crate::keys::key;
use crate::recorder::Recorder;
use crate::report::{medians, Column, Report, Table};
use crate::threads::{bind, processors};

const ENTRIES: usize = 2_000_000;
/// The divisor of the entries that are to be left.
const PART: usize = 10;
/// The divisor of the entries that may be left above the target when the shrink counts as done.
const SLACK_PART: usize = 100;
/// The longest wait for a shrink that continues in the background.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The time of reads before the shrink, so that the processor's caches are warm.
const WARM: Duration = Duration::from_millis(200);

/// The wait for memory that is freed after a grace period, because readers may have used it.
const GRACE: Duration = Duration::from_millis(500);

/// The phases of the reader.
const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const DONE: u8 = 2;

/// Reports, for each contender that can shrink, the time of the shrink, the latencies of concurrent
/// reads, and the memory that was returned.
pub fn measure(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let mut runs = plan.chosen(shrinks());
    runs.retain(|run| run.shrink.is_some());
    let entries = if plan.quick { ENTRIES / 10 } else { ENTRIES };
    let mut rounds = vec![Vec::new(); runs.len()];
    let mut failed = None;
    plan.interleaved(&runs, |which, run| match ask("shrink", run.name, entries) {
        Ok(figures) => rounds[which].push(figures),
        Err(why) => failed = Some(why),
    });
    if let Some(why) = failed {
        return Err(why);
    }
    let row = |(run, rounds): (&Run<Measure>, &Vec<Figures>)| {
        (format!("{}: {}", run.name, run.shrink.unwrap_or_default()), medians(rounds))
    };
    report.table(Table {
        name: "stalls",
        title: format!("{entries} entries are to become a tenth, with a reader on them"),
        first: "cache",
        columns: vec![
            Column::new("p50 us", 2).less(),
            Column::decades("p99.9 us", 2).less(),
            Column::decades("max unpreempted us", 0).less(),
            Column::new("max us", 0),
            Column::new("reads", 0),
            Column::new("the call ms", 1).less(),
            Column::new("until done ms", 1).less(),
            Column::new("left", 0),
            Column::new("MB before", 0),
            Column::new("MB after", 0),
            Column::new("% of the freed bytes given back", 0).more(),
        ],
        rows: runs.iter().zip(&rounds).map(row).collect(),
    })
}

pub fn shrinks() -> Vec<Run<Measure>> {
    runs!(shrink as Measure)
}

/// Fills a cache, shrinks it beside a reader, and returns the figures; runs in the child process.
fn shrink<P: Contender>(entries: usize) -> Figures {
    let empty = resident_bytes();
    let cache = P::roomy(entries);
    for number in 0..entries as u64 {
        cache.insert(key(number), number);
    }
    cache.run_pending_tasks();
    let held = cache.len();
    let full = resident_bytes();
    let processors = processors();
    let left = entries / PART;
    let state = AtomicU8::new(WARMING);
    let (recorder, call, done) = std::thread::scope(|scope| {
        // Relaxed, for all phases: the exact time at which the reader sees a change does not
        // matter.
        let end = AtEnd(|| state.store(DONE, Ordering::Relaxed));
        let reader = scope.spawn(|| {
            bind(processors[0]);
            read(&cache, entries as u64, &state)
        });
        // The shrinking thread has another processor, if there is one. The cache's background
        // threads were created before, and are not bound; foyer's shrink creates threads, which
        // inherit this binding.
        bind(processors[1 % processors.len()]);
        std::thread::sleep(WARM);
        state.store(MEASURING, Ordering::Relaxed);
        let begin = Instant::now();
        cache.shrink(left);
        let call = begin.elapsed();
        while cache.len() > left + entries / SLACK_PART && begin.elapsed() < WAIT_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        let done = begin.elapsed();
        drop(end);
        (reader.join().expect("the reader does not panic"), call, done)
    });
    cache.run_pending_tasks();
    std::thread::sleep(GRACE);
    let after = resident_bytes();
    let freed = (full - empty) * (held.saturating_sub(cache.len())) as f64 / held as f64;
    vec![
        recorder.percentile_us(50.0),
        recorder.percentile_us(99.9),
        recorder.max_unpreempted_us(),
        recorder.max_us(),
        recorder.calls() as f64,
        call.as_secs_f64() * 1e3,
        done.as_secs_f64() * 1e3,
        cache.len() as f64,
        full / 1e6,
        after / 1e6,
        100.0 * (full - after) / freed,
    ]
}

/// Reads keys in scattered order until it is stopped. Records reads that end after the shrink has
/// begun, because a read that was in flight at that time may be one that stalls.
fn read<P: Contender>(cache: &P, entries: u64, state: &AtomicU8) -> Recorder {
    let mut recorder = Recorder::new();
    let mut number = 0_u64;
    loop {
        // A prime that does not divide `entries`, so that every key has its turn.
        number = (number + 7_919) % entries;
        match state.load(Ordering::Relaxed) {
            WARMING => {
                recorder.look();
                let begin = Instant::now();
                cache.get(key(number));
                let took = begin.elapsed();
                if state.load(Ordering::Relaxed) != WARMING {
                    recorder.record(took);
                }
            }
            MEASURING => {
                recorder.time(|| cache.get(key(number)));
            }
            _ => return recorder,
        }
    }
}
