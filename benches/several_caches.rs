//! Several caches under one budget, each with a recorded trace of its own: how far their total hits
//! are from the best static split of the budget, and from one cache for all.
//!
//! `cargo bench --bench several_caches -- FOLDER [pairs|quadruples] [sizes] [costs] [order=NAME]
//! [every=N] [only=TEXT] [verbose]`, or with the folder in `LOWWATER_TRACES`: files `*.u64` of
//! little-endian `u64` keys, of which the first 300,000 requests of each are used. Each mix runs
//! with equal request rates and with every other trace ten times as fast or as slow, in a budget of
//! 1, 5 and 10 % of the distinct bytes.
//!
//! | | |
//! |---|---|
//! | one budget | a cache for each trace, in one runtime |
//! | best static | a runtime for each trace; of all splits in twentieths of the budget, the one with the lowest cost in hindsight |
//! | shared | one cache for all, whose keys include the trace |
//!
//! With `sizes` every other trace has entries ten times as large. With `costs` its misses cost
//! twenty times as much, and miss costs are compared. `order` is `adaptive` (the default),
//! `s3fifo`, `lru`, `sieve` or `clock`; `every=N` runs every Nth set of traces, and `only=TEXT` the
//! mixes with TEXT in their names. Requests of a mix come from one thread, and the reclaimer does
//! not start below the limit, so that it does not reduce the capacity.
//!
//! A change must ensure that all three get the same requests. `ci/measured/cache.py` reads the
//! lines that `verbose` prints, and repeats [`LOOP`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lowwater::cache::Eviction;
use lowwater::{topology, ByteSize, Cache, Runtime, Watermarks};

/// Bounds the time of a run: with a third of all pairs, it still takes hours.
const REQUESTS_MAX: usize = 300_000;
const SIZES_PERCENT: [u64; 3] = [1, 5, 10];
const PARTS: u64 = 20;
/// The smallest budget, in entries: eight for each of its [`PARTS`].
const ENTRIES_MIN: u64 = 160;
/// A trace that just fits a small budget, and so is hit either always or never; the worst
/// difference is printed without it as well.
const LOOP: &str = "lirs-loop";

/// The command line's choices.
#[derive(Clone, Copy)]
struct Choices {
    quadruples: bool,
    sizes: bool,
    costs: bool,
    order: Eviction,
    every: usize,
    verbose: bool,
}

/// A trace, with its keys renumbered densely.
struct Trace {
    name: String,
    keys: Vec<u64>,
    distinct: u64,
}

/// Traces that share a budget.
struct Mix {
    name: String,
    /// (trace, key)
    requests: Vec<(usize, u64)>,
    sizes: Vec<u64>,
    costs: Vec<u64>,
    /// In entries of the smallest size.
    budget: u64,
}

/// The results of a mix.
struct Outcome {
    name: String,
    requests: u64,
    one_budget: Tally,
    best_static: Tally,
    shared: Tally,
}

/// Hits, and the cost of the misses.
#[derive(Clone, Copy, Default)]
struct Tally {
    hits: u64,
    cost: u64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let has = |word: &str| words.iter().any(|arg| arg == word);
    let value = |name: &str| words.iter().find_map(|arg| arg.strip_prefix(name));
    let order = match value("order=").unwrap_or("adaptive") {
        "s3fifo" => Eviction::S3Fifo,
        "lru" => Eviction::Lru,
        "sieve" => Eviction::Sieve,
        "clock" => Eviction::SecondChance,
        _ => Eviction::Adaptive,
    };
    let every = value("every=").and_then(|n| n.parse().ok()).unwrap_or(1);
    let choices = Choices {
        quadruples: has("quadruples"),
        sizes: has("sizes"),
        costs: has("costs"),
        order,
        every,
        verbose: has("verbose"),
    };
    let folder = words.iter().map(PathBuf::from).find(|path| path.is_dir());
    let Some(folder) = folder.or_else(|| std::env::var_os("LOWWATER_TRACES").map(PathBuf::from)) else {
        println!("no traces: give their folder as an argument, or in LOWWATER_TRACES");
        return;
    };
    let traces = match traces_in(&folder) {
        Ok(traces) if traces.len() >= 4 => traces,
        Ok(_) => return println!("no traces: {} has fewer than four files *.u64", folder.display()),
        Err(why) => return println!("no traces: {}: {why}", folder.display()),
    };
    let mut mixes = mixes_of(&traces, choices);
    if let Some(only) = value("only=") {
        mixes.retain(|mix| mix.name.contains(only));
        if mixes.is_empty() {
            return println!("no mix has a name with {only}");
        }
    }
    println!("{} mixes of {} traces, {order:?}", mixes.len(), traces.len());
    let outcomes = run_all(&mixes, choices);
    if choices.costs {
        print_costs(&outcomes);
    } else {
        print_hits(&outcomes);
    }
}

fn traces_in(folder: &Path) -> std::io::Result<Vec<Trace>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "u64"));
    paths.sort();
    paths.iter().map(|path| trace_of(path)).collect()
}

fn trace_of(path: &Path) -> std::io::Result<Trace> {
    let bytes = std::fs::read(path)?;
    let mut numbers = HashMap::new();
    let keys = bytes.chunks_exact(8).take(REQUESTS_MAX).map(|key| {
        let next = numbers.len() as u64;
        *numbers.entry(key.to_vec()).or_insert(next)
    });
    let keys: Vec<u64> = keys.collect();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Trace { name, distinct: numbers.len() as u64, keys })
}

/// Returns all pairs, or 20 random quadruples, of traces, with each ratio of rates and each size.
fn mixes_of(traces: &[Trace], choices: Choices) -> Vec<Mix> {
    let mut sets = Vec::new();
    if choices.quadruples {
        let mut random = 12_345_u64;
        while sets.len() < 20 {
            let mut set = Vec::new();
            while set.len() < 4 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (random >> 33) as usize % traces.len();
                if !set.contains(&at) {
                    set.push(at);
                }
            }
            sets.push(set);
        }
    } else {
        for a in 0..traces.len() {
            sets.extend((a + 1..traces.len()).map(|b| vec![a, b]));
        }
    }
    let mut mixes = Vec::new();
    for set in sets.iter().step_by(choices.every) {
        for (rates, label) in [([1, 1], "1:1"), ([10, 1], "10:1"), ([1, 10], "1:10")] {
            for percent in SIZES_PERCENT {
                let traces: Vec<_> = set.iter().map(|at| &traces[*at]).collect();
                mixes.push(mix_of(&traces, rates, label, percent, choices));
            }
        }
    }
    mixes
}

/// Builds a mix: merges the requests of the traces in proportion to their rates, until the first
/// trace ends.
fn mix_of(traces: &[&Trace], rates: [usize; 2], label: &str, percent: u64, choices: Choices) -> Mix {
    let other = |on: bool, value: u64| -> Vec<u64> {
        (0..traces.len()).map(|at| if on && at % 2 == 1 { value } else { 1 }).collect()
    };
    let (sizes, costs) = (other(choices.sizes, 10), other(choices.costs, 20));
    let mut requests = Vec::new();
    'all: for round in 0.. {
        for (at, trace) in traces.iter().enumerate() {
            let rate = rates[at % 2];
            let Some(keys) = trace.keys.get(round * rate..(round + 1) * rate) else { break 'all };
            requests.extend(keys.iter().map(|key| (at, *key)));
        }
    }
    // Keys are numbered in the order of their first request, so the largest gives the number of
    // distinct ones that are requested.
    let mut asked: Vec<u64> = vec![0; traces.len()];
    requests.iter().for_each(|(at, key)| asked[*at] = asked[*at].max(key + 1));
    let distinct: u64 =
        asked.iter().zip(traces).zip(&sizes).map(|((asked, trace), size)| asked.min(&trace.distinct) * size).sum();
    let names: Vec<_> = traces.iter().map(|trace| trace.name.as_str()).collect();
    Mix {
        name: format!("{} {label} {percent} %", names.join("+")),
        requests,
        sizes,
        costs,
        budget: (distinct * percent / 100).max(ENTRIES_MIN),
    }
}

fn run_all(mixes: &[Mix], choices: Choices) -> Vec<Outcome> {
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(mix) = mixes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = outcome_of(mix, choices.order);
                    if choices.verbose {
                        print_one(&outcome);
                    }
                    outcomes.lock().expect("no thread panics with the lock held").push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("no thread panics with the lock held")
}

fn runtime(entries: u64) -> Runtime {
    let at_the_limit = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };
    let budget = ByteSize::new(entries * Cache::<u64, u64>::ENTRY_BYTES.get());
    let topology = Arc::new(topology::Fixed::new(1));
    Runtime::builder().budget(budget).watermarks(at_the_limit).topology(topology).build().expect("a budget and threads")
}

/// Returns a cache whose entries weigh `size` times the minimum.
fn cache(runtime: &Runtime, order: Eviction, size: u64, cost: u64) -> Cache<u64, u64> {
    let more = ByteSize::new((size - 1) * Cache::<u64, u64>::ENTRY_BYTES.get());
    let builder = Cache::builder(runtime).eviction(order).weigher(move |_: &u64, _: &u64| more);
    builder.recreation_cost(move |_, _| cost).build().expect("the default choices are valid")
}

fn ask(cache: &Cache<u64, u64>, key: u64) -> bool {
    let hit = cache.get(&key).is_some();
    if !hit {
        // A small budget that is filled by one large entry may have no room.
        let _refused = cache.insert(key, 0);
    }
    hit
}

/// Runs a mix in each of the three ways, and returns their hits and costs.
fn outcome_of(mix: &Mix, order: Eviction) -> Outcome {
    let mut tallies = [Tally::default(); 2];
    let count = |tally: &mut Tally, at: usize, hit: bool| {
        tally.hits += u64::from(hit);
        tally.cost += if hit { 0 } else { mix.costs[at] };
    };
    let one = runtime(mix.budget);
    let caches: Vec<_> =
        mix.sizes.iter().zip(&mix.costs).map(|(size, cost)| self::cache(&one, order, *size, *cost)).collect();
    for (at, key) in &mix.requests {
        let hit = ask(&caches[*at], *key);
        count(&mut tallies[0], *at, hit);
    }
    drop(caches);
    let shared = runtime(mix.budget);
    let (sizes, unit) = (mix.sizes.clone(), Cache::<u64, u64>::ENTRY_BYTES.get());
    let builder = Cache::<u64, u64>::builder(&shared).eviction(order);
    let cache = builder
        .weigher(move |key, _| ByteSize::new((sizes[(key >> 48) as usize] - 1) * unit))
        .build()
        .expect("the default choices are valid");
    for (at, key) in &mix.requests {
        let hit = ask(&cache, (*at as u64) << 48 | key);
        count(&mut tallies[1], *at, hit);
    }
    let [one_budget, shared] = tallies;
    let best_static = best_static(mix, order);
    Outcome { name: mix.name.clone(), requests: mix.requests.len() as u64, one_budget, best_static, shared }
}

/// Returns the least cost over all splits in twentieths: each trace alone with each share, then the
/// best sum.
fn best_static(mix: &Mix, order: Eviction) -> Tally {
    let mut best: Vec<Option<Tally>> = vec![None; PARTS as usize + 1];
    best[0] = Some(Tally::default());
    for at in 0..mix.sizes.len() {
        let keys: Vec<u64> = mix.requests.iter().filter(|(trace, _)| *trace == at).map(|(_, key)| *key).collect();
        let curve: Vec<Tally> = (0..=PARTS)
            .map(|part| alone(&keys, mix.budget * part / PARTS, mix.sizes[at], mix.costs[at], order))
            .collect();
        let mut with: Vec<Option<Tally>> = vec![None; PARTS as usize + 1];
        for (sum, place) in with.iter_mut().enumerate() {
            for part in 0..=sum {
                let Some(before) = best[sum - part] else { continue };
                let cost = before.cost + curve[part].cost;
                if place.is_none_or(|there| cost < there.cost) {
                    *place = Some(Tally { hits: before.hits + curve[part].hits, cost });
                }
            }
        }
        best = with;
    }
    best.into_iter().flatten().min_by_key(|tally| tally.cost).unwrap_or_default()
}

fn alone(keys: &[u64], entries: u64, size: u64, cost: u64, order: Eviction) -> Tally {
    let mut hits = 0;
    if entries >= size {
        let runtime = runtime(entries);
        let cache = cache(&runtime, order, size, cost);
        hits = keys.iter().filter(|key| ask(&cache, **key)).count() as u64;
    }
    Tally { hits, cost: (keys.len() as u64 - hits) * cost }
}

impl Outcome {
    fn percent(&self, tally: Tally) -> f64 {
        100.0 * tally.hits as f64 / self.requests as f64
    }
}

fn print_one(outcome: &Outcome) {
    let Outcome { name, one_budget, best_static, shared, .. } = outcome;
    let [one, best, all] = [one_budget, best_static, shared].map(|tally| outcome.percent(*tally));
    let relative = one_budget.cost as f64 / best_static.cost as f64;
    println!("{name:50} {one:6.2} static {best:6.2} ({:+6.2}) shared {all:6.2} cost {relative:.3}", one - best);
}

/// Prints the differences of the hit ratios: their mean, their worst, and how many are below
/// bounds.
fn print_hits(outcomes: &[Outcome]) {
    let differences = |with_loop: bool, of: &dyn Fn(&Outcome) -> f64| {
        let outcomes = outcomes.iter().filter(|outcome| with_loop || !outcome.name.contains(LOOP));
        let mut all: Vec<f64> = outcomes.map(of).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let to_static = |outcome: &Outcome| outcome.percent(outcome.one_budget) - outcome.percent(outcome.best_static);
    let to_shared = |outcome: &Outcome| outcome.percent(outcome.one_budget) - outcome.percent(outcome.shared);
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let (all, without) = (differences(true, &to_static), differences(false, &to_static));
    println!(
        "hit ratio, in points, to the best static split: mean {:+.2}, p10 {:+.2}",
        mean(&all),
        all[all.len() / 10]
    );
    println!(
        "worst {:+.2}; {:+.2} without {LOOP}; {} of {} below -0.5",
        all[0],
        without.first().copied().unwrap_or(f64::NAN),
        all.iter().filter(|d| **d < -0.5).count(),
        all.len()
    );
    let all = differences(true, &to_shared);
    let not_below = all.iter().filter(|d| **d >= 0.0).count();
    println!(
        "to one shared cache: mean {:+.2}, worst {:+.2}; not below in {not_below} of {}",
        mean(&all),
        all[0],
        all.len()
    );
}

fn print_costs(outcomes: &[Outcome]) {
    let mut all: Vec<f64> =
        outcomes.iter().map(|o| o.one_budget.cost as f64 / o.best_static.cost.max(1) as f64).collect();
    all.sort_by(f64::total_cmp);
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let above = all.iter().filter(|cost| **cost > 1.02).count();
    println!(
        "miss cost, of the best static split: mean {mean:.4}, p90 {:.4}, worst {:.4}; {above} of {} above 1.02",
        all[all.len() * 9 / 10],
        all[all.len() - 1],
        all.len()
    );
}
