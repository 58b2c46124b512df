//! Compares the policies that bound negative dentries: replays recorded path lookups through each
//! policy, with several sizes of the dcache's hash table, and prints the hits and the number of
//! negatives.
//!
//! ```text
//! cargo run --release --example replay
//! cargo run --release --example replay -- --policy default --buckets 65536 --json
//! cargo run --release --example replay -- --flood 1   # a random missing name after each operation
//! ```
//!
//! The default recording, `benches/data/linux-build.rec.xz`, is of a kernel build; its origin is
//! described beside it.
//!
//! | column | contents |
//! |---|---|
//! | `buckets` | hash buckets of the dcache; only the bound of `three-in-a-row` depends on them |
//! | `missing` | lookups that found nothing, or failed |
//! | `hits` | those of `missing` answered without the backend, mostly by a cached negative |
//! | `kept` | `hits` as a share of the hits of the policy `unbounded` |
//! | `negatives` | negatives cached at the end |
//! | `most` | the most negatives cached at one time |
//! | `share` | `most` as a share of that of the policy `unbounded` |
//!
//! A change must ensure that each policy gets an empty cache and the same recording.

#[path = "progress/mod.rs"]
mod progress;

use clap::Parser;
use lowwater::{MemcgTree, Registry};
use lowwater_dcache_model::negative::{NegativePolicy, PerDirectory, Probation, ThreeInARow, Unbounded};
use lowwater_dcache_model::replay::{backend_for, parse, run, RecordedOp, ReplayCounts};
use lowwater_dcache_model::Dcache;
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Replays recorded path lookups through a dentry cache.
#[derive(Parser)]
struct Args {
    /// A recording; `.xz` is unpacked.
    // By an absolute path, so that the program runs in any directory.
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/data/linux-build.rec.xz"))]
    recording: PathBuf,
    /// One policy only.
    #[arg(long, value_parser = ["unbounded", "three-in-a-row", "per-directory", "default"])]
    policy: Option<String>,
    /// One number of buckets only.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 34))]
    buckets: Option<u64>,
    /// Random missing names to look up after each operation.
    #[arg(long, default_value_t = 0)]
    flood: u32,
    /// Fixed lengths of the default policy's probation and protected lists, independent of the
    /// number of positives: `16,144`.
    #[arg(long, value_name = "PROBATION,PROTECTED", value_parser = parse_floors)]
    floors: Option<(u64, u64)>,
    /// One JSON object per line instead of text.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match table(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error}", args.recording.display());
            ExitCode::FAILURE
        }
    }
}

/// Replays the recording with each policy and number of buckets, and prints a row for each.
fn table(args: &Args) -> Result<(), Box<dyn Error>> {
    let ops = with_flood(parse(&read(&args.recording)?)?, args.flood);
    let sizes = args.buckets.map_or_else(|| (16..=24).step_by(2).map(|bits| 1 << bits).collect(), |n| vec![n]);
    // A replay for each policy, and one of the policy that all are compared with.
    let bar = progress::bar((sizes.len() * (1 + policies(args.floors).len())) as u64, args.json);
    if !args.json {
        println!(
            "{:>10} {:>15} {:>9} {:>9} {:>8} {:>10} {:>10} {:>9}",
            "buckets", "policy", "missing", "hits", "kept", "negatives", "most", "share"
        );
    }
    for buckets in sizes {
        let buckets = usize::try_from(buckets)?;
        bar.set_message(format!("{buckets} buckets"));
        let unbounded = replay(&ops, Box::new(Unbounded), buckets)?;
        bar.inc(1);
        for policy in policies(args.floors) {
            let name = policy.name();
            bar.inc(1);
            if args.policy.as_deref().is_some_and(|wanted| wanted != name) {
                continue;
            }
            let tally = replay(&ops, policy, buckets)?;
            // The flood does not change the ratio's meaning: each of its names is looked up once,
            // so all hits are on names of the recording.
            let kept = tally.negative_hits as f64 / unbounded.negative_hits.max(1) as f64;
            let share = tally.negatives_max as f64 / unbounded.negatives_max.max(1) as f64;
            if args.json {
                let object = serde_json::json!({
                    "policy": name,
                    "buckets": buckets,
                    "lookups": tally.lookups,
                    "missing": tally.missing,
                    "negative_hits": tally.negative_hits,
                    "negative_hits_kept": kept,
                    "negatives": tally.negatives,
                    "negatives_max": tally.negatives_max,
                    "negatives_share": share,
                    "positives": tally.positives,
                });
                println!("{object}");
            } else {
                // Above the bar.
                bar.suspend(|| {
                    println!(
                        "{buckets:>10} {name:>15} {:>9} {:>9} {:>7.2}% {:>10} {:>10} {:>8.1}%",
                        tally.missing,
                        tally.negative_hits,
                        kept * 100.0,
                        tally.negatives,
                        tally.negatives_max,
                        share * 100.0
                    );
                });
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn policies(floors: Option<(u64, u64)>) -> Vec<Box<dyn NegativePolicy>> {
    let fixed = |(probation_floor, protected_floor)| Probation {
        probation_floor,
        protected_floor,
        positives_per_probation: u64::MAX,
        positives_per_protected: u64::MAX,
        ..Probation::default()
    };
    let default = floors.map_or_else(Probation::default, fixed);
    vec![Box::new(Unbounded), Box::new(ThreeInARow), Box::new(PerDirectory::default()), Box::new(default)]
}

fn parse_floors(text: &str) -> Result<(u64, u64), String> {
    let numbers = text.split_once(',').and_then(|(p, k)| Some((p.parse().ok()?, k.parse().ok()?)));
    numbers.ok_or_else(|| format!("`{text}` is not two numbers with a comma between: 16,144"))
}

fn replay(ops: &[RecordedOp], policy: Box<dyn NegativePolicy>, buckets: usize) -> Result<ReplayCounts, Box<dyn Error>> {
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, 1);
    let dcache = Dcache::builder().buckets(buckets).boxed_policy(policy).build();
    let backend = Arc::new(backend_for(ops)?);
    let mount = dcache.mount(backend.clone(), &registry, tree.root())?;
    Ok(run(ops, &mount, &backend)?)
}

/// Inserts lookups of `each` random missing names after each operation, equal in all runs.
fn with_flood(ops: Vec<RecordedOp>, each: u32) -> Vec<RecordedOp> {
    let mut random = 1_u64;
    let mut mixed = Vec::with_capacity(ops.len() * (1 + each as usize));
    for op in ops {
        mixed.push(op);
        for _ in 0..each {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            mixed.push(RecordedOp::Lookup(format!("/tmp/{random:016x}").into_bytes().into(), false));
        }
    }
    mixed
}

/// Reads the text of a recording.
fn read(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut text = Vec::new();
    if path.extension().is_some_and(|extension| extension == "xz") {
        lzma_rs::xz_decompress(&mut file, &mut text)?;
    } else {
        file.read_to_end(&mut text)?;
    }
    Ok(text)
}
