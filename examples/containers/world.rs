//! The life cycle of the modelled machine.
//!
//! The stages are those of the table in `containers.rs`. Lists, groups and mounts are really built,
//! only the objects are small. The eager baseline would not fit: its size is predicted, and the
//! prediction checked at a smaller size.
//!
//! A change must keep the order of the stages and that nothing is allocated between two samples but
//! what the stage is about. Tests `seed_000_..` and `seed_001_..` follow the first and the second
//! report of docs/SEEDS.md.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use lowwater::{Memcg, MemcgTree, NodeId, Registry};
use lowwater_lru_core::list_lru::baseline::EagerListLru;
use lowwater_lru_core::list_lru::Swept;

use crate::args::Args;
use crate::kernel::Machine;
use crate::mount::{Mount, Object};
use crate::report::{Report, Sample};
use crate::rss;

/// The greatest number of groups and mounts for which the eager baseline is really built, to check
/// its prediction.
const TWIN_MAX: u32 = 200;

/// Builds everything, takes it down, and counts at each stage.
pub fn run(args: &Args) -> Result<Report, String> {
    check_twin(args)?;
    let tree = MemcgTree::default();
    let registry = Registry::new(&tree, args.nodes.into());
    let mut mounts: Vec<Mount> = Vec::with_capacity(args.mounts as usize);
    let mut groups: Vec<Memcg> = Vec::with_capacity(args.memcgs as usize);
    let sample = |mounts: &[Mount]| {
        let lists: u64 = mounts.iter().map(Mount::bytes).sum();
        Sample { bytes: tree.footprint().get() + registry.footprint().get() + lists, rss: rss::bytes() }
    };
    let before = sample(&mounts);

    for number in ticks(args, args.mounts, "mounts") {
        mounts.push(Mount::new(&registry, number, args.lists_per_mount)?);
    }
    let idle_mounts = sample(&mounts);

    let began = Instant::now();
    for number in ticks(args, args.memcgs, "groups") {
        groups.push(tree.root().create(&number.to_string()).map_err(|why| why.to_string())?);
    }
    let create = began.elapsed();
    let began = Instant::now();
    for number in ticks(args, args.memcgs, "objects") {
        let node = NodeId::new((number % u32::from(args.nodes)) as u16);
        for nth in 0..args.mounts_per_memcg {
            let mount =
                (u64::from(number) * u64::from(args.mounts_per_memcg) + u64::from(nth)) % u64::from(args.mounts);
            mounts[mount as usize].touch(&groups[number as usize], node)?;
        }
    }
    let touch = began.elapsed();
    let live_pairs = mounts.iter().map(Mount::pairs).sum();
    let during = sample(&mounts);

    let began = Instant::now();
    let bar = bar(args, args.memcgs, "offline");
    for (number, group) in groups.drain(..).enumerate() {
        tick(&bar, number as u32);
        group.offline().map_err(|why| why.to_string())?;
    }
    bar.finish_and_clear();
    let offline = began.elapsed();
    registry.drop_caches();
    let began = Instant::now();
    while registry.sweep() != Swept::default() {}
    let sweep = began.elapsed();
    let gone = sample(&mounts);
    drop(mounts);
    let after = sample(&[]);

    let lists = u64::from(args.mounts) * u64::from(args.lists_per_mount);
    let machine = Machine {
        memcgs: args.memcgs.into(),
        mounts: args.mounts.into(),
        lists_per_mount: args.lists_per_mount.into(),
        nodes: args.nodes.into(),
    };
    Ok(Report {
        machine,
        live_pairs,
        before,
        idle_mounts,
        during,
        gone,
        after,
        times: [("create", create), ("touch", touch), ("offline", offline), ("sweep", sweep)],
        eager_bytes_predicted: lists.saturating_mul(eager_bytes(args.nodes, args.memcgs)),
        kernel: machine.layouts(),
    })
}

/// Bytes of one eager list for the given number of groups and the root.
fn eager_bytes(nodes: u16, memcgs: u32) -> u64 {
    size_of::<EagerListLru<Object>>() as u64
        + EagerListLru::<Object>::bytes_for(nodes.into(), memcgs as usize + 1).get()
}

/// Builds the eager baseline for at most `TWIN_MAX` groups and mounts, and compares it with the
/// prediction.
fn check_twin(args: &Args) -> Result<(), String> {
    let (memcgs, mounts) = (args.memcgs.min(TWIN_MAX), args.mounts.min(TWIN_MAX));
    let tree = MemcgTree::default();
    let mut last = tree.root().clone();
    for number in 0..memcgs {
        last = tree.root().create(&number.to_string()).map_err(|why| why.to_string())?;
    }
    for _ in 0..mounts {
        let twin = EagerListLru::<Object>::new(args.nodes.into());
        twin.add(Object::boxed(), &last, NodeId::ZERO).map_err(|why| why.to_string())?;
        let (is, predicted) = (twin.footprint().get(), eager_bytes(args.nodes, memcgs));
        if is != predicted {
            return Err(format!("the eager twin takes {is} bytes for {memcgs} groups, not {predicted} as predicted"));
        }
    }
    Ok(())
}

/// Counts up to `n` with a bar on stderr, unless the output is JSON.
fn ticks(args: &Args, n: u32, what: &'static str) -> impl Iterator<Item = u32> {
    let bar = bar(args, n, what);
    (0..n).inspect(move |number| tick(&bar, *number))
}

fn bar(args: &Args, n: u32, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:8} {wide_bar} {pos}/{len}").expect("the template is well formed");
    let bar = if args.json { ProgressBar::hidden() } else { ProgressBar::new(n.into()) };
    let bar = bar.with_style(style).with_message(what);
    bar.tick();
    bar
}

fn tick(bar: &ProgressBar, number: u32) {
    // Rarely: the bar must not be part of the measured time.
    if number % 1024 == 0 {
        bar.set_position(number.into());
    }
}

/// Milliseconds with three decimals.
pub fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn small(more: &[&str]) -> Report {
        let words = ["containers", "--memcgs", "300", "--mounts", "300"].iter().chain(more);
        run(&Args::parse_from(words)).unwrap()
    }

    #[test]
    fn seed_001_after_all_groups_are_gone_nothing_is_left() {
        for more in [&["--nodes", "2"][..], &["--nodes", "8", "--mounts-per-memcg", "7"], &["--lists-per-mount", "1"]] {
            let report = small(more);
            assert_eq!(report.gone.bytes, report.idle_mounts.bytes, "{more:?}");
            assert_eq!(report.after.bytes, report.before.bytes, "{more:?}");
        }
    }

    #[test]
    fn seed_000_pairs_that_never_met_cost_nothing() {
        let (few, many) = (small(&["--mounts-per-memcg", "1"]), small(&["--mounts-per-memcg", "2"]));
        assert_eq!(few.live_pairs, 2 * 2 * 300, "each group's and, for each mount, the root's");
        let each = |report: &Report| (report.during.bytes - report.idle_mounts.bytes) / report.live_pairs as u64;
        assert!(each(&many).abs_diff(each(&few)) < each(&few), "bytes follow the pairs");
    }
}
