//! The rule by which caches share one budget: the caches and a plain oracle of the rule get the
//! same requests.
//!
//! Each test builds a stream of requests (`stream`), runs it through the oracle (`oracle`) and the
//! real caches (`real`), and bounds the differences (`agreement`), in points of the budget and of
//! the hits. A change of the rule has to change the oracle first.

mod agreement;
mod invariants;
mod liars;
mod limits;
#[path = "../common/one_processor.rs"]
mod one_processor;
mod oracle;
#[path = "../common/random.rs"]
mod random;
mod real;
mod stream;
#[path = "../common/two_of_three.rs"]
mod two_of_three;

use agreement::compare;
use real::Real;
use stream::Pattern::{Idle, Loop, Scan, Uniform, Zipf};
use stream::{PairSpec, Stream, BUDGET, ENTRY, ROOT};
use two_of_three::two_of_three;

/// The seeds of each stream.
const SEEDS: [u64; 2] = [1, 77];

/// Asserts that mean shares of the budget differ by at most `share` points, and hits of all
/// requests, weighted by cost, by `hits` points.
///
/// Each bound is about one and a half times the maximum over ten seeds. If different shares bring
/// nearly the same hits (Zipf requests, equal pairs), shares drift in the oracle and in the caches:
/// there the bound of shares is wide.
fn agree(name: &str, share: f64, hits: f64, stream: impl Fn(u64) -> Stream) {
    for seed in SEEDS {
        let agrees = || {
            let difference = compare(&stream(seed));
            let (shares, apart) = (difference.share(), difference.apart());
            println!("{name} {seed}: share {shares:.2}, apart {apart:.2}, hits {:+.2}", difference.hits);
            let agrees = shares <= share && difference.hits.abs() <= hits;
            if !agrees {
                println!("outside: {difference:.2?}");
            }
            agrees
        };
        assert!(two_of_three(agrees), "{name}, seed {seed}: see the output");
    }
}

#[test]
fn uniform_requests() {
    agree("equal", 8.0, 0.4, |seed| Stream::new(2).ask(seed, 30_000, &[(Uniform(3_000), 1), (Uniform(3_000), 1)]));
    agree("rates", 1.0, 0.4, |seed| {
        Stream::new(3).ask(seed, 10_000, &[(Uniform(2_500), 4), (Uniform(2_500), 2), (Uniform(2_500), 1)])
    });
}

#[test]
fn zipf_requests() {
    agree("zipf", 8.0, 0.4, |seed| {
        Stream::new(3).ask(seed, 12_000, &[(Zipf(20_000), 3), (Zipf(20_000), 2), (Zipf(5_000), 1)])
    });
}

#[test]
fn a_scan() {
    agree("scan", 6.0, 0.3, |seed| {
        Stream::new(3).ask(seed, 25_000, &[(Zipf(10_000), 1), (Zipf(10_000), 1), (Scan, 1)])
    });
}

#[test]
fn a_loop() {
    agree("loop", 1.0, 0.3, |seed| Stream::new(2).ask(seed, 40_000, &[(Zipf(20_000), 1), (Loop(1_500), 1)]));
}

#[test]
fn a_loop_that_is_too_long() {
    agree("too long", 3.0, 0.3, |seed| Stream::new(2).ask(seed, 40_000, &[(Zipf(20_000), 1), (Loop(5_000), 1)]));
}

#[test]
fn phases() {
    agree("phases", 5.0, 0.6, |seed| {
        let stream = Stream::new(2).ask(seed, 8_000, &[(Uniform(3_500), 3), (Uniform(3_500), 1)]);
        let stream = stream.ask(seed + 1, 8_000, &[(Uniform(3_500), 1), (Uniform(3_500), 3)]);
        stream.ask(seed + 2, 8_000, &[(Zipf(20_000), 2), (Scan, 2)])
    });
}

#[test]
fn an_idle_cache() {
    agree("idle", 1.0, 0.4, |seed| {
        let stream = Stream::new(2).ask(seed, 8_000, &[(Uniform(5_000), 1), (Idle, 1)]);
        stream.ask(seed, 50_000, &[(Idle, 1), (Uniform(3_000), 1)])
    });
}

#[test]
fn sizes() {
    agree("sizes of caches", 9.0, 0.8, |seed| {
        let mut stream = Stream::new(3);
        stream.groups[ROOT].max = 4 * BUDGET;
        (stream.pairs[1].size, stream.pairs[2].size) = (4 * ENTRY, 10 * ENTRY);
        stream.ask(seed, 30_000, &[(Zipf(20_000), 1), (Zipf(20_000), 1), (Zipf(20_000), 1)])
    });
    agree("sizes of entries", 3.0, 1.0, |seed| {
        let mut stream = Stream::new(2);
        stream.groups[ROOT].max = 4 * BUDGET;
        (stream.pairs[0].sizes, stream.pairs[1].sizes) = (8, 3);
        stream.ask(seed, 40_000, &[(Zipf(20_000), 1), (Uniform(6_000), 1)])
    });
}

#[test]
fn costs() {
    agree("costs", 4.0, 0.4, |seed| {
        let mut stream = Stream::new(3);
        stream.pairs[1].cost = 20;
        stream.ask(seed, 30_000, &[(Zipf(20_000), 1), (Zipf(20_000), 1), (Zipf(20_000), 1)])
    });
}

#[test]
fn tenants() {
    agree("tenants", 4.0, 0.4, |seed| {
        let mut stream = Stream::new(2);
        for _ in 0..3 {
            let group = stream.group(BUDGET, 0);
            stream.pairs.push(PairSpec { group, ..PairSpec::of_cache(1) });
        }
        let patterns = [(Zipf(10_000), 2), (Uniform(1_000), 1), (Zipf(10_000), 1), (Zipf(5_000), 1), (Uniform(500), 1)];
        stream.ask(seed, 15_000, &patterns)
    });
}

#[test]
fn tenants_of_different_sizes() {
    agree("sizes of tenants", 5.0, 0.7, |seed| {
        let mut stream = Stream::new(0);
        stream.groups[ROOT].max = 4 * BUDGET;
        for size in [ENTRY, 12 * ENTRY] {
            let group = stream.group(4 * BUDGET, 0);
            stream.pairs.push(PairSpec { group, size, ..PairSpec::of_cache(0) });
        }
        stream.ask(seed, 40_000, &[(Zipf(20_000), 1), (Zipf(20_000), 1)])
    });
}

#[test]
fn a_small_budget() {
    agree("small", 2.0, 0.6, |seed| {
        let mut stream = Stream::new(3);
        stream.groups[ROOT].max = 200 * ENTRY;
        stream.ask(seed, 20_000, &[(Zipf(1_000), 1), (Uniform(120), 1), (Scan, 1)])
    });
}

#[test]
fn rates_far_apart() {
    agree("far apart", 4.0, 0.6, |seed| {
        Stream::new(3).ask(seed, 4_000, &[(Zipf(20_000), 20), (Uniform(300), 1), (Zipf(3_000), 3)])
    });
}

/// Uses a small cache only after another one has filled the budget. None of its keys is in the
/// sample of keys that have ghosts while a tenant is taken for a scan (`is_sampled` in
/// `ghost_stamps.rs`), so a cache that is once taken for a scan would never be recognized as
/// useful.
#[test]
fn a_small_cache_is_not_taken_for_a_scan() {
    const KEYS: usize = 300;
    let leaves_ghosts = |key: &u64| Real::hash(1, *key) >> 36 & 63 == 0;
    let keys: Vec<u64> = (0..).filter(|key| !leaves_ghosts(key)).take(KEYS).collect();
    let mut stream = Stream::new(2).ask(14, 20_000, &[(Zipf(20_000), 1), (Idle, 1)]);
    stream = stream.ask(15, 6_000, &[(Zipf(20_000), 20), (Uniform(KEYS as u64), 1)]);
    for (pair, key) in &mut stream.requests {
        if *pair == 1 {
            *key = keys[*key as usize];
        }
    }
    let hits_as_often = || {
        let [oracle, real] = compare(&stream).pairs[1].hits;
        println!("the small cache hits {real:.1} %, and {oracle:.1} % by the oracle");
        real >= oracle - 5.0
    };
    assert!(two_of_three(hits_as_often), "see the output");
}

#[test]
fn two_loops() {
    agree("two loops", 1.0, 0.3, |seed| {
        Stream::new(3).ask(seed, 40_000, &[(Loop(1_000), 1), (Loop(1_600), 1), (Zipf(10_000), 1)])
    });
}

#[test]
fn small_tenants_of_one_cache() {
    agree("many tenants", 4.0, 0.4, |seed| {
        let mut stream = Stream::new(0);
        let mut patterns = Vec::new();
        for n in 0..12 {
            let group = stream.group(BUDGET, 0);
            stream.pairs.push(PairSpec { group, ..PairSpec::of_cache(0) });
            patterns.push(if n % 3 == 2 { (Scan, 1) } else { (Zipf(1_000 * (n + 1)), 1 + n % 2) });
        }
        stream.ask(seed, 6_000, &patterns)
    });
}

#[test]
fn twenty_pairs() {
    agree("twenty", 4.0, 0.9, |seed| {
        let mut patterns = Vec::new();
        for n in 0..20 {
            patterns.push(match n % 4 {
                0 => (Zipf(2_000 + 200 * n), 1 + n % 3),
                1 => (Uniform(100 + 20 * n), 1),
                2 => (Scan, 1),
                _ => (Zipf(500), 1),
            });
        }
        Stream::new(20).ask(seed, 4_000, &patterns)
    });
}

#[test]
fn limits_below_the_root() {
    agree("limits", 2.0, 0.4, |seed| {
        let mut stream = Stream::new(4);
        let (small, other) = (stream.group(BUDGET * 3 / 10, 0), stream.group(BUDGET, 0));
        (stream.pairs[0].group, stream.pairs[1].group, stream.pairs[2].group) = (small, small, other);
        stream.ask(seed, 25_000, &[(Zipf(5_000), 1), (Uniform(1_000), 1), (Zipf(20_000), 1), (Uniform(3_000), 1)])
    });
}

#[test]
fn protection() {
    agree("low", 3.0, 0.4, |seed| {
        let mut stream = Stream::new(3);
        stream.pairs[0].group = stream.group(BUDGET, BUDGET / 4);
        stream.pairs[1].group = stream.group(BUDGET, BUDGET / 10);
        let stream = stream.ask(seed, 6_000, &[(Uniform(3_000), 1), (Idle, 1), (Idle, 1)]);
        stream.ask(seed, 30_000, &[(Idle, 1), (Zipf(10_000), 1), (Uniform(4_000), 1)])
    });
}
