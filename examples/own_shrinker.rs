//! A pool of buffers as a shrinker: `cargo run --example own_shrinker`.
//!
//! A small program with a cache of its own in a runtime. The pool notifies the registry when it
//! holds buffers; docs/GUIDE.md has a pool that does not, and explains both.
//!
//! A change must keep it in step with that page, and the names in its JSON, which `ci/examples.sh`
//! reads.
use std::{error::Error, sync::Arc, sync::Mutex};

use clap::Parser;

use lowwater::{ByteSize, Count, Memcg, NodeId, Occupancy, Runtime, Scan, ShrinkControl, Shrinker};

/// Shows a pool of buffers that gives memory back
#[derive(Debug, Parser)]
struct Args {
    /// Buffers of 64 KiB in the burst
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(..=100_000))]
    burst: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const BUFFER: ByteSize = ByteSize::kib(64);

/// Unused buffers, the oldest first.
struct Pool {
    idle: Mutex<Vec<Vec<u8>>>,
    group: Memcg,
    occupancy: Arc<dyn Occupancy>,
}

impl Pool {
    fn take(&self, runtime: &Runtime) -> Result<Vec<u8>, Box<dyn Error>> {
        if let Some(buffer) = self.idle.lock().unwrap().pop() {
            return Ok(buffer);
        }
        runtime.charge(&self.group, BUFFER)?;
        Ok(vec![0; BUFFER.get() as usize])
    }

    fn put(&self, buffer: Vec<u8>) {
        self.idle.lock().unwrap().push(buffer);
        self.occupancy.occupied(&self.group, NodeId::ZERO);
    }
}

impl Shrinker for Pool {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        match self.idle.lock().unwrap().len() {
            0 => Count::Empty,
            n => Count::Objects(n as u64),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut idle = self.idle.lock().unwrap();
        let n = idle.len().min(sc.nr_to_scan() as usize);
        let old: Vec<_> = idle.drain(..n).collect();
        drop(idle);
        self.group.uncharge(ByteSize::new(BUFFER.get() * n as u64));
        sc.set_nr_scanned(n as u64);
        Scan::Freed(old.len() as u64)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    // Room for the burst, and a quarter more.
    let runtime = Runtime::builder().budget(BUFFER * args.burst.max(1) / 4 * 5).build()?;
    let group = runtime.group("buffers")?;
    let prepared = runtime.registry().builder("buffers").numa_aware(false).alloc()?;
    let pool = Arc::new(Pool { idle: Mutex::default(), group, occupancy: prepared.occupancy() });
    let _registration = prepared.register(pool.clone());
    let burst = (0..args.burst).map(|_| pool.take(&runtime)).collect::<Result<Vec<_>, _>>()?;
    burst.into_iter().for_each(|buffer| pool.put(buffer));
    let kept = pool.group.usage();
    let wanted = BUFFER * args.burst / 2;
    let back = runtime.reclaim(runtime.root(), wanted);
    if args.json {
        println!("{{\"kept_bytes\":{kept},\"wanted_bytes\":{wanted},\"reclaimed_bytes\":{back}}}");
    } else {
        println!("after a burst of {} buffers the pool keeps {kept:#}", args.burst);
        println!("{wanted:#} are wanted elsewhere: {back:#} come back");
    }
    Ok(())
}
