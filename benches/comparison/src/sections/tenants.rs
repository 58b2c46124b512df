//! Many tenants in one memory, and one tenant that scans.
//!
//! A thousand tenants have 10,000 keys each, requested by Zipf's law with an exponent of 0.85. Ten
//! hot tenants get 90 % of the requests that are not the scan's; the quiet ones share the rest.
//! There is room for 200,000 entries: all the keys of the hot tenants, and about a hundred for each
//! quiet one. One more tenant scans: it requests each key once, and makes half of all requests.
//!
//! A change of these numbers makes figures incomparable with those of docs/MEASURED.md.
//! `ci/measured/comparison.py` reads the tables by titles and columns.

use std::time::{Duration, Instant};

use rand::distr::Distribution;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::contender::{runs, Contender, Kind, Plan, Run};
use crate::contenders::Lowwater;
use crate::keys::{key, zipf};
use crate::report::{medians, Column, Report, Table};

const TENANTS: usize = 1000;
const HOT: usize = 10;
const KEYS: usize = 10_000;
const ENTRIES: usize = 200_000;
const EXPONENT: f64 = 0.85;
/// The tenant that scans.
const SCANNER: usize = TENANTS;
/// The number of requests that warm up the cache, and the number of measured requests after them,
/// both without the scan's. The scan's are in addition, so that the other tenants make as many
/// requests with the scan as without it.
const REQUESTS: usize = 5_000_000;

/// The tenant, and the key.
type Request = (u16, u32);
type Measure = fn(&[Request], usize) -> Vec<f64>;

/// Hits of the tenants that count: the hot and the quiet ones.
#[derive(Default)]
struct Tally {
    asked: [u64; 2],
    hit: [u64; 2],
    /// Requests of all tenants.
    requests: usize,
    /// Their time.
    took: Duration,
}

/// Reports the hit ratios of hot and quiet tenants, with and without the scan, for one shared
/// cache, split caches, and groups.
pub fn measure(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let scale = if plan.quick { 10 } else { 1 };
    let caches = |mut runs: Vec<Run<Measure>>| {
        runs.retain(|run| run.kind == Kind::Cache);
        plan.chosen(runs)
    };
    let ours =
        |call: Measure| plan.chosen(vec![Run { name: Lowwater::NAME, kind: Lowwater::KIND, shrink: None, call }]);
    // Our caches share the memory of one runtime, so their split is not fixed.
    let mut split = caches(runs!(split as Measure));
    split.retain(|run| run.name != Lowwater::NAME);
    let modes = [
        ("a group each", ours(groups)),
        ("a group each, at the limit", ours(groups_at_the_limit)),
        ("shared", caches(runs!(shared as Measure))),
        ("fixed split", split),
    ];
    let (mut rows, mut runs) = (Vec::new(), Vec::new());
    for (mode, of_mode) in modes {
        rows.extend(of_mode.iter().map(|run| format!("{}, {mode}", run.name)));
        runs.extend(of_mode);
    }
    for (name, label, scanning) in
        [("tenants", "without a scan", false), ("tenants-scan", "one more scans, with half of all requests", true)]
    {
        let requests = requests(2 * REQUESTS / scale * if scanning { 2 } else { 1 }, scanning);
        let warm = requests.len() / 2;
        let mut rounds = vec![Vec::new(); runs.len()];
        plan.interleaved(&runs, |which, run| rounds[which].push((run.call)(&requests, warm)));
        report.table(Table {
            name,
            title: format!("Hit ratio, %, of {TENANTS} tenants x {KEYS} keys in {ENTRIES} entries; {label}"),
            first: "cache, mode",
            columns: vec![
                Column::bars("all but the scan", 1).more(),
                Column::new("hot", 1).more(),
                Column::bars("quiet", 1).more(),
                Column::new("held", 0),
                Column::new("refused", 0),
                Column::new("Mops", 2).more(),
            ],
            rows: rows.iter().cloned().zip(rounds.iter().map(|rounds| medians(rounds))).collect(),
        })?;
    }
    Ok(())
}

fn requests(length: usize, scanning: bool) -> Vec<Request> {
    let mut random = SmallRng::seed_from_u64(1);
    let popularity = zipf(KEYS, EXPONENT);
    let mut scanned = 0;
    let mut request = || {
        if scanning && random.random_bool(0.5) {
            scanned += 1;
            return (SCANNER as u16, scanned);
        }
        let tenant =
            if random.random_bool(0.9) { random.random_range(0..HOT) } else { random.random_range(HOT..TENANTS) };
        (tenant as u16, popularity.sample(&mut random) as u32)
    };
    (0..length).map(|_| request()).collect()
}

/// Runs one cache for all, without tenants.
fn shared<P: Contender>(requests: &[Request], warm: usize) -> Vec<f64> {
    let cache = P::exact(ENTRIES);
    let tally = replay(requests, warm, |_, key| cache.get(key).is_some(), |_, key| cache.insert(key, key));
    cache.run_pending_tasks();
    tally.figures(cache.len(), cache.refused())
}

/// Runs a cache for each tenant, all of one size.
fn split<P: Contender>(requests: &[Request], warm: usize) -> Vec<f64> {
    let caches: Vec<P> = P::several(TENANTS + 1, ENTRIES / TENANTS);
    let tally = replay(
        requests,
        warm,
        |tenant, key| caches[tenant].get(key).is_some(),
        |tenant, key| caches[tenant].insert(key, key),
    );
    caches.iter().for_each(Contender::run_pending_tasks);
    tally.figures(caches.iter().map(Contender::len).sum(), caches.iter().map(Contender::refused).sum())
}

/// Runs one cache in which each tenant is a group. The reclaimer works ahead, as by default, so the
/// cache holds less.
fn groups(requests: &[Request], warm: usize) -> Vec<f64> {
    grouped(Lowwater::new(ENTRIES), requests, warm)
}

/// The same, but the cache is always full.
fn groups_at_the_limit(requests: &[Request], warm: usize) -> Vec<f64> {
    grouped(Lowwater::exact(ENTRIES), requests, warm)
}

fn grouped(cache: Lowwater, requests: &[Request], warm: usize) -> Vec<f64> {
    let cache = cache.with_tenants(TENANTS + 1);
    let insert = |tenant, key| cache.insert_for(tenant, key, key);
    replay(requests, warm, |_, key| cache.get(key).is_some(), insert).figures(cache.len(), cache.refused())
}

fn replay(requests: &[Request], warm: usize, get: impl Fn(usize, u64) -> bool, insert: impl Fn(usize, u64)) -> Tally {
    let mut tally = Tally { requests: requests.len() - warm, ..Tally::default() };
    let mut began = Instant::now();
    for (turn, &(tenant, number)) in requests.iter().enumerate() {
        let tenant = usize::from(tenant);
        let key = key((tenant as u64) << 32 | u64::from(number));
        if turn == warm {
            began = Instant::now();
        }
        let hit = get(tenant, key);
        if !hit {
            insert(tenant, key);
        }
        if turn >= warm && tenant != SCANNER {
            let quiet = usize::from(tenant >= HOT);
            tally.asked[quiet] += 1;
            tally.hit[quiet] += u64::from(hit);
        }
    }
    tally.took = began.elapsed();
    tally
}

impl Tally {
    fn figures(&self, held: usize, refused: u64) -> Vec<f64> {
        let percent = |hit: u64, asked: u64| 100.0 * hit as f64 / asked as f64;
        vec![
            percent(self.hit.iter().sum(), self.asked.iter().sum()),
            percent(self.hit[0], self.asked[0]),
            percent(self.hit[1], self.asked[1]),
            held as f64,
            refused as f64,
            self.requests as f64 / self.took.as_secs_f64() / 1e6,
        ]
    }
}
