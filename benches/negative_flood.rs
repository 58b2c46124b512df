//! The cost of negatives: the first lookup of a missing name under each policy, turning positive,
//! creating and removing names, reclaim.
//!
//! `cargo bench --bench negative_flood [-- ROUNDS] [POLICY...]`, by default 3 rounds of all
//! policies. `reclaim` in the place of a policy measures only reclaim, `charge` the cost of
//! charging names to their memcg. `--quick`: one round of a tenth of the names.
//!
//! A change must ensure that each policy starts with an equal cache.

mod common;

use common::cpu::{least, ns_each};
use common::{policies, Fixture};
use lowwater::ByteSize;
use lowwater_dcache_model::negative::Unbounded;
use lowwater_dcache_model::Dcache;
use std::hint::black_box;

/// Names that are created and removed.
const COUNTS: [(u64, &str); 3] = [(10_000, "10K"), (100_000, "100K"), (1_000_000, "1M")];
/// The number that Linux allocates on a machine of 16 GiB.
const BUCKETS: usize = 1 << 21;

fn main() {
    let rounds =
        std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(if common::is_quick() { 1 } else { 3 });
    if std::env::args().any(|arg| arg == "charge") {
        return charge(rounds);
    }
    reclaim(rounds);
    if std::env::args().any(|arg| arg == "reclaim") {
        return;
    }
    println!(
        "ns on the processor for each name, least of {rounds}; 2^21 buckets, {} names in 100 directories",
        flood_names()
    );
    print!("{:>15} {:>9} {:>9}", "policy", "first", "to pos.");
    COUNTS.iter().filter(|count| count.0 <= flood_names()).for_each(|(_, count)| print!(" {count:>9} {:>9}", "remove"));
    println!();
    let wanted: Vec<_> = std::env::args().skip(1).filter(|arg| policies().iter().any(|p| p.name() == arg)).collect();
    for at in 0..policies().len() {
        let name = policies()[at].name();
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let fresh = || Fixture::new(BUCKETS, policies().swap_remove(at));
        let first = least(rounds, || {
            let fixture = fresh();
            // Warm up to the steady state, in which the policy trims for each new name.
            flood(&fixture, "warm");
            let names = names("flood");
            ns_each(flood_names(), || look(&fixture, &names))
        });
        let to_positive = least(rounds, || {
            let fixture = fresh();
            let names = names("turn");
            look(&fixture, &names);
            ns_each(flood_names(), || make(&fixture, &names))
        });
        print!("{:>15} {first:>9.0} {to_positive:>9.0}", name);
        for count in COUNTS.map(|count| count.0).into_iter().filter(|count| *count <= flood_names()) {
            // A few names are created and removed repeatedly, because the processor-time clock may
            // tick in steps of 4 ms.
            let again = flood_names() / count;
            let mut names = names("make");
            names.truncate(count as usize);
            let (mut made, mut gone) = (f64::INFINITY, f64::INFINITY);
            for _ in 0..rounds {
                let (mut making, mut removing) = (0.0, 0.0);
                for _ in 0..again.min(10) {
                    let fixture = fresh();
                    directories(&fixture);
                    making += ns_each(count, || make(&fixture, &names));
                    removing += ns_each(count, || {
                        for name in &names {
                            fixture.mount.unlink(name).expect("the name was created");
                        }
                    });
                }
                made = made.min(making / again.min(10) as f64);
                gone = gone.min(removing / again.min(10) as f64);
            }
            print!(" {made:>9.0} {gone:>9.0}");
        }
        println!();
    }
}

fn reclaim(rounds: usize) {
    let ns = least(rounds, || {
        let fixture = Fixture::new(BUCKETS, Box::new(Unbounded));
        flood(&fixture, "gone");
        let before = fixture.dcache.statistics().nr_negative;
        let mut freed = 0;
        let ns = ns_each(before, || freed = fixture.registry.drop_caches());
        assert!(freed >= before, "all negatives go: {freed} of {before}");
        ns
    });
    println!("giving back {} negatives: {ns:.0} ns each", flood_names());
}

/// Compares the cost of a flood with and without charges to a memcg.
fn charge(rounds: usize) {
    /// Less than the names of the flood, and more than its directories.
    const ROOM: u64 = 1000;
    println!("ns on the processor for each first lookup of a missing name, least of {rounds}");
    println!("{:>15} {:>12} {:>9} {:>22}", "policy", "not charged", "charged", "at room for 1000");
    let names = names("flood");
    let first = |fresh: &dyn Fn() -> Fixture| {
        let fixture = fresh();
        directories(&fixture);
        let ns = ns_each(flood_names(), || look(&fixture, &names));
        // A charge is refused if its scan finds only directories in use and names that were used
        // just now; the next charge succeeds.
        let refused = fixture.dcache.statistics().refused;
        assert!(refused < flood_names() / 1000, "{refused} names found no room");
        ns
    };
    for at in 0..policies().len() {
        let policy = || policies().swap_remove(at);
        let fixtures: [&dyn Fn() -> Fixture; 3] =
            [&|| Fixture::new(BUCKETS, policy()), &|| Fixture::charged(BUCKETS, policy(), ByteSize::MAX), &|| {
                Fixture::charged(BUCKETS, policy(), ByteSize::new(ROOM * Dcache::dentry_bytes() as u64))
            }];
        // In turns, so that other load on the machine affects all fixtures equally.
        let mut least = [f64::INFINITY; 3];
        for _ in 0..rounds {
            for (least, fixture) in least.iter_mut().zip(fixtures) {
                *least = least.min(first(fixture));
            }
        }
        let [not, charged, full] = least;
        println!("{:>15} {not:>12.0} {charged:>9.0} {full:>22.0}", policies()[at].name());
    }
}

/// Returns the names of a flood.
fn flood_names() -> u64 {
    if common::is_quick() {
        100_000
    } else {
        1_000_000
    }
}

fn names(what: &str) -> Vec<Vec<u8>> {
    (0..flood_names()).map(|n| format!("/{}/{what}-{n:09}", n % 100).into_bytes()).collect()
}

fn directories(fixture: &Fixture) {
    for n in 0..100 {
        drop(fixture.mount.mkdir(format!("/{n}").as_bytes()));
    }
}

fn flood(fixture: &Fixture, what: &str) {
    look(fixture, &names(what));
}

fn look(fixture: &Fixture, names: &[Vec<u8>]) {
    directories(fixture);
    for name in names {
        drop(black_box(fixture.mount.lookup(name).expect("memory does not fail")));
    }
}

fn make(fixture: &Fixture, names: &[Vec<u8>]) {
    for name in names {
        drop(black_box(fixture.mount.create(name).expect("the name is free")));
    }
}
