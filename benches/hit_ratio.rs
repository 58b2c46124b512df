//! The hit ratio of the keyed cache on recorded accesses, for each eviction order.
//!
//! `cargo bench --bench hit_ratio -- FOLDER`, or with the folder in `LOWWATER_TRACES`: files
//! `*.u64` of consecutive little-endian `u64` keys. Each is replayed against caches that hold 0.1,
//! 1, 5 and 10 % of its distinct keys: a get, and an insert on a miss.
//!
//! The cache is sized in bytes and evicts in batches, so the number of entries that it holds varies
//! a little; the printed number is the one that its budget is for. Requests come from one thread,
//! and the reclaimer does not start below the limit, so that it does not reduce the capacity.
//!
//! These ratios decide which order is the default. A change here changes figures that are recorded
//! in docs/MEASURED.md: measure again. `ci/measured/cache.py` reads the printed table.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use lowwater::cache::Eviction;
use lowwater::{ByteSize, Cache, Runtime, Watermarks};

const SIZES_PERCENT: [f64; 4] = [0.1, 1.0, 5.0, 10.0];
const ORDERS: [Eviction; 5] =
    [Eviction::Lru, Eviction::SecondChance, Eviction::Sieve, Eviction::S3Fifo, Eviction::Adaptive];

fn main() {
    // cargo passes `--bench`; the first argument that is not a flag is the folder.
    let folder = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).map(PathBuf::from);
    let Some(folder) = folder.or_else(|| std::env::var_os("LOWWATER_TRACES").map(PathBuf::from)) else {
        println!("no traces: give their folder as an argument, or in LOWWATER_TRACES");
        return;
    };
    let traces = match traces_in(&folder) {
        Ok(traces) if !traces.is_empty() => traces,
        Ok(_) => return println!("no traces: {} has no file *.u64", folder.display()),
        Err(why) => return println!("no traces: {}: {why}", folder.display()),
    };

    println!("{:20} {:>6} {:>9}{}", "trace", "size %", "entries", cells(ORDERS.map(|order| format!("{order:?}"))));
    let mut sums = [0.0; ORDERS.len()];
    for trace in &traces {
        let keys = match keys_of(trace) {
            Ok(keys) => keys,
            Err(why) => return println!("{}: {why}", trace.display()),
        };
        let distinct = keys.iter().collect::<HashSet<_>>().len();
        for percent in SIZES_PERCENT {
            let entries = ((distinct as f64 * percent / 100.0) as u64).max(2);
            let ratios = ORDERS.map(|order| hit_percent(&keys, entries, order));
            let name = trace.file_stem().unwrap_or_default().to_string_lossy();
            println!("{name:20} {percent:>6} {entries:>9}{}", cells(ratios.map(|ratio| format!("{ratio:.2}"))));
            sums.iter_mut().zip(ratios).for_each(|(sum, ratio)| *sum += ratio);
        }
    }
    let runs = (traces.len() * SIZES_PERCENT.len()) as f64;
    println!("{:20} {:>6} {:>9}{}", "mean", "", "", cells(sums.map(|sum| format!("{:.2}", sum / runs))));
}

fn cells(texts: [String; ORDERS.len()]) -> String {
    texts.iter().map(|text| format!(" {text:>12}")).collect()
}

fn traces_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut traces = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "u64") {
            traces.push(path);
        }
    }
    traces.sort();
    Ok(traces)
}

fn keys_of(trace: &Path) -> std::io::Result<Vec<u64>> {
    let bytes = std::fs::read(trace)?;
    if bytes.len() % 8 != 0 {
        return Err(std::io::Error::other(format!("{} bytes are not a whole number of 8-byte keys", bytes.len())));
    }
    Ok(bytes.chunks_exact(8).map(|key| u64::from_le_bytes(key.try_into().expect("a chunk has 8 bytes"))).collect())
}

fn hit_percent(keys: &[u64], entries: u64, order: Eviction) -> f64 {
    let budget = ByteSize::new(entries * Cache::<u64, u64>::ENTRY_BYTES.get());
    let at_the_limit = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };
    let runtime = Runtime::builder().budget(budget).watermarks(at_the_limit).build().expect("a budget and a thread");
    let cache = Cache::<u64, u64>::builder(&runtime)
        .eviction(order)
        .weigher(|_, _| ByteSize::ZERO)
        .build()
        .expect("a shrinker id is free");
    for key in keys {
        if cache.get(key).is_none() {
            // An insert that is refused for lack of room counts as the miss that it was.
            let _ = cache.insert(*key, *key);
        }
    }
    100.0 * cache.stats().hits as f64 / keys.len() as f64
}
