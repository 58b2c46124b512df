//! A cache of 2 M entries is told to keep a tenth, while somebody reads. Each in a process of its own.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::child::{ask, resident_bytes, Figures, Measure};
use crate::contender::{runs, Contender, Plan, Run};
use crate::keys::key;
use crate::recorder::Recorder;
use crate::report::{medians, Column, Report, Table};
use crate::threads::{bind, processors};

const ENTRIES: usize = 2_000_000;
/// What is to be left, one part of so many.
const PART: usize = 10;
/// Entries above what is to be left that make no difference any more.
const SLACK: usize = ENTRIES / 100;
/// A shrink that goes on in the background is waited for so long.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Reads before, so that the caches are warm.
const WARM: Duration = Duration::from_millis(200);

/// Memory that is freed late, because a reader may still have been there, is waited for so long.
const GRACE: Duration = Duration::from_millis(500);

/// What the reader does.
const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const DONE: u8 = 2;

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
        let reader = scope.spawn(|| {
            bind(processors[0]);
            read(&cache, entries as u64, &state)
        });
        // The one that shrinks has another processor; threads of the cache's own have been made before, and go where they like.
        bind(processors[1 % processors.len()]);
        std::thread::sleep(WARM);
        // Relaxed, here and below: when exactly the reader sees it does not matter.
        state.store(MEASURING, Ordering::Relaxed);
        let begin = Instant::now();
        cache.shrink(left);
        let call = begin.elapsed();
        while cache.len() > left + SLACK && begin.elapsed() < WAIT_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        let done = begin.elapsed();
        state.store(DONE, Ordering::Relaxed);
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

/// Reads keys all over, until it is told to end. What ends after the shrink has begun is recorded: a read that was under way then may be the
/// one that is kept waiting.
fn read<P: Contender>(cache: &P, entries: u64, state: &AtomicU8) -> Recorder {
    let mut recorder = Recorder::new();
    let mut number = 0_u64;
    loop {
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
