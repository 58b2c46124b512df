//! The difference between the oracle and the real caches on one stream.
//!
//! Both get the same requests one by one. After a warm-up, hits are counted and shares are compared
//! at fixed steps.
//!
//! The bounds of the differences are in `main.rs`. A bound may be narrowed; a wider one needs a
//! reason in docs/DESIGN.md.

use super::oracle::Oracle;
use super::real::Real;
use super::stream::{Stream, ROOT};

/// Requests until a new stream has filled the budget and its tallies, as a part of all requests.
const WARM_UP: f64 = 0.25;
/// The number of steps at which shares are compared.
const SAMPLES: usize = 200;

/// The differences, in points: hundredths of the budget for shares, hundredths of the requests
/// after the warm-up for hits.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    pub pairs: Vec<PairDifference>,
    /// Hits of the real caches less those of the oracle, of all pairs together, weighted by cost.
    pub hits: f64,
}

/// One pair's figures.
#[derive(Clone, Copy, Debug, Default)]
pub struct PairDifference {
    /// Its mean share of the budget: the oracle's, and the real one.
    pub shares: [f64; 2],
    /// The mean of the absolute differences between its two shares at the same step. Only printed.
    pub apart: f64,
    /// Its hits as hundredths of its own requests: the oracle's, and the real ones.
    pub hits: [f64; 2],
    requests: f64,
}

impl Difference {
    /// Returns the greatest difference of a pair's mean shares.
    pub fn share(&self) -> f64 {
        self.pairs.iter().map(|pair| (pair.shares[1] - pair.shares[0]).abs()).fold(0.0, f64::max)
    }

    /// Returns the greatest [`PairDifference::apart`] of a pair.
    pub fn apart(&self) -> f64 {
        self.pairs.iter().map(|pair| pair.apart).fold(0.0, f64::max)
    }
}

/// Runs a stream through the oracle and the real caches, and compares them.
pub fn compare(stream: &Stream) -> Difference {
    let (mut oracle, mut real) = (Oracle::new(stream), Real::new(stream));
    let budget = stream.groups[ROOT].max;
    let warm = (stream.requests.len() as f64 * WARM_UP) as usize;
    let every = ((stream.requests.len() - warm) / SAMPLES).max(1);
    let (mut pairs, mut samples) = (vec![PairDifference::default(); stream.pairs.len()], 0.0);
    for (n, (at, key)) in stream.requests.iter().enumerate() {
        let both = [oracle.ask(*at, *key), real.ask(*at, *key)];
        let usage = real.runtime().root().usage().get();
        assert!(usage <= budget, "{usage} bytes of {budget} at request {n}");
        if n < warm {
            continue;
        }
        pairs[*at].requests += 1.0;
        both.iter().zip(&mut pairs[*at].hits).for_each(|(hit, hits)| *hits += f64::from(u8::from(*hit)));
        if n % every == 0 {
            samples += 1.0;
            for (at, (spec, pair)) in stream.pairs.iter().zip(&mut pairs).enumerate() {
                let now =
                    [oracle.len(at), real.len(at)].map(|len| 100.0 * (len * spec.mean_size()) as f64 / budget as f64);
                pair.shares.iter_mut().zip(now).for_each(|(share, now)| *share += now);
                pair.apart += (now[1] - now[0]).abs();
            }
        }
    }
    let sum = |of: fn(&PairDifference) -> f64| {
        pairs.iter().zip(&stream.pairs).map(|(pair, spec)| of(pair) * spec.cost as f64).sum::<f64>()
    };
    let hits = 100.0 * sum(|pair| pair.hits[1] - pair.hits[0]) / sum(|pair| pair.requests);
    for pair in &mut pairs {
        pair.shares = pair.shares.map(|sum| sum / samples);
        pair.apart /= samples;
        pair.hits = pair.hits.map(|hits| 100.0 * hits / f64::max(pair.requests, 1.0));
    }
    Difference { pairs, hits }
}
