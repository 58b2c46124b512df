//! How fast the workers go, and when they stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::RwLock;
use std::time::{Duration, Instant};

/// The longest a worker rests at once.
const REST_MAX: Duration = Duration::from_millis(200);
/// It works for so long before it rests.
const WORK: Duration = Duration::from_millis(2);

pub struct Pace {
    /// Of one processor, the part each worker takes.
    share: f64,
    stop: AtomicBool,
}

impl Pace {
    pub fn new(share: f64) -> Self {
        Self { share, stop: AtomicBool::new(false) }
    }

    pub fn stop(&self) {
        // Relaxed: nothing is told with it.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Steps until it is stopped; how often.
    pub fn go_on(&self, world: &RwLock<()>, mut step: impl FnMut()) -> u64 {
        let (mut steps, mut begun) = (0, Instant::now());
        // Relaxed: as above.
        while !self.stop.load(Ordering::Relaxed) {
            // Something does not hold: who found it says what.
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

/// xorshift64*: a worker's own.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// One of `n` numbers.
    pub fn of(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % n
    }
}
