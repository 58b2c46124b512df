//! Threads bound to processors, all let go at once; and a control that says whether the processors are there.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;

/// Turns of the control's loop.
const SPINS: u64 = 100_000_000;

/// How long threads took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// From when all are ready until the last is done.
    pub wall: Duration,
    /// What the whole process ran meanwhile, its background threads included.
    pub cpu: Duration,
}

/// The control: spinning threads against one.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    pub processors: usize,
    /// As many as will be measured, while there are processors for them; two at least.
    pub threads: usize,
    /// What they took, divided by what one took. Near 1: each has a core.
    pub ratio: f64,
}

/// Runs `work` on so many threads, each with its number and on a processor of its own while there are enough.
pub fn timed(threads: usize, work: impl Fn(usize) + Sync) -> Took {
    let processors = processors();
    let ready = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let (work, ready) = (&work, &ready);
        let running: Vec<_> = (0..threads)
            .map(|number| {
                let processor = processors[number % processors.len()];
                scope.spawn(move || {
                    bind(processor);
                    ready.wait();
                    let begin = Instant::now();
                    work(number);
                    (begin, Instant::now())
                })
            })
            .collect();
        let before = cpu_time();
        ready.wait();
        // The threads' own clocks: this one may be late to run again.
        let joined = running.into_iter().map(|thread| thread.join().expect("a measured thread does not panic"));
        let spans: Vec<(Instant, Instant)> = joined.collect();
        let begin = spans.iter().map(|span| span.0).min().expect("there is a thread");
        let end = spans.iter().map(|span| span.1).max().expect("there is a thread");
        Took { wall: end - begin, cpu: cpu_time() - before }
    })
}

/// The processors this process may use.
pub fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let processors: Vec<_> = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false)).collect();
    if processors.is_empty() {
        vec![0]
    } else {
        processors
    }
}

/// Binds the calling thread. Where that is not allowed, the control says what it means.
pub fn bind(processor: usize) {
    let mut set = CpuSet::new();
    let _not_allowed = set.set(processor).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
}

/// What up to `threads_max` threads cost that share nothing but the machine.
pub fn control(threads_max: usize) -> Control {
    let spin = |_| {
        let mut x = 1_u64;
        for _ in 0..SPINS {
            x = black_box(x).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    };
    let best = |threads| (0..3).map(|_| timed(threads, spin).wall).min().expect("three were timed");
    let processors = processors().len();
    let threads = threads_max.min(processors).max(2);
    Control { processors, threads, ratio: best(threads).as_secs_f64() / best(1).as_secs_f64() }
}

/// How often the calling thread was taken off its processor against its will.
pub fn interruptions() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

fn cpu_time() -> Duration {
    let micros = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(Duration::ZERO, |usage| micros(usage.user_time()) + micros(usage.system_time()))
}
