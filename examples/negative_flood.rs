//! A flood of names that do not exist: the number of negatives (cached results "no such name") that
//! stay, and the latency of a lookup meanwhile. One run measures one of the policies that bound
//! negatives, so that the results of several can be compared.
//!
//! ```text
//! cargo run --release --example negative_flood -- --memory 4G --policy three-in-a-row --seconds 20
//! cargo run --release --example negative_flood -- --buckets 65536 --policy default --adversary twice --json
//! ```
//!
//! `--memory` selects the number of buckets that Linux would have on a machine of that size. The
//! memory itself is not needed, but the remaining negatives are real: about 185 bytes each. A run
//! ends early when there are `--negatives-max`.
//!
//! A change must ensure that a run ends at `--negatives-max`, whatever the policy keeps, and keep
//! the names in its JSON, which `ci/seeds/reports.py` reads.

#[path = "at_end/mod.rs"]
mod at_end;
#[path = "charts/mod.rs"]
mod charts;
#[path = "progress/mod.rs"]
mod progress;

use at_end::AtEnd;
use charts::{Curve, Curves};
use clap::{Parser, ValueEnum};
use lowwater::{ByteSize, MemcgTree, Registry};
use lowwater_dcache_model::backend::{Backend, InodeInfo};
use lowwater_dcache_model::negative::{BoundInputs, NegativePolicy, PerDirectory, Probation, ThreeInARow, Unbounded};
use lowwater_dcache_model::{Dcache, Kind, Mount, Name};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// 128 GiB of table: more than Linux takes on any machine.
const BUCKETS_MAX: u64 = 1 << 34;

/// Floods a dentry cache with names that do not exist.
#[derive(Parser)]
struct Args {
    /// Buckets as Linux has them on a machine of this memory: 256G, 3T, 4G, 512M ...
    #[arg(long, default_value = "4G")]
    memory: ByteSize,
    /// Buckets, instead.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=BUCKETS_MAX))]
    buckets: Option<u64>,
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    #[arg(long, value_enum, default_value_t = PolicyName::Default)]
    policy: PolicyName,
    #[arg(long, value_enum, default_value_t = Adversary::None)]
    adversary: Adversary,
    /// Positives that are cached before the flood, over which the names of the flood are spread.
    #[arg(long, default_value_t = 1024)]
    directories: u64,
    /// The run ends when so many negatives are cached.
    #[arg(long, default_value_t = 20_000_000)]
    negatives_max: u64,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Writes how the negatives grew to this SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyName {
    Unbounded,
    ThreeInARow,
    PerDirectory,
    Default,
}

/// How the flood tries to keep its names cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Adversary {
    /// Every name once.
    None,
    /// Every name twice, one after the other.
    Twice,
    /// All threads look up the same names at about the same time.
    SameName,
    /// Every name once, all in one directory.
    OneDirectory,
}

/// A backend that has directories and no other names.
struct Void {
    directories: u64,
}

const ROOT: u64 = u64::MAX;

impl Backend for Void {
    fn root(&self) -> io::Result<InodeInfo> {
        Ok(InodeInfo { inode: ROOT, kind: Kind::Directory })
    }

    fn lookup(&self, dir: u64, name: Name<'_>) -> io::Result<Option<InodeInfo>> {
        let number = std::str::from_utf8(name.bytes()).ok().and_then(|name| name.strip_prefix('d')?.parse().ok());
        let number = number.filter(|&number| dir == ROOT && number < self.directories);
        Ok(number.map(|inode| InodeInfo { inode, kind: Kind::Directory }))
    }

    fn create(&self, _: u64, _: Name<'_>, _: Kind) -> io::Result<InodeInfo> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _: u64, _: Name<'_>) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn rename(&self, _: (u64, Name<'_>), _: (u64, Name<'_>)) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn link(&self, _: u64, _: u64, _: Name<'_>) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn read_dir(&self, _: u64) -> io::Result<Vec<(Box<[u8]>, InodeInfo)>> {
        Ok(Vec::new())
    }
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the cache, floods it from all threads while the main thread records the negatives, and
/// reports.
fn run(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    let buckets = args.buckets.unwrap_or_else(|| Dcache::kernel_buckets(args.memory)).next_power_of_two();
    if buckets > BUCKETS_MAX {
        return Err(format!("--memory {} would have {buckets} buckets; at most {BUCKETS_MAX}", args.memory).into());
    }
    let directories = if args.adversary == Adversary::OneDirectory { 1 } else { args.directories.max(1) };
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let dcache = Dcache::builder().buckets(usize::try_from(buckets)?).boxed_policy(policy(args.policy)).build();
    let mount = dcache.mount(Arc::new(Void { directories }), &registry, tree.root())?;
    for n in 0..directories {
        drop(mount.lookup(format!("/d{n}").as_bytes())?);
    }

    let (stop, lookups) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    let mut curve = Vec::new();
    let samples = std::thread::scope(|scope| {
        // Relaxed: a stop flag; no data is passed with it.
        let end = AtEnd(|| stop.store(true, Relaxed));
        let flooders: Vec<_> = (0..args.threads)
            .map(|thread| {
                let (mount, stop, lookups) = (&mount, &stop, &lookups);
                let seed = if args.adversary == Adversary::SameName { 0 } else { thread };
                scope.spawn(move || flood(mount, seed, directories, args.adversary, stop, lookups))
            })
            .collect();
        watch(&args, &dcache, begun, &mut curve);
        drop(end);
        let mut samples = Vec::new();
        for flooder in flooders {
            samples.extend(flooder.join().expect("a flooding thread does not panic"));
        }
        samples
    });
    let seconds = begun.elapsed().as_secs_f64();
    report(&args, &dcache, seconds, lookups.load(Relaxed), samples, directories);
    if let Some(file) = &args.plot {
        plot(file, dcache.policy().name(), curve)
            .map_err(|error| format!("cannot plot to {}: {error}", file.display()))?;
    }
    Ok(())
}

fn policy(name: PolicyName) -> Box<dyn NegativePolicy> {
    match name {
        PolicyName::Unbounded => Box::new(Unbounded),
        PolicyName::ThreeInARow => Box::new(ThreeInARow),
        PolicyName::PerDirectory => Box::new(PerDirectory::default()),
        PolicyName::Default => Box::new(Probation::default()),
    }
}

/// Looks up names that do not exist until `stop` is set. Returns the latency of one lookup in
/// `SAMPLE_EVERY`, in ns.
fn flood(
    mount: &Mount,
    seed: u64,
    directories: u64,
    adversary: Adversary,
    stop: &AtomicBool,
    lookups: &AtomicU64,
) -> Vec<u32> {
    // A prime, so that samples do not coincide with work that is done once per power of two.
    const SAMPLE_EVERY: u64 = 61;
    // 4 MiB a thread: later lookups are counted and not timed.
    const SAMPLES_MAX: usize = 1 << 20;
    let touches = if adversary == Adversary::Twice { 2 } else { 1 };
    let mut samples = Vec::with_capacity(SAMPLES_MAX);
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut done = 0;
    let mut path = Vec::with_capacity(64);
    while !stop.load(Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        path.clear();
        io::Write::write_fmt(&mut path, format_args!("/d{}/{random:016x}", random % directories))
            .expect("writing to a vector does not fail");
        for _ in 0..touches {
            done += 1;
            let timed = (done % SAMPLE_EVERY == 0 && samples.len() < SAMPLES_MAX).then(Instant::now);
            let found = mount.lookup(&path).expect("the void does not fail").is_some();
            assert!(!found, "nothing is in the void");
            if let Some(begun) = timed {
                samples.push(u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX));
            }
        }
        if done % 1024 < touches {
            lookups.fetch_add(1024, Relaxed);
        }
    }
    samples
}

/// Waits for the end, and records the number of negatives meanwhile.
fn watch(args: &Args, dcache: &Dcache, begun: Instant, curve: &mut Vec<(f64, f64)>) {
    const TICK: Duration = Duration::from_millis(100);
    let bar = progress::bar(args.seconds, args.json);
    while begun.elapsed().as_secs() < args.seconds {
        std::thread::sleep(TICK);
        let negatives = dcache.statistics().nr_negative;
        curve.push((begun.elapsed().as_secs_f64(), negatives as f64));
        bar.set_position(begun.elapsed().as_secs());
        bar.set_message(format!("{negatives} negatives"));
        if negatives >= args.negatives_max {
            break;
        }
    }
    bar.finish_and_clear();
}

/// Prints the results, as text or as JSON.
fn report(args: &Args, dcache: &Dcache, seconds: f64, lookups: u64, mut samples: Vec<u32>, directories: u64) {
    let state = dcache.statistics();
    let buckets = dcache.buckets() as u64;
    let positives = state.nr_dentry - state.nr_negative;
    let inputs = BoundInputs { buckets, positives, directories };
    let bound = dcache.policy().bound(inputs);
    samples.sort_unstable();
    let percentile = |p: usize| samples.get(samples.len() * p / 100).copied().unwrap_or(0);
    let per_bucket = state.nr_negative as f64 / buckets as f64;
    let bytes = state.nr_dentry * Dcache::dentry_bytes() as u64;
    if args.json {
        let object = serde_json::json!({
            "policy": dcache.policy().name(),
            "adversary": args.adversary.to_possible_value().map(|value| value.get_name().to_owned()),
            "buckets": buckets,
            "seconds": seconds,
            "lookups": lookups,
            "negatives": state.nr_negative,
            "positives": positives,
            "per_bucket": per_bucket,
            "bound": bound,
            "bytes": bytes,
            "lookup_ns_p50": percentile(50),
            "lookup_ns_p99": percentile(99),
        });
        println!("{object}");
        return;
    }
    println!("policy          {}, {:?}", dcache.policy().name(), args.adversary);
    println!("lookups         {lookups} in {seconds:.1} s, p50 {} ns, p99 {} ns", percentile(50), percentile(99));
    println!("negatives       {} ({per_bucket:.2} a bucket of {buckets}), {} MiB", state.nr_negative, bytes >> 20);
    match bound {
        Some(bound) => println!("bound           {bound}"),
        None => println!("bound           none"),
    }
    println!("dentry-state    {state}");
    println!("chains          {:?}", &dcache.chain_lengths()[..12]);
    println!("the same a bucket at 2^24: {:.1} M negatives; at 2^26: {:.1} M", per_bucket * 16.78, per_bucket * 67.11);
}

/// Draws the number of negatives over time.
fn plot(file: &Path, policy: &str, curve: Vec<(f64, f64)>) -> Result<(), Box<dyn std::error::Error>> {
    Curves {
        title: &format!("Negatives that stay cached in a flood, policy {policy}"),
        x: "seconds",
        y: "negatives",
        decades: false,
        curves: vec![Curve { name: policy.to_owned(), points: curve }],
    }
    .draw(file)
}
