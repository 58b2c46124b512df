//! The speed of the workers, and their stop.
//!
//! Each worker takes only its share of a processor, so that the soak can run for hours beside other
//! work.
//!
//! A change must ensure that a step runs only while `world` is held for reading: a check holds
//! `world` for writing, and relies on no step running.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::RwLock;
use std::time::{Duration, Instant};

/// The longest rest of a worker, so that each works several times between two checks, which are a
/// second apart. A worker whose share is below 1 % thus takes more than its share.
const REST_MAX: Duration = Duration::from_millis(200);
/// The time of work before a rest.
const WORK: Duration = Duration::from_millis(2);

pub struct Pace {
    /// The part of one processor that each worker may take.
    share: f64,
    stop: AtomicBool,
}

impl Pace {
    pub fn new(share: f64) -> Self {
        Self { share, stop: AtomicBool::new(false) }
    }

    pub fn stop(&self) {
        // Relaxed: a stop flag; no data is passed with it.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Runs steps until it is stopped; returns their number.
    pub fn go_on(&self, world: &RwLock<()>, mut step: impl FnMut()) -> u64 {
        let (mut steps, mut begun) = (0, Instant::now());
        // Relaxed: a stop flag; no data is passed with it.
        while !self.stop.load(Ordering::Relaxed) {
            // Poisoned: a check panicked, and the main thread reports it.
            let Ok(moving) = world.read() else { break };
            step();
            drop(moving);
            steps += 1;
            let worked = begun.elapsed();
            if self.share < 1.0 && worked > WORK {
                std::thread::sleep(worked.mul_f64(1.0 / self.share - 1.0).min(REST_MAX));
                begun = Instant::now();
            }
        }
        steps
    }
}

/// xorshift64*, one per worker.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a random number below `n`.
    pub fn of(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % n
    }
}
