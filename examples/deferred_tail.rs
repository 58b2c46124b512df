//! The latency of an allocation while other threads leave deferred reclaim.
//!
//! Threads allocate, and reclaim a little for each allocation. One allocation in ten is made inside
//! a file system and may not reclaim: its part is deferred. A million objects are owed at the
//! start. The latency of an allocation then depends on the policy that pays the debt:
//!
//! | policy | work of an allocation that may reclaim |
//! |---|---|
//! | `windup` (Linux to 5.12) | a pass at priority 12, and the whole debt, up to half the cache |
//! | `proportional` (since 5.13) | a pass at priority 12, and `owed >> 12` of the debt |
//! | `fair` (lowwater's) | direct reclaim: its own part; the background pays the debt |
//!
//! Each policy has the same threads, objects, memory and contexts, one after the other in one run.
//! An allocation is a call of reclaim, and 1,024 new objects from free memory, as far as there is
//! some. Freed objects are free memory again. A little is free at the start, as between two
//! watermarks; allocations that may not reclaim live on it until others have replaced it.
//!
//! An object is an inode of 256 bytes, written when it is new. The thread that frees it computes a
//! checksum of it, a third of a microsecond, without the list's lock: less than Linux takes to
//! evict a clean inode, and enough that 1,024 frees take half a millisecond. With `--bare` only an
//! object's links are used, and all work is done under the one list's lock.
//!
//! ```text
//! cargo run --release --example deferred_tail -- --threads 1 --objects 1800000 --debt 1000000 --seconds 3
//! ```
//!
//! A change must ensure that all policies get the same threads, objects and memory.

#![forbid(unsafe_code)]

#[path = "at_end/mod.rs"]
mod at_end;
#[path = "charts/mod.rs"]
mod charts;
#[path = "progress/mod.rs"]
mod progress;

use std::collections::VecDeque;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use at_end::AtEnd;
use charts::{Curve, Curves};
use clap::{Parser, ValueEnum};
use lowwater::{
    linked, ByteSize, Count, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId, Reclaim, Reclaimer, Registration,
    Registry, Scan, ShrinkControl, Shrinker,
};
use lowwater_shrinker::budget::{Fair, Policy, Proportional, Windup};
use lowwater_shrinker::Watermarks;
use lowwater_shrinker::{RegistryConfig, Work};

/// Objects in one call of the shrinker, as in Linux's file systems.
const BATCH: u64 = 1024;
/// Objects moved in one hold of the list's lock: other threads wait for so many, not for a batch.
const HOLD: u64 = 16;
/// One of this many allocations may not reclaim.
const NOFS_ONE_IN: u64 = 10;
/// Memory that is free at the start: room for this part of the objects, as a divisor, and for at
/// least a batch.
const FREE_PARTS: u64 = 32;
/// The longest wait for debts to be paid after the load has stopped.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Measures the latency of an allocation while other threads leave debts.
#[derive(Debug, Parser)]
struct Args {
    /// Threads that allocate; the background needs a processor as well
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Objects in the cache; each takes 272 bytes, for each of the three policies
    #[arg(long, default_value_t = 1_800_000, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    objects: u64,
    /// Objects owed at the start
    #[arg(long, default_value_t = 1_000_000)]
    debt: u64,
    /// Calls of reclaim in one allocation; each is followed by 1,024 new objects
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    rounds: u64,
    /// Objects that cost only the list's lock to make and to free
    #[arg(long)]
    bare: bool,
    /// Seconds for which each policy is measured
    #[arg(long, default_value = "3", value_parser = seconds)]
    seconds: f64,
    /// The measured clock: wall time, or the thread's processor time, for a machine with other load
    #[arg(long, value_enum, default_value_t = Time::Wall)]
    time: Time,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Draw the latencies into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0.001 to 3600 is expected".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Time {
    Wall,
    Cpu,
}

struct Inode {
    links: Links,
    data: [u8; 232],
}
linked!(impl[] for Inode { links, handle: Box<Inode> });

impl Inode {
    fn checksum(&self) -> u64 {
        // FNV-1a.
        self.data
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    }
}

/// Free memory: unused objects that are on no list. Freed objects are reused, the oldest first, so
/// the system's allocator is not measured (its rarer, longer calls would be most of the tail).
#[derive(Default)]
struct Slab(Mutex<VecDeque<Isolated<Inode>>>);

impl Slab {
    /// Allocates memory from the system, once, for this many more objects.
    fn grow(&self, mut objects: u64) {
        while objects > 0 {
            let some = objects.min(BATCH);
            objects -= some;
            self.put((0..some).map(|_| Box::new(Inode { links: Links::new(), data: [0; 232] })).collect());
        }
    }

    fn put(&self, free: Isolated<Inode>) {
        if !free.is_empty() {
            self.0.lock().expect("not poisoned").push_back(free);
        }
    }

    /// The oldest objects, together as they were freed, so that neighbours in memory stay
    /// neighbours however long it runs.
    fn get(&self) -> Option<Isolated<Inode>> {
        self.0.lock().expect("not poisoned").pop_front()
    }

    /// Returns the objects that were not needed.
    fn put_back(&self, free: Isolated<Inode>) {
        if !free.is_empty() {
            self.0.lock().expect("not poisoned").push_front(free);
        }
    }
}

/// A cache whose lock a thread inside its file system must not take.
struct Inodes {
    list: ListLru<Inode>,
    slab: Slab,
    bare: bool,
    /// Whether `count_objects` already defers for such a thread. Linux's caches defer only in the
    /// scan.
    defers_early: bool,
}

impl Inodes {
    /// Adds new objects to the cache, as far as there is free memory. Returns the number of objects
    /// without memory.
    fn fill(&self, memcg: &Memcg, count: u64) -> u64 {
        let mut missing = count;
        while missing > 0 {
            let Some(mut free) = self.slab.get() else { break };
            while missing > 0 && !free.is_empty() {
                let mut new: Isolated<_> = free
                    .by_ref()
                    .take(missing.min(HOLD) as usize)
                    .map(|mut inode| {
                        if !self.bare {
                            inode.data = [missing as u8; 232];
                            std::hint::black_box(inode.checksum());
                        }
                        inode
                    })
                    .collect();
                missing -=
                    self.list.add_batch(&mut new, memcg, NodeId::ZERO).expect("memory for one list is available");
            }
            self.slab.put_back(free);
        }
        missing
    }
}

impl Shrinker for Inodes {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        if self.defers_early && !sc.flags().contains(Reclaim::MAY_FS) {
            sc.will_defer();
        }
        match self.list.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        if !sc.flags().contains(Reclaim::MAY_FS) {
            return Scan::Stop;
        }
        let (mut left, mut free) = (sc.nr_to_scan(), Isolated::new());
        while left > 0 {
            let mut unused = Isolated::new();
            let before = left.min(HOLD);
            let mut hold = before;
            self.list.walk_one(sc.memcg(), sc.node(), &mut hold, |inode| inode.isolate(&mut unused));
            left -= before - hold;
            for inode in unused {
                if !self.bare {
                    std::hint::black_box(inode.checksum());
                }
                free.push(inode).expect("the inode was taken off its list");
            }
            if hold > 0 {
                break;
            }
        }
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        let freed = free.len() as u64;
        self.slab.put(free);
        Scan::Freed(freed)
    }
}

/// The results of one policy.
struct Outcome {
    name: &'static str,
    /// The latency of every allocation, sorted.
    ns: Vec<u64>,
    max_scanned_per_call: u64,
    /// Objects that an allocation could not make, because no memory was free.
    missing: u64,
    freed: u64,
    debt_end: u64,
    /// Kept until all policies were measured: memory freed by one is fragmented, and the next would
    /// be slower.
    _memory: Arc<Inodes>,
}

impl Outcome {
    fn quantile(&self, q: f64) -> u64 {
        let at = (self.ns.len() as f64 * q) as usize;
        self.ns.get(at.min(self.ns.len().saturating_sub(1))).copied().unwrap_or(0)
    }
}

/// A cache under one policy.
struct World {
    registry: Registry,
    inodes: Arc<Inodes>,
    is_fair: bool,
    reclaimer: Option<Reclaimer>,
    registration: Registration,
    tree: MemcgTree,
}

impl World {
    fn new(args: &Args, policy: Arc<dyn Policy>, is_fair: bool) -> Result<Self, Box<dyn Error>> {
        let tree = MemcgTree::default();
        let registry = Registry::with_config(&tree, RegistryConfig::new(1).policy(policy));
        let prepared = registry.builder("inodes").batch(BATCH).alloc()?;
        let list = ListLru::with_occupancy(prepared.occupancy());
        let inodes = Arc::new(Inodes { list, slab: Slab::default(), bare: args.bare, defers_early: is_fair });
        let registration = prepared.register(Arc::clone(&inodes) as Arc<dyn Shrinker>);
        inodes.slab.grow(args.objects + (args.objects / FREE_PARTS).max(BATCH));
        inodes.fill(tree.root(), args.objects);
        let mut world = Self { registry, inodes, is_fair, reclaimer: None, registration, tree };
        world.owe(args.debt);
        let marks = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };
        let topology = Arc::new(lowwater::topology::Fixed::new(1));
        world.reclaimer = Some(Reclaimer::start(&world.registry, topology, marks)?);
        Ok(world)
    }

    /// Runs callers that may not reclaim until the debt is reached.
    fn owe(&self, debt: u64) {
        let mut before = u64::MAX;
        // Ends at the policy's cap at the latest. At priority 6 a call defers 1/32 of the cache.
        while self.owed() < debt && self.owed() != before {
            before = self.owed();
            self.registry.shrink(self.tree.root(), NodeId::ZERO, 6, NOFS, &mut Work::unlimited());
        }
    }

    fn owed(&self) -> u64 {
        self.registry.owed(self.tree.root(), NodeId::ZERO, self.registration.id())
    }

    /// One call of reclaim. Returns the number of scanned objects.
    fn reclaim(&self, flags: Reclaim) -> u64 {
        let root = self.tree.root();
        if self.is_fair {
            self.registry.direct_reclaim(root, flags, &|| false).scanned
        } else {
            self.registry.shrink(root, NodeId::ZERO, 12, flags, &mut Work::unlimited()).scanned
        }
    }

    /// Allocates until it is stopped. Returns each latency, the most objects scanned by one call of
    /// reclaim, and the number of objects for which there was no memory.
    fn allocate(&self, thread: u64, args: &Args, stop: &AtomicBool) -> (Vec<u64>, u64, u64) {
        let (mut ns, mut scanned_max, mut missing) = (Vec::with_capacity(1 << 20), 0, 0);
        // Relaxed: a stop flag; no data is passed with it.
        for n in thread.. {
            if stop.load(Relaxed) {
                break;
            }
            let flags = if n % NOFS_ONE_IN == 0 { NOFS } else { Reclaim::FOREGROUND };
            let start = now_ns(args.time);
            for _ in 0..args.rounds {
                scanned_max = scanned_max.max(self.reclaim(flags));
                missing += self.inodes.fill(self.tree.root(), BATCH);
            }
            ns.push(now_ns(args.time).saturating_sub(start));
        }
        (ns, scanned_max, missing)
    }
}

/// A caller inside its file system.
const NOFS: Reclaim = Reclaim::MAY_BLOCK.union(Reclaim::MAY_IO);

fn now_ns(time: Time) -> u64 {
    let clock = match time {
        Time::Wall => rustix::time::ClockId::Monotonic,
        Time::Cpu => rustix::time::ClockId::ThreadCPUTime,
    };
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Runs the load under one policy, then waits up to `SETTLE_TIME` until all debts are paid.
fn measure(args: &Args, name: &'static str, policy: Arc<dyn Policy>) -> Result<Outcome, Box<dyn Error>> {
    let world = World::new(args, policy, name == "fair")?;
    let stop = AtomicBool::new(false);
    let mut ns = Vec::new();
    let (mut max_scanned_per_call, mut missing) = (0, 0);
    std::thread::scope(|scope| {
        let (world, stop) = (&world, &stop);
        // Relaxed: a stop flag; no data is passed with it.
        let end = AtEnd(|| stop.store(true, Relaxed));
        let threads: Vec<_> =
            (0..args.threads).map(|thread| scope.spawn(move || world.allocate(thread, args, stop))).collect();
        std::thread::sleep(Duration::from_secs_f64(args.seconds));
        drop(end);
        for thread in threads {
            let (times, scanned, without) = thread.join().expect("an allocating thread does not panic");
            ns.extend(times);
            max_scanned_per_call = max_scanned_per_call.max(scanned);
            missing += without;
        }
    });
    let end = Instant::now() + SETTLE_TIME;
    // Debt that the background is just paying is not visible; so the debt must be 0 for a while.
    let mut quiet = 0;
    while quiet < 5 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
        quiet = if world.owed() == 0 { quiet + 1 } else { 0 };
    }
    ns.sort_unstable();
    let (freed, debt_end) = (world.registration.stats().freed, world.owed());
    Ok(Outcome { name, ns, max_scanned_per_call, missing, freed, debt_end, _memory: Arc::clone(&world.inodes) })
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    if let Some(path) = &args.plot {
        // Checked before minutes are spent on results that cannot be drawn.
        std::fs::File::create(path).map_err(|error| format!("--plot {}: {error}", path.display()))?;
    }
    let policies: [(_, Arc<dyn Policy>); 3] =
        [("windup", Arc::new(Windup)), ("proportional", Arc::new(Proportional)), ("fair", Arc::new(Fair))];
    let bar = progress::bar(policies.len() as u64, args.json);
    let measure = |(name, policy)| {
        bar.set_message(name);
        measure(&args, name, policy).inspect(|_| bar.inc(1))
    };
    let outcomes = policies.into_iter().map(measure).collect::<Result<Vec<_>, _>>()?;
    bar.finish_and_clear();
    if args.json {
        println!("{}", json(&outcomes));
    } else {
        print_table(&args, &outcomes);
    }
    if let Some(path) = &args.plot {
        plot(path, &outcomes)?;
    }
    Ok(())
}

/// One object on one line. `ci/measured/shrinkers.py` and `ci/seeds` read its keys.
fn json(outcomes: &[Outcome]) -> String {
    let one = |outcome: &Outcome| {
        format!(
            r#""{}":{{"calls":{},"p50_ns":{},"p99_ns":{},"p999_ns":{},"max_scanned_per_call":{},"freed":{},"no_memory":{},"debt_end":{}}}"#,
            outcome.name,
            outcome.ns.len(),
            outcome.quantile(0.5),
            outcome.quantile(0.99),
            outcome.quantile(0.999),
            outcome.max_scanned_per_call,
            outcome.freed,
            outcome.missing,
            outcome.debt_end,
        )
    };
    format!(r#"{{"policies":{{{}}}}}"#, outcomes.iter().map(one).collect::<Vec<_>>().join(","))
}

/// Prints a row for each policy: calls, latencies (p99 and p99.9 as multiples of p50), objects, and
/// the debt that was left.
fn print_table(args: &Args, outcomes: &[Outcome]) {
    println!(
        "{} threads allocate for {} s over {} objects, of which {} are owed; one in {NOFS_ONE_IN} may not reclaim ({:?} time)\n",
        args.threads, args.seconds, args.objects, args.debt, args.time
    );
    println!(
        "{:<14} {:>9} {:>10} {:>7} {:>7} {:>12} {:>12} {:>12} {:>12} {:>10}",
        "policy", "calls", "p50 us", "p99", "p99.9", "max us", "most scanned", "no memory", "freed", "owed then"
    );
    for outcome in outcomes {
        let us = |q| outcome.quantile(q) as f64 / 1000.0;
        println!(
            "{:<14} {:>9} {:>10.1} {:>6.2}x {:>6.2}x {:>12.1} {:>12} {:>12} {:>12} {:>10}",
            outcome.name,
            outcome.ns.len(),
            us(0.5),
            us(0.99) / us(0.5),
            us(0.999) / us(0.5),
            us(1.0),
            outcome.max_scanned_per_call,
            outcome.missing,
            outcome.freed,
            outcome.debt_end,
        );
    }
}

/// Draws latency over the share of calls that took longer, both on logarithmic scales: the tail is
/// to the right. A curve ends at its longest call. `ci/plots.sh` looks for the texts.
fn plot(path: &Path, outcomes: &[Outcome]) -> Result<(), Box<dyn Error>> {
    const STEPS: u32 = 500;
    let curve = |outcome: &Outcome| {
        let end = (outcome.ns.len().max(1) as f64).log10();
        let point = |step| {
            let nines = end * f64::from(step) / f64::from(STEPS);
            (nines, outcome.quantile(1.0 - 10_f64.powf(-nines)) as f64 / 1000.0)
        };
        Curve { name: outcome.name.to_owned(), points: (0..=STEPS).map(point).collect() }
    };
    Curves {
        title: "The latency of an allocation that reclaims",
        x: "calls that took longer: one in 10^x",
        y: "latency, us",
        decades: true,
        curves: outcomes.iter().map(curve).collect(),
    }
    .draw(path)
}
