//! What a cache does in a control group that is too small for it: run it in one, and it says what came of it in figures.
//!
//! ```text
//!   fill     --megabytes of values of 100 B to 32 kB, under a budget of a gigabyte that the group does not have
//!   squeeze  the program itself takes --squeeze MiB, a MiB at a time, while values go on coming: the cache has to give way
//!   hold     both go on for a while
//!   after    the program gives its memory back: so does the runtime
//! ```
//!
//! `ci/vm.sh` runs it in a virtual machine with `memory.max=96M`, and checks the `name value` lines that it prints. With `--plain` the
//! runtime is not told to look at the group: then the kernel ends the program, which shows that the limit is real. With `--psi-only` it
//! hears the kernel's stall information and nothing else.
//!
//! Try it by hand: `systemd-run --user --scope -p MemoryMax=96M cargo run --release --example pressure_probe`

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
/// Values between two looks at the clock and at the ceiling.
const BATCH: u64 = 64;
/// The program's own memory grows by a MiB this often.
const SQUEEZE_EVERY: Duration = Duration::from_millis(25);
/// How long the memory may take to come back.
const AFTER_MAX: Duration = Duration::from_secs(30);

/// Fills a cache in a control group that is too small for it
#[derive(Debug, Parser)]
struct Args {
    /// Megabytes of values to put through the cache
    #[arg(long, default_value_t = 1000)]
    megabytes: u64,
    /// MiB that the program takes for itself afterwards
    #[arg(long, default_value_t = 40)]
    squeeze: u64,
    /// Seconds for which it holds them
    #[arg(long, default_value_t = 3)]
    hold_seconds: u64,
    /// KiB between the budget and the group's limit; what the runtime thinks right by default
    #[arg(long)]
    margin: Option<u64>,
    /// Do not look at the control group
    #[arg(long)]
    plain: bool,
    /// Do not look at the control group's limit and usage; hear only when tasks wait
    #[arg(long)]
    psi_only: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let mut builder = Runtime::builder().budget(ByteSize::gib(1));
    if !args.plain {
        let pressure = PressureConfig {
            quiet: Duration::from_secs(1),
            step_time: Duration::from_millis(100),
            ..PressureConfig::default()
        };
        builder = builder.pressure(pressure).cgroup_limit(!args.psi_only).systemd(true);
        if let Some(margin) = args.margin {
            builder = builder.cgroup(CgroupLimit::own().margin(ByteSize::kib(margin)));
        }
    }
    let trigger = Trigger::some(Duration::from_millis(100), Duration::from_secs(2))?;
    let watching = if args.plain { builder.clone() } else { builder.clone().watch_psi(Psi::own_cgroup(trigger)) };
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
            // Not zeroes: those would be pages that are not there yet.
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
        // Where nothing but the cache fills the group, and only stalls tell, what is given back brings them back: no end to wait for.
        while (pressure.stats().level > Level::Calm || pressure.stats().ceiling < pressure.budget())
            && !args.psi_only
            && began.elapsed() < AFTER_MAX
        {
            load.batch();
        }
        load.report("after");
        let stats = pressure.stats();
        println!("given_back {}", u8::from(stats.ceiling == stats.budget));
        println!("given_back_seconds {:.1}", began.elapsed().as_secs_f64());
        println!("lowered {}", stats.lowered);
        println!("trims {}", stats.trims);
        println!("trim_longest_us {}", stats.trim_longest.as_micros());
        let cgroup = stats.cgroup.as_ref();
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

/// Values that go into the cache and come out of it again.
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
    lost: u64,
    usage_max: ByteSize,
    longest: Duration,
}

impl Load {
    fn new(runtime: &Runtime) -> Result<Self, Box<dyn Error>> {
        let cache =
            Cache::builder(runtime).weigher(|_, value: &Arc<[u8]>| ByteSize::new(value.len() as u64)).build()?;
        Ok(Self { runtime: runtime.clone(), cache, next: 0, ceiling_min: ByteSize::MAX, counts: Counts::default() })
    }

    /// Batches until so many bytes of values were written.
    fn pour(&mut self, bytes: u64) {
        let mut poured = 0;
        while poured < bytes {
            poured += self.batch();
        }
    }

    /// Writes some values, and reads each back at once; says how many bytes it were.
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

    /// Prints what was counted since the last time.
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

/// Follows from the number alone, so that two runs do the same.
fn len_of(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    VALUE_BYTES.0 + mixed % (VALUE_BYTES.1 - VALUE_BYTES.0)
}

/// Prints what the group uses.
fn group(phase: &str) -> Result<(), Box<dyn Error>> {
    if let Some(usage) = Cgroup::own()?.map(|cgroup| cgroup.usage()).transpose()?.flatten() {
        println!("{phase}_group_bytes {usage}");
    }
    Ok(())
}
