//! The cost of dropping all caches when many groups and many mounts share few objects.
//!
//! There is a group for each container, a shrinker for each mount, and one object for each used
//! pair: on the diagonal, or only on the first few pairs (`--live-pairs`). Then all caches are
//! dropped several times. Linux before 4.19 called every mount for every group, 16 million calls a
//! drop for 4,000 and 4,000. The baseline (`FullScan`) does so once, after these drops: it finds
//! nothing, as the second drop, with which it is compared.
//!
//! ```text
//! cargo run --release --example drop_caches -- --memcgs 4000 --mounts 4000
//! ```
//!
//! A change must ensure that library and baseline find the same groups, mounts and objects.

#![forbid(unsafe_code)]

#[path = "charts/mod.rs"]
mod charts;
#[path = "progress/mod.rs"]
mod progress;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;

use charts::{Bar, Bars, Scale, COLOURS};
use clap::Parser;
use lowwater::{
    linked, Count, Isolated, Links, ListLru, MemcgTree, NodeId, Registration, Registry, Scan, ShrinkControl, Shrinker,
};
use lowwater_shrinker::baseline::FullScan;

/// Drops all caches of many groups and many mounts, several times.
#[derive(Debug, Parser)]
struct Args {
    /// Groups
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memcgs: u64,
    /// Shrinkers, one for each mount
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    mounts: u64,
    /// NUMA nodes, simulated
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    nodes: u64,
    /// Drops in a row
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    repeat: u64,
    /// Pairs of a group and a mount that hold an object [default: as many as there are groups or
    /// mounts, whichever is more]
    #[arg(long)]
    live_pairs: Option<u64>,
    /// Do not run the baseline, which takes seconds to minutes for many groups and mounts
    #[arg(long)]
    no_every: bool,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Draw the drops into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// An unused inode.
struct Inode {
    links: Links,
}
linked!(impl[] for Inode { links, handle: Box<Inode> });

/// A mount's unused inodes.
struct Mount {
    inodes: ListLru<Inode>,
    calls: Arc<AtomicU64>,
}

impl Shrinker for Mount {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        self.calls.fetch_add(1, Relaxed);
        match self.inodes.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut unused = Isolated::new();
        let mut left = sc.nr_to_scan();
        self.inodes.walk_one(sc.memcg(), sc.node(), &mut left, |inode| inode.isolate(&mut unused));
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        Scan::Freed(unused.len() as u64)
    }
}

/// One drop.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    us: f64,
    callbacks: u64,
    freed: u64,
}

/// Groups, mounts, and the objects of their pairs.
struct World {
    registry: Registry,
    calls: Arc<AtomicU64>,
    live_pairs: u64,
    // Dropped before the tree.
    _mounts: Vec<(Arc<Mount>, Registration)>,
    _tree: MemcgTree,
}

impl World {
    /// Creates the groups and mounts, and an object for each used pair.
    fn new(args: &Args) -> Result<Self, Box<dyn Error>> {
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, args.nodes as usize);
        let container = tree.root().create("ct")?;
        let groups = (0..args.memcgs).map(|n| container.create(&n.to_string())).collect::<Result<Vec<_>, _>>()?;
        let calls = Arc::new(AtomicU64::new(0));
        let mounts = (0..args.mounts)
            .map(|_| {
                let prepared = registry.builder("sb-tmpfs").alloc()?;
                let inodes = ListLru::with_occupancy(prepared.occupancy());
                let mount = Arc::new(Mount { inodes, calls: Arc::clone(&calls) });
                let registration = prepared.register(Arc::clone(&mount) as Arc<dyn Shrinker>);
                Ok((mount, registration))
            })
            .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        let live_pairs = args.live_pairs.unwrap_or(args.memcgs.max(args.mounts)).min(args.memcgs * args.mounts);
        for n in 0..live_pairs {
            let (group, mount) = pair(n, args.memcgs, args.mounts);
            let node = NodeId::new((n % args.nodes) as u16);
            mounts[mount as usize].0.inodes.add(
                Box::new(Inode { links: Links::new() }),
                &groups[group as usize],
                node,
            )?;
        }
        Ok(Self { registry, calls, live_pairs, _mounts: mounts, _tree: tree })
    }

    fn measure(&self, drop_caches: impl FnOnce() -> u64) -> Dropped {
        let before = self.calls.load(Relaxed);
        let start = Instant::now();
        let freed = drop_caches();
        let us = start.elapsed().as_nanos() as f64 / 1000.0;
        Dropped { us, callbacks: self.calls.load(Relaxed) - before, freed }
    }
}

/// The `n`-th pair: along the diagonals, so that groups and mounts share as little as possible. The
/// first `memcgs * mounts` pairs are different.
fn pair(n: u64, memcgs: u64, mounts: u64) -> (u64, u64) {
    let (mut divisor, mut rest) = (memcgs, mounts);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    // A diagonal returns to its first pair after the least common multiple of the two numbers.
    let diagonal = memcgs / divisor * mounts;
    (n % memcgs, (n + n / diagonal) % mounts)
}

#[cfg(test)]
#[test]
fn each_pair_is_used_once() {
    for (memcgs, mounts) in (1..=12).flat_map(|memcgs| (1..=12).map(move |mounts| (memcgs, mounts))) {
        let pairs: std::collections::HashSet<_> = (0..memcgs * mounts).map(|n| pair(n, memcgs, mounts)).collect();
        assert_eq!(pairs.len() as u64, memcgs * mounts, "{memcgs} groups, {mounts} mounts");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    if let Some(path) = &args.plot {
        // Checked before minutes are spent on results that cannot be drawn.
        std::fs::File::create(path).map_err(|error| format!("--plot {}: {error}", path.display()))?;
    }
    let bar = progress::bar(3, args.json);
    bar.set_message("groups, mounts and objects");
    let world = World::new(&args)?;
    bar.inc(1);
    bar.set_message("drops");
    let drops: Vec<_> = (0..args.repeat).map(|_| world.measure(|| world.registry.drop_caches())).collect();
    bar.inc(1);
    bar.set_message("the baseline");
    // The baseline's only drop. It is compared with the library's second drop: both find nothing.
    let every = (!args.no_every).then(|| world.measure(|| FullScan::new(&world.registry).drop_caches()));
    bar.finish_and_clear();
    if args.json {
        println!("{}", json(&args, &world, &drops, every));
    } else {
        print_table(&args, &world, &drops, every);
    }
    if let Some(path) = &args.plot {
        plot(path, &args, &drops, every)?;
    }
    Ok(())
}

/// One object on one line. `ci/measured/shrinkers.py` reads its keys; `every_second_us` is the time
/// of the baseline.
fn json(args: &Args, world: &World, drops: &[Dropped], every: Option<Dropped>) -> String {
    let drops: Vec<_> = drops
        .iter()
        .map(|drop| format!(r#"{{"us":{:.3},"callbacks":{},"freed":{}}}"#, drop.us, drop.callbacks, drop.freed))
        .collect();
    format!(
        r#"{{"memcgs":{},"mounts":{},"nodes":{},"live_pairs":{},"drops":[{}],"every_second_us":{}}}"#,
        args.memcgs,
        args.mounts,
        args.nodes,
        world.live_pairs,
        drops.join(","),
        every.map_or("null".to_owned(), |every| format!("{:.3}", every.us)),
    )
}

fn print_table(args: &Args, world: &World, drops: &[Dropped], every: Option<Dropped>) {
    println!(
        "{} groups x {} mounts on {} nodes, {} pairs hold an object\n",
        args.memcgs, args.mounts, args.nodes, world.live_pairs
    );
    println!("{:<18} {:>14} {:>12} {:>10}", "drop", "us", "callbacks", "freed");
    let row = |name: &str, drop: &Dropped| {
        println!("{name:<18} {:>14.1} {:>12} {:>10}", drop.us, drop.callbacks, drop.freed);
    };
    for (n, drop) in drops.iter().enumerate() {
        row(&(n + 1).to_string(), drop);
    }
    if let Some(every) = every {
        row("2, asking all", &every);
        println!("\nThe second drop is {:.0} times faster than asking all.", every.us / drops[1].us.max(0.001));
    }
}

/// Draws a bar for each drop and for the baseline's, on a logarithmic scale. `ci/plots.sh` looks
/// for the texts.
fn plot(path: &Path, args: &Args, drops: &[Dropped], every: Option<Dropped>) -> Result<(), Box<dyn Error>> {
    let bar = |series, drop: &Dropped| vec![Bar { series, value: drop.us, text: format!("{:.2}", drop.us) }];
    let mut rows: Vec<_> =
        drops.iter().enumerate().map(|(n, drop)| (format!("drop {}", n + 1), bar(0, drop))).collect();
    rows.extend(every.map(|every| ("drop 2, all pairs asked".to_owned(), bar(1, &every))));
    let mut series = vec![("lowwater".to_owned(), COLOURS[0])];
    series.extend(every.map(|_| ("baseline: every shrinker for every group".to_owned(), COLOURS[3])));
    let title = format!("drop_caches in a row: {} groups, {} mounts, {} nodes", args.memcgs, args.mounts, args.nodes);
    Bars { title: &title, unit: "us", scale: Scale::Decades, series, rows }.draw(path)
}
