//! The cost of a lookup that is answered from the cache, on one thread and on several; and of a
//! watch on a directory full of negatives.
//!
//! `cargo bench --bench lookup [-- NEGATIVES]`, with NEGATIVES in the watched directory: 1,000,000
//! by default.

mod common;

use common::cpu::{least, ns_each};
use common::Fixture;
use lowwater_dcache_model::negative::Unbounded;
use lowwater_dcache_model::{Dcache, Kind};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

const LOOKUPS: u64 = 1_000_000;
const ROUNDS: usize = 7;

fn main() {
    println!(
        "lookup of a path of 3 names, all cached, one thread (least of {ROUNDS} x {LOOKUPS}, ns on the processor)"
    );
    let fixture = Fixture::new(1 << 16, Box::new(Unbounded));
    fixture.memory.create_path(b"/usr/include/stdio.h", Kind::File).expect("the path is one");
    let positive = &b"/usr/include/stdio.h"[..];
    let negative = &b"/usr/include/stdio.hpp"[..];
    for (what, path) in [("positive", positive), ("negative", negative)] {
        // The second lookup sets the referenced flag, which later ones find set.
        for _ in 0..2 {
            drop(fixture.mount.lookup(path).expect("memory does not fail"));
        }
        let ns = least(ROUNDS, || {
            ns_each(LOOKUPS, || {
                for _ in 0..LOOKUPS {
                    drop(black_box(fixture.mount.lookup(black_box(path))));
                }
            })
        });
        let stat = least(ROUNDS, || {
            ns_each(LOOKUPS, || {
                for _ in 0..LOOKUPS {
                    black_box(fixture.mount.stat(black_box(path))).expect("memory does not fail");
                }
            })
        });
        println!("    cached {what:<10} {ns:8.1}   stat {stat:8.1}");
    }
    scaling(&fixture);
    println!("bytes of a dentry with a name of up to 32 bytes: {}", Dcache::dentry_bytes());
    let negatives = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    watch(negatives);
}

/// Measures lookups of many paths by many threads. A loop without memory accesses is the control:
/// it shows how much of the machine is available.
fn scaling(fixture: &Fixture) {
    const EACH: u64 = 500_000;
    let paths: Vec<_> = (0..64).map(|n| format!("/usr/include/{}/{n}.h", n % 4).into_bytes()).collect();
    for path in &paths {
        fixture.memory.create_path(path, Kind::File).expect("the path is one");
        drop(fixture.mount.lookup(path).expect("memory does not fail"));
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "lookups of 4 names by threads: ns on the processor for each, and times what one thread needs; {cpus} processors"
    );
    println!("               lookup            stat         missing  stat, own names   a loop on registers");
    let own: Vec<_> = (0..cpus.max(2))
        .map(|thread| (0..64).map(|n| format!("/usr/own/{thread}/{n}.h").into_bytes()).collect::<Vec<_>>())
        .collect();
    for path in own.iter().flatten() {
        fixture.memory.create_path(path, Kind::File).expect("the path is one");
        drop(fixture.mount.lookup(path).expect("memory does not fail"));
    }
    let missing: Vec<_> = paths.iter().map(|path| [path, &b"pp"[..]].concat()).collect();
    let pick = |paths: &[Vec<u8>], n: u64, thread: usize| (n as usize * 7 + thread * 13) % paths.len();
    let mut alone = None;
    for threads in [1, 2, 4, 8, 16].into_iter().filter(|&n| n <= cpus.max(2)) {
        let costs = [
            each_ns(threads, EACH, |thread| {
                for n in 0..EACH {
                    drop(black_box(fixture.mount.lookup(&paths[pick(&paths, n, thread)])));
                }
            }),
            each_ns(threads, EACH, |thread| {
                for n in 0..EACH {
                    drop(black_box(fixture.mount.stat(&paths[pick(&paths, n, thread)])));
                }
            }),
            each_ns(threads, EACH, |thread| {
                for n in 0..EACH {
                    drop(black_box(fixture.mount.stat(&missing[pick(&missing, n, thread)])));
                }
            }),
            each_ns(threads, EACH, |thread| {
                for n in 0..EACH {
                    drop(black_box(fixture.mount.stat(&own[thread][pick(&own[thread], n, thread)])));
                }
            }),
            each_ns(threads, EACH, |_| {
                let mut x = 1_u64;
                for _ in 0..EACH {
                    for _ in 0..64 {
                        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                    }
                }
            }),
        ];
        let one = *alone.get_or_insert(costs);
        let cells = costs.iter().zip(one).map(|(cost, one)| format!("{cost:8.1} x{:5.2}", cost / one));
        println!("    {threads:>2} threads {}", cells.collect::<Vec<_>>().join("  "));
    }
}

/// Returns the processor time of each operation in ns while all threads run, as the average over
/// the threads; the least of five rounds.
fn each_ns(threads: usize, each: u64, work: impl Fn(usize) + Sync) -> f64 {
    let once = || {
        let barrier = Barrier::new(threads);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let (barrier, work) = (&barrier, &work);
                    scope.spawn(move || {
                        barrier.wait();
                        ns_each(each, || work(thread))
                    })
                })
                .collect();
            let all: f64 = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).sum();
            all / threads as f64
        })
    };
    least(5, once)
}

fn watch(negatives: u64) {
    let fixture = Fixture::new(1 << 20, Box::new(Unbounded));
    drop(fixture.mount.mkdir(b"/d").expect("the root is empty"));
    for n in 0..negatives {
        drop(fixture.mount.lookup(format!("/d/missing-{n}").as_bytes()).expect("memory does not fail"));
        if n % (negatives / 100).max(1) == 0 && n / (negatives / 100).max(1) < 100 {
            drop(fixture.mount.create(format!("/d/{n}").as_bytes()).expect("the name is free"));
        }
    }
    // Wall-clock time: a watch is too short for the resolution of the processor-time clock.
    let us = least(ROUNDS, || {
        let begun = Instant::now();
        black_box(fixture.mount.watch(b"/d").expect("the directory is there"));
        begun.elapsed().as_secs_f64() * 1e6
    });
    let visited = fixture.mount.watch(b"/d").expect("the directory is there").visited();
    println!("a watch on a directory with {visited} positives and {negatives} negatives: {us:.1} us");
}
