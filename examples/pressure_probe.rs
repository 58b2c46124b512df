//! The behavior of a cache in a control group that is too small for it. Run it in such a group; it
//! prints figures.
//!
//! ```text
//!   fill     inserts --megabytes of values of 100 B to 32 kB; the budget is 1 GiB, more than the
//!            group's limit
//!   squeeze  the program allocates --squeeze MiB itself, a MiB at a time, while inserts continue:
//!            the cache must shrink
//!   hold     the program keeps that memory for --hold-seconds, while inserts continue
//!   after    the program frees its memory, and inserts continue until the ceiling is back at the
//!            budget
//! ```
//!
//! `ci/vm.sh` runs it in a virtual machine with `memory.max=96M`, and checks the printed
//! `name value` lines. With `--plain` the runtime does not watch the group: then the kernel kills
//! the program, which shows that the limit is real. With `--psi-only` the runtime does not read the
//! group's limit and usage, and reacts only to pressure stall information (PSI) and to the service
//! manager's pressure source, if the process has one. With `--auto` the runtime is given no budget
//! and watches the sources that exist.
//!
//! By hand:
//! `systemd-run --user --scope -p MemoryMax=96M cargo run --release --example pressure_probe`

#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use lowwater::pressure::cgroup::Cgroup;
use lowwater::pressure::{CgroupLimit, Level, PressureConfig, Psi, Trigger};
use lowwater::{ByteSize, Cache, Runtime};

/// The smallest and the largest value.
const VALUE_BYTES: (u64, u64) = (100, 32_000);
/// Values per batch. The ceiling, the usage and the phase's end are checked once per batch.
const BATCH: u64 = 64;
/// The interval between two allocations of a MiB by the program itself.
const SQUEEZE_EVERY: Duration = Duration::from_millis(25);
/// The longest that the phase `after` waits for the ceiling to return to the budget: on a busy
/// machine pressure may come back several times.
const AFTER_MAX: Duration = Duration::from_secs(100);
/// The rest after each batch of that phase; doubled up to the second each time that the ceiling
/// falls again.
const AFTER_REST: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(320)];

/// Fills a cache in a control group that is too small for it
#[derive(Debug, Parser)]
struct Args {
    /// Megabytes of values to put through the cache
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    megabytes: u64,
    /// MiB that the program takes for itself afterwards
    #[arg(long, default_value_t = 40)]
    squeeze: u64,
    /// Seconds for which it holds them
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(..=86_400))]
    hold_seconds: u64,
    /// KiB between the budget and the group's limit; the runtime's default if absent
    #[arg(long)]
    margin: Option<u64>,
    /// Do not watch the control group
    #[arg(long)]
    plain: bool,
    /// Take the control group's limit as the budget, and watch the sources that exist
    #[arg(long, conflicts_with_all = ["plain", "psi_only"])]
    auto: bool,
    /// Do not watch the control group's limit and usage; react only to stalls
    #[arg(long)]
    psi_only: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let mut builder =
        if args.auto { Runtime::builder().auto_pressure(true) } else { Runtime::builder().budget(ByteSize::gib(1)) };
    if !args.plain {
        // Short, so that the ceiling rises within seconds in the phase `after`.
        let pressure = PressureConfig {
            quiet: Duration::from_secs(1),
            step_time: Duration::from_millis(100),
            ..PressureConfig::default()
        };
        builder = builder.pressure(pressure);
        if !args.auto {
            builder = builder.cgroup_limit(!args.psi_only).systemd(true);
        }
        if let Some(margin) = args.margin {
            builder = builder.cgroup(CgroupLimit::own().margin(ByteSize::kib(margin)));
        }
    }
    // Without rights, only windows of a multiple of 2 s are accepted.
    let trigger = Trigger::some(Duration::from_millis(100), Duration::from_secs(2))?;
    let has_no_trigger = args.plain || args.auto;
    let watching = if has_no_trigger { builder.clone() } else { builder.clone().watch_psi(Psi::own_cgroup(trigger)) };
    let runtime = watching.build().or_else(|error| {
        eprintln!("{error}; going on without");
        builder.build()
    })?;

    let mut load = Load::new(&runtime)?;
    println!("nodes {}", runtime.topology().nodes());
    let ceiling_before = runtime.root().max();
    println!("budget_bytes {ceiling_before}");

    let began = Instant::now();
    load.pour(args.megabytes * 1_000_000);
    println!("fill_seconds {:.2}", began.elapsed().as_secs_f64());
    load.report("fill");
    group("fill")?;

    let mut own: Vec<Vec<u8>> = Vec::new();
    let began = Instant::now();
    while (own.len() as u64) < args.squeeze {
        if began.elapsed() >= SQUEEZE_EVERY * own.len() as u32 {
            // Not zeroes: the pages of a zeroed allocation are not charged before the first write.
            own.push(vec![own.len() as u8 | 1; 1 << 20]);
        }
        load.batch();
    }
    load.report("squeeze");
    let until = Instant::now() + Duration::from_secs(args.hold_seconds);
    while Instant::now() < until {
        load.batch();
    }
    load.report("hold");
    group("hold")?;
    println!("ceiling_before_bytes {ceiling_before}");
    println!("ceiling_min_bytes {}", load.ceiling_min);

    drop(own);
    if let Some(pressure) = runtime.pressure() {
        let began = Instant::now();
        // With PSI only, the runtime does not know the group's limit: each raised ceiling lets the
        // cache fill the group again, which stalls again. So the ceiling never returns to the
        // budget, and this phase does not wait for it.
        let mut stats = pressure.stats();
        let [mut rest, rest_max] = AFTER_REST;
        while (stats.level > Level::Calm || stats.ceiling < stats.budget)
            && !args.psi_only
            && began.elapsed() < AFTER_MAX
        {
            load.batch();
            // With a rest: at full speed on a slow machine, evicted values that have yet to be
            // freed keep the group near its limit, so that each raised ceiling is pressure again.
            std::thread::sleep(rest);
            let lowered = stats.lowered;
            // One reading decides and is reported: the next one may be lower again.
            stats = pressure.stats();
            if stats.lowered > lowered {
                rest = rest_max.min(rest * 2);
            }
        }
        load.report("after");
        println!("given_back {}", u8::from(stats.ceiling == stats.budget));
        println!("given_back_seconds {:.1}", began.elapsed().as_secs_f64());
        println!("lowered {}", stats.lowered);
        println!("trims {}", stats.trims);
        println!("trim_longest_us {}", stats.trim_longest.as_micros());
        let cgroup = stats.cgroup.as_ref();
        println!("missing {}", stats.missing.len());
        println!("limit_bytes {}", cgroup.map_or(ByteSize::MAX, |cgroup| cgroup.limit));
        println!("events_usage {}", cgroup.map_or(0, |cgroup| cgroup.events));
        for source in &stats.sources {
            let name = source.file.rsplit('/').next().unwrap_or("").replace('.', "_");
            println!("events_{name} {}", source.events);
        }
        let errors: Vec<_> = stats.sources.iter().filter_map(|source| source.error.as_deref()).collect();
        println!("errors {}", errors.len() + usize::from(cgroup.is_some_and(|cgroup| cgroup.error.is_some())));
    }
    println!("finished 1");
    Ok(())
}

/// Values that are inserted into the cache and read again.
struct Load {
    runtime: Runtime,
    cache: Cache<u64, Arc<[u8]>>,
    next: u64,
    ceiling_min: ByteSize,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    written: u64,
    refused: u64,
    /// Values that were inserted, and evicted before they were read back.
    lost: u64,
    usage_max: ByteSize,
    /// The duration of the longest insert.
    longest: Duration,
}

impl Load {
    fn new(runtime: &Runtime) -> Result<Self, Box<dyn Error>> {
        let cache =
            Cache::builder(runtime).weigher(|_, value: &Arc<[u8]>| ByteSize::new(value.len() as u64)).build()?;
        Ok(Self { runtime: runtime.clone(), cache, next: 0, ceiling_min: ByteSize::MAX, counts: Counts::default() })
    }

    /// Inserts batches until this many bytes of values were written.
    fn pour(&mut self, bytes: u64) {
        let mut poured = 0;
        while poured < bytes {
            poured += self.batch();
        }
    }

    /// Inserts some values, and reads each back at once; returns their bytes.
    fn batch(&mut self) -> u64 {
        let mut bytes = 0;
        for _ in 0..BATCH {
            self.next += 1;
            let len = len_of(self.next);
            bytes += len;
            let began = Instant::now();
            let inserted = self.cache.insert(self.next, std::iter::repeat_n(self.next as u8, len as usize).collect());
            self.counts.longest = self.counts.longest.max(began.elapsed());
            self.counts.written += 1;
            if inserted.is_err() {
                self.counts.refused += 1;
                continue;
            }
            match self.cache.get(&self.next) {
                Some(value) => assert!(value.len() as u64 == len && value.last() == Some(&(self.next as u8))),
                None => self.counts.lost += 1,
            }
        }
        self.ceiling_min = self.ceiling_min.min(self.runtime.root().max());
        self.counts.usage_max = self.counts.usage_max.max(self.runtime.root().usage());
        bytes
    }

    /// Prints the counts since the last call.
    fn report(&mut self, phase: &str) {
        let counts = std::mem::take(&mut self.counts);
        println!("{phase}_values {}", counts.written);
        println!("{phase}_refused {}", counts.refused);
        println!("{phase}_lost {}", counts.lost);
        println!("{phase}_charged_max_bytes {}", counts.usage_max);
        println!("{phase}_longest_insert_us {}", counts.longest.as_micros());
        println!("{phase}_entries {}", self.cache.len());
    }
}

/// Returns the length of a value: a function of the number alone, so that all runs are equal.
fn len_of(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    VALUE_BYTES.0 + mixed % (VALUE_BYTES.1 - VALUE_BYTES.0)
}

/// Prints the group's usage.
fn group(phase: &str) -> Result<(), Box<dyn Error>> {
    if let Some(usage) = Cgroup::own()?.map(|cgroup| cgroup.usage()).transpose()?.flatten() {
        println!("{phase}_group_bytes {usage}");
    }
    Ok(())
}
