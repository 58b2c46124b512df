//! Threads that are bound to processors and start at once; and a control that shows whether the
//! processors are free.
//!
//! Without a free processor for each thread throughput means little. The control's ratio shows how
//! free the processors were, and the report prints it.
//!
//! A change must ensure that no thread starts its work before all are bound.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;

/// Iterations of the control's loop: a tenth of a second or more, long beside a thread's start.
const SPINS: u64 = 100_000_000;

/// The wall-clock and the processor time of threads.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// From the time when all threads are ready until the last is done.
    pub wall: Duration,
    /// The processor time of the whole process meanwhile, including background threads.
    pub cpu: Duration,
}

/// The result of the control: spinning threads compared with one.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    pub processors: usize,
    /// The number of threads: as many as will be measured, at most one per processor, and at least
    /// two.
    pub threads: usize,
    /// Their time divided by that of one thread. Near 1, each thread has a core.
    pub ratio: f64,
}

/// Runs `work` on `threads` threads, each with its number, and on a processor of its own while
/// there are enough.
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
        // The threads read the clock themselves, because this thread may be scheduled late.
        let joined = running.into_iter().map(|thread| thread.join().expect("a measured thread does not panic"));
        let spans: Vec<(Instant, Instant)> = joined.collect();
        let begin = spans.iter().map(|span| span.0).min().expect("at least one thread was timed");
        let end = spans.iter().map(|span| span.1).max().expect("at least one thread was timed");
        Took { wall: end - begin, cpu: cpu_time() - before }
    })
}

/// Returns the processors that this process may use.
pub fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let processors: Vec<_> = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false)).collect();
    if processors.is_empty() {
        vec![0]
    } else {
        processors
    }
}

/// Binds the calling thread. If binding is not allowed, the control shows the effect.
pub fn bind(processor: usize) {
    let mut set = CpuSet::new();
    let _not_allowed = set.set(processor).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
}

/// Measures `threads_max` threads that share no state, compared with one; see
/// [`Control::threads`].
pub fn control(threads_max: usize) -> Control {
    let spin = |_| {
        let mut x = 1_u64;
        for _ in 0..SPINS {
            x = black_box(x).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    };
    let best = |threads| (0..3).map(|_| timed(threads, spin).wall).min().expect("three runs were timed");
    let processors = processors().len();
    let threads = threads_max.min(processors).max(2);
    Control { processors, threads, ratio: best(threads).as_secs_f64() / best(1).as_secs_f64() }
}

/// Returns the number of involuntary context switches of the calling thread.
pub fn interruptions() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

fn cpu_time() -> Duration {
    let micros = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(Duration::ZERO, |usage| micros(usage.user_time()) + micros(usage.system_time()))
}
