//! A load that changes: the number of requested pages grows, and shrinks again.
//!
//! The phases make memory move between the caches, which the printed bytes show.
//!
//! A change must ensure that each phase is long enough for the reclaimer to follow.
//! `ci/examples.sh` expects a line for each of 12 seconds, with all sessions found, and the number
//! of these lookups at the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::at_end::AtEnd;
use super::{Service, ROWS, TENANTS};

/// Users. Their sessions take about 6.5 MiB, less than the `low` of their cache, 8 MiB
/// (`../service.rs`): so none is evicted.
const USERS: u64 = 6_000;
/// Seconds, name, and requested pages of each tenant, of about 8 KiB each: those of `many pages`
/// are more than the budget. The seconds add up to the 12 that this program's pages name.
const PHASES: [(u64, &str, u64); 3] = [(3, "steady", 100), (4, "many pages", 2_000), (5, "steady", 100)];
/// Requests of a thread between two rests: a multiple of the five in [`make_requests`].
const BATCH: u64 = 10;

/// Makes requests on this many threads for 12 s, and prints each cache's bytes and hit ratio once a
/// second, and all figures at the end.
pub fn run(service: &Service, threads: u64) {
    for user in 0..USERS {
        service.login(user).expect("the budget has room for all");
    }
    // The requested pages of each tenant; 0 ends the threads.
    let pages = AtomicU64::new(PHASES[0].2);
    thread::scope(|scope| {
        // Relaxed: a stop flag; no data is passed with it.
        let _end = AtEnd(|| pages.store(0, Ordering::Relaxed));
        for thread in 0..threads {
            let pages = &pages;
            scope.spawn(move || make_requests(service, pages, thread));
        }
        print_phases(service, &pages);
    });
    print!("{}", service.stats());
}

fn print_phases(service: &Service, pages: &AtomicU64) {
    println!("second  load        {:>18}{:>18}{:>18}{:>20}", "sessions", "pages", "rows", "all");
    let (mut before, mut second) = (service.caches(), 0);
    for (seconds, name, number) in PHASES {
        pages.store(number, Ordering::Relaxed);
        for _ in 0..seconds {
            thread::sleep(Duration::from_secs(1));
            second += 1;
            print!("{second:>6}  {name:<12}");
            let now = service.caches();
            for ((_, before), (_, now)) in before.iter().zip(&now) {
                let (hits, misses) = (now.hits - before.hits, now.misses - before.misses);
                // A second without a lookup has no miss: a busy machine may run no thread.
                let per_cent = if misses == 0 { 100.0 } else { hits as f64 * 100.0 / (hits + misses) as f64 };
                print!("{:>7.1} MiB {per_cent:>4.0} %", mib(now.bytes.get()));
            }
            let all = service.runtime.stats();
            println!("{:>9.1} of {:.0} MiB", mib(all.usage.get()), mib(all.budget.get()));
            before = now;
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// Makes requests until there are no pages, and has the service answer them: two of five for a
/// session, two for a page, one for a row.
fn make_requests(service: &Service, pages: &AtomicU64, thread: u64) {
    let mut random = Random(thread + 1);
    loop {
        let pages = pages.load(Ordering::Relaxed);
        if pages == 0 {
            return;
        }
        for n in 0..BATCH {
            let (host, path) = match n % 5 {
                0 | 1 => ("", format!("/session/{}", random.below(USERS))),
                2 | 3 => (TENANTS[random.below(3) as usize], format!("/page/{}", random.below(pages))),
                _ => ("", format!("/row/{}", random.often_low(ROWS))),
            };
            match service.answer(host, &path) {
                Ok(_) => {}
                // The session was evicted: the user logs in again, as a client would.
                Err((401, _)) => drop(service.answer(host, &path.replace("session", "login"))),
                Err((status, why)) => eprintln!("service: {path}: {status} {why}"),
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A linear congruential generator: the same numbers in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Smaller numbers more often: approximately Zipf with exponent 1.
    fn often_low(&mut self, end: u64) -> u64 {
        let fraction = (self.below(1 << 30) as f64 + 1.0) / (1_u64 << 30) as f64;
        ((end as f64).powf(fraction) as u64 - 1).min(end - 1)
    }
}
