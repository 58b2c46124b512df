//! Three caches of other crates and a lowwater `Cache` under one budget:
//! `cargo run --release -p lowwater-adapters --example adapters`.
//!
//! No cache has a capacity below the budget. Each is filled in turn with more than a third of the
//! budget. Then all four are used alike, and memory moves until each has about a quarter, whichever
//! was filled first; then half of the budget is reclaimed at once.
//!
//! A change must ensure that no cache evicts because of its own capacity, and that all are used
//! alike at the end. `ci/examples.sh` reads `charged` and `budget` of each JSON line.

#![forbid(unsafe_code)]

use std::error::Error;

use clap::Parser;
use lowwater::{ByteSize, Cache, Runtime};
use lowwater_adapters::{adapt, Adapted, Evict, Weighed};

/// Shows how caches of four crates share one budget
#[derive(Debug, Parser)]
struct Args {
    /// The budget, for example 64M
    #[arg(long, default_value_t = ByteSize::mib(64))]
    budget: ByteSize,
    /// Lookups in each cache
    #[arg(long, default_value_t = 1 << 18, value_parser = clap::value_parser!(u64).range(16..))]
    rounds: u64,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

const BLOB_BYTES: usize = 10_000;
/// Keys of each cache.
const KEYS: u64 = 20_000;
/// A capacity for foyer, which requires one, too large to evict anything.
const UNBOUNDED: u64 = 1 << 40;

type Blob = Vec<u8>;

#[derive(Clone)]
struct Bytes;

impl quick_cache::Weighter<u64, Blob> for Bytes {
    fn weight(&self, _: &u64, blob: &Blob) -> u64 {
        blob.len() as u64
    }
}

/// Lookup and insert, which have another name and form in each crate.
trait AnyCache {
    /// Looks a key up, and inserts a value on a miss.
    fn ask(&self, key: u64) -> Result<(), Box<dyn Error>>;
    fn bytes(&self) -> ByteSize;
}

impl AnyCache for Adapted<quick_cache::sync::Cache<u64, Blob, Bytes>> {
    fn ask(&self, key: u64) -> Result<(), Box<dyn Error>> {
        if self.get(&key).is_none() {
            self.update(|cache| cache.insert(key, vec![0; BLOB_BYTES]));
        }
        Ok(())
    }

    fn bytes(&self) -> ByteSize {
        // quick_cache's own `weight` returns a number.
        Evict::weight(&**self)
    }
}

impl AnyCache for Adapted<foyer_memory::Cache<u64, Blob>> {
    fn ask(&self, key: u64) -> Result<(), Box<dyn Error>> {
        if self.get(&key).is_none() {
            self.update(|cache| drop(cache.insert(key, vec![0; BLOB_BYTES])));
        }
        Ok(())
    }

    fn bytes(&self) -> ByteSize {
        self.weight()
    }
}

impl AnyCache for Adapted<Weighed<lru::LruCache<u64, Blob>>> {
    fn ask(&self, key: u64) -> Result<(), Box<dyn Error>> {
        if self.with(|lru| lru.get(&key).is_none()) {
            self.update(|cache| cache.insert(key, vec![0; BLOB_BYTES]));
        }
        Ok(())
    }

    fn bytes(&self) -> ByteSize {
        self.weight()
    }
}

impl AnyCache for Cache<u64, Blob> {
    fn ask(&self, key: u64) -> Result<(), Box<dyn Error>> {
        if self.pin().get(&key).is_none() {
            self.insert(key, vec![0; BLOB_BYTES])?;
        }
        Ok(())
    }

    fn bytes(&self) -> ByteSize {
        self.stats().bytes
    }
}

/// The next key: lower keys more often, approximately Zipf's law.
fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let fraction = (*random >> 33) as f64 / (1_u64 << 31) as f64;
    (KEYS as f64).powf(fraction) as u64
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let runtime = Runtime::builder().budget(args.budget).build()?;
    // A capacity far above the budget would cost quick_cache its ghosts.
    let quick = quick_cache::sync::Cache::with_weighter(
        (args.budget.get() / BLOB_BYTES as u64).try_into()?,
        args.budget.get(),
        Bytes,
    );
    let foyer = foyer_memory::CacheBuilder::new(UNBOUNDED as usize)
        .with_shards(4)
        .with_weighter(|_: &u64, blob: &Blob| blob.len())
        .build();
    let lru = Weighed::new(lru::LruCache::unbounded(), |_, blob: &Blob| blob.len());
    let ours = Cache::<u64, Blob>::builder(&runtime).name("lowwater").weigher(|_, blob| blob.len()).build()?;
    let caches: [(&str, Box<dyn AnyCache>); 4] = [
        ("quick_cache", Box::new(adapt(&runtime, "quick_cache", quick)?)),
        ("foyer", Box::new(adapt(&runtime, "foyer", foyer)?)),
        ("lru", Box::new(adapt(&runtime, "lru", lru)?)),
        ("lowwater", Box::new(ours)),
    ];

    if !args.json {
        let names: String = caches.iter().map(|(name, _)| format!(" {name:>12}")).collect();
        println!("{:<28}{names} {:>12} {:>12}", "bytes", "charged", "budget");
    }
    let row = |what: &str| {
        let bytes = caches.each_ref().map(|(name, cache)| (*name, cache.bytes()));
        let usage = runtime.root().usage();
        if args.json {
            let fields: String = bytes.iter().map(|(name, bytes)| format!("\"{name}\":{bytes},")).collect();
            println!("{{\"after\":\"{what}\",{fields}\"charged\":{usage},\"budget\":{}}}", args.budget);
        } else {
            let bytes: String = bytes.iter().map(|(_, bytes)| format!(" {:>12}", format!("{bytes:#}"))).collect();
            println!("{what:<28}{bytes} {:>12} {:>12}", format!("{usage:#}"), format!("{:#}", args.budget));
        }
    };
    // Four times this is more than the budget.
    let blobs = args.budget.get() * 3 / 8 / BLOB_BYTES as u64;
    for (name, cache) in &caches {
        (0..blobs).try_for_each(|key| cache.ask(key))?;
        row(&format!("{name} was filled"));
    }
    let mut random = 1;
    for round in 1..=args.rounds {
        for (_, cache) in &caches {
            cache.ask(next(&mut random))?;
        }
        if round.is_power_of_two() && round >= args.rounds / 16 || round == args.rounds {
            row(&format!("{round} lookups of each"));
        }
    }
    runtime.reclaim(runtime.root(), args.budget / 2);
    row("half was reclaimed");
    Ok(())
}
