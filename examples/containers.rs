//! Ten thousand containers on one machine: what the lists of their file systems cost, exactly, and what it costs to end them.
//!
//! ```text
//!   before   an empty tree of groups and an empty registry of shrinkers
//!   mounts   --mounts file systems, each a shrinker with --lists-per-mount lists; nobody uses them yet
//!   during   --memcgs groups, each with an object on every list of its --mounts-per-memcg mounts
//!   gone     all groups ended, their objects (the root's now) reclaimed, idle lists swept: must be `mounts` again
//!   after    all mounts ended: must be `before` again
//! ```
//!
//! The two reports it follows are Linux's own: 24,464 MB for 10,000 groups and 10,000 mounts that never met, 102 GiB of list
//! heads for 10,000 containers. Its model of the kernel's layouts is in [`kernel`], with both reports as tests.
//!
//! `cargo run --release --example containers -- --memcgs 10000 --mounts 10000 --nodes 2`; `--json` for one object on stdout,
//! `--plot FILE` for a picture.

#![forbid(unsafe_code)]

#[path = "containers/args.rs"]
mod args;
#[path = "containers/kernel.rs"]
mod kernel;
#[path = "containers/mount.rs"]
mod mount;
#[path = "containers/plot.rs"]
mod plot;
#[path = "containers/report.rs"]
mod report;
#[path = "containers/rss.rs"]
mod rss;
#[path = "containers/world.rs"]
mod world;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("containers: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &args::Args) -> Result<(), String> {
    let report = world::run(args)?;
    if let Some(file) = &args.plot {
        plot::draw(&report, file).map_err(|why| format!("cannot draw {}: {why}", file.display()))?;
    }
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table());
    }
    report.verdict()
}
