//! All parts at once, for hours: tenants that come and go, pressure that rises and falls, shrinkers
//! that register and unregister, a dentry cache, and a lowwater-server under load. Each second all
//! threads stop and everything is checked.
//!
//! ```text
//!     tenants   values in a Cache for short-lived groups                   every second   bytes charged = bytes of entries
//!     pressure  levels by hand, budgets, drops, reclaim by hand            |          lists, names: consistent; dentries counted one by one
//!     lists     items on a ListLru, of groups in three generations         |          no more items are listed than are alive
//!     churn     shrinkers with lists of their own, and their ends          |          no callback has panicked
//!     names     lookups, floods of missing names, changes                  '-> log    resident memory of this process and the server
//!     server    clients of a lowwater-server, a process of its own
//! ```
//!
//! At intervals everything is emptied: reclaim must find all listed objects, and the footprint must
//! not exceed that of the first times. Only at the end resident memory is judged: a line through
//! the last three quarters must not rise by more than the noise.
//!
//! `ci/soak.sh MINUTES` builds and runs it.

#![forbid(unsafe_code)]

#[path = "../at_end/mod.rs"]
mod at_end;
mod caches;
mod lists;
mod names;
mod pace;
mod server;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::RwLock;
use std::time::{Duration, Instant};

use clap::Parser;

use at_end::AtEnd;
use caches::Caches;
use lists::Lists;
use names::Names;
use pace::Pace;
use server::Served;
use watch::Watch;

/// The interval, in seconds, at which everything is emptied. Footprints are compared from the tenth
/// time on (`FEW` in `watch.rs`): in runs of 200 s or more.
const EMPTY_EVERY: u64 = 20;

/// Runs all parts for a while and checks them every second.
#[derive(Debug, Parser)]
struct Args {
    /// How long
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..))]
    seconds: u64,

    /// The share of one processor that the threads of this process use together, in percent
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    cpu: u32,

    /// A lowwater-server to be started and loaded as well
    #[arg(long, value_name = "path")]
    server: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match soak(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("soak: FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The work of a worker, in small steps.
type Step<'a> = Box<dyn FnMut() + Send + 'a>;

/// Starts the workers, stops them each second for the checks, and empties everything at intervals.
fn soak(args: &Args) -> Result<(), String> {
    let (caches, lists, names) = (Caches::new(), Lists::new(), Names::new());
    let served = args.server.as_deref().map(Served::start).transpose()?;
    let mut workers: Vec<(&str, Step<'_>)> = vec![
        ("tenants", caches.tenants(1)),
        ("tenants", caches.tenants(2)),
        ("pressure", caches.pressure()),
        ("lists", lists.items(3)),
        ("lists", lists.items(4)),
        ("churn", lists.churn(caches.runtime())),
        ("names", names.users(5)),
        ("names", names.users(6)),
    ];
    if let Some(served) = &served {
        workers.push(("server", served.client(7)?));
        workers.push(("server", served.client(8)?));
    }
    let share = f64::from(args.cpu) / 100.0 / workers.len() as f64;

    // Held for reading by each step, for writing while all workers must stand still.
    let world = RwLock::new(());
    let pace = Pace::new(share);
    let mut watch = Watch::new(served.as_ref().map(Served::pid));
    std::thread::scope(|s| {
        let mut outcome = Ok(());
        let end = AtEnd(|| pace.stop());
        let handles: Vec<_> =
            workers.into_iter().map(|(name, step)| (name, s.spawn(|| pace.go_on(&world, step)))).collect();
        let (start, mut second) = (Instant::now(), 0);
        while outcome.is_ok() && second < args.seconds && !handles.iter().any(|(_, handle)| handle.is_finished()) {
            second += 1;
            let due = Duration::from_secs(second);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            let still = world.write().expect("a worker that panics is found below");
            caches.check();
            lists.check();
            names.check();
            outcome = served.as_ref().map_or(Ok(()), Served::check);
            if second % EMPTY_EVERY == 0 {
                let bytes = [caches.empty(), lists.empty(), names.empty()];
                outcome = outcome.and_then(|()| watch.emptied(bytes));
            }
            drop(still);
            watch.look(second);
        }
        drop(end);
        for (name, handle) in handles {
            match handle.join() {
                Ok(steps) => watch.did(name, steps),
                Err(_) => outcome = Err(format!("a worker of {name} panicked")),
            }
        }
        outcome
    })?;
    if let Some(served) = served {
        served.stop()?;
    }
    drop((caches, lists, names));
    watch.judge()
}
