//! The cost of a lookup that is answered from the cache, on one thread; and of a watch on a
//! directory full of negatives. Curves, against threads and sizes, are in `dcache`.
//!
//! `cargo bench --bench lookup [-- [NEGATIVES] [--quick]]`, with NEGATIVES in the watched
//! directory: 1,000,000 by default, 100,000 with `--quick`.
//!
//! A change must ensure that the names are cached before the clock starts: only hits are measured.

mod common;

use common::cpu::{least, ns_each};
use common::Fixture;
use lowwater_dcache_model::negative::Unbounded;
use lowwater_dcache_model::{Dcache, Kind};
use std::hint::black_box;
use std::time::Instant;

const LOOKUPS: u64 = 1_000_000;
const ROUNDS: usize = 7;

fn main() {
    println!(
        "lookup of a path of 3 names, all cached, one thread (least of {ROUNDS} x {LOOKUPS}, ns on the processor)"
    );
    let fixture = Fixture::new(1 << 16, Box::new(Unbounded));
    fixture.memory.create_path(b"/usr/include/stdio.h", Kind::File).expect("the path is valid");
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
    println!("bytes of a dentry with a name of up to 32 bytes: {}", Dcache::dentry_bytes());
    let negatives = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(if common::is_quick() {
        100_000
    } else {
        1_000_000
    });
    watch(negatives);
}

fn watch(negatives: u64) {
    let fixture = Fixture::new(1 << 20, Box::new(Unbounded));
    drop(fixture.mount.mkdir(b"/d").expect("the root is empty"));
    for n in 0..negatives {
        drop(fixture.mount.lookup(format!("/d/missing-{n}").as_bytes()).expect("memory does not fail"));
        // A hundred files, spread over the negatives, since a watch visits only positives.
        if n % (negatives / 100).max(1) == 0 && n / (negatives / 100).max(1) < 100 {
            drop(fixture.mount.create(format!("/d/{n}").as_bytes()).expect("the name is free"));
        }
    }
    // Wall-clock time: a watch is too short for the resolution of the processor-time clock.
    let us = least(ROUNDS, || {
        let begun = Instant::now();
        black_box(fixture.mount.watch(b"/d").expect("the directory exists"));
        begun.elapsed().as_secs_f64() * 1e6
    });
    let visited = fixture.mount.watch(b"/d").expect("the directory exists").visited();
    println!("a watch on a directory with {visited} positives and {negatives} negatives: {us:.1} us");
}
