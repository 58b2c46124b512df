//! Threads for benches: two or more start their work at once, on Linux each bound to a processor of
//! its own as far as there are enough. A single one runs in the calling thread, which is not bound.
//! A control shows whether the processors are available. Benches measure the numbers of threads of
//! [`counts`].
//!
//! Shared by the benches of this folder by `mod threads`.
//!
//! A change must ensure that no thread begins its work before all are bound.

#![allow(dead_code, reason = "each bench uses its own part")]

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Returns the numbers of threads on a curve: 1, 2, 4 and so on, to all processors of this process.
pub fn counts() -> Vec<usize> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut counts: Vec<_> = (0..).map(|power| 1 << power).take_while(|&count| count < processors).collect();
    counts.push(processors);
    counts
}

/// Returns the largest number of [`counts`].
pub fn most() -> usize {
    counts().into_iter().max().unwrap_or(1)
}

/// Runs `work` on `threads` threads (one: the calling thread), each with its number. Returns the
/// time from when all are ready until the last is done.
pub fn timed(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    if threads == 1 {
        let begin = Instant::now();
        work(0);
        return begin.elapsed();
    }
    let cpus = cpus();
    let ready = Barrier::new(threads);
    let run = |number: usize| {
        bind(cpus.get(number).copied());
        ready.wait();
        let begin = Instant::now();
        work(number);
        (begin, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        running.into_iter().map(|thread| thread.join().expect("a bench's thread does not panic")).collect()
    });
    let begin = spans.iter().map(|span| span.0).min().expect("at least one thread was timed");
    spans.iter().map(|span| span.1).max().expect("at least one thread was timed") - begin
}

/// Prints how long two threads without shared state take, relative to one. Near 1.0 there are two
/// cores; near 2.0 there is one, and rows with two threads measure the scheduler instead of locks.
pub fn print_control() {
    let spin = |_| {
        let mut x = 1_u64;
        for _ in 0..100_000_000_u64 {
            x = black_box(x).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    };
    let best = |threads| (0..3).map(|_| timed(threads, spin)).min().expect("three runs were timed");
    let ratio = best(2).as_secs_f64() / best(1).as_secs_f64();
    let verdict = if ratio < 1.2 { "two cores are there" } else { "NOT two cores: rows with 2 threads say nothing" };
    println!("control: two spinning threads take {ratio:.2} times as long as one: {verdict}");
}

/// Returns the processors that this process may use.
#[cfg(target_os = "linux")]
fn cpus() -> Vec<usize> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
}

#[cfg(target_os = "linux")]
fn bind(cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // If binding is not allowed, the control shows the effect.
    let _not_allowed = rustix::thread::sched_setaffinity(None, &set);
}

#[cfg(not(target_os = "linux"))]
fn cpus() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn bind(_: Option<usize>) {}
