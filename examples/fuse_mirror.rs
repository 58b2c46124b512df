//! A directory, mirrored read-only at a mount point, with the dentry cache in between: the cache
//! answers lookups of names that do not exist, and a flood of them cannot fill it.
//!
//! ```text
//! cargo run --release --features fuse --example fuse_mirror -- /usr/include /mnt/include --statistics
//! ```
//!
//! Needs Linux, `/dev/fuse`, and either the right to mount or `fusermount3` (Debian's package
//! fuse3). SIGINT and SIGTERM unmount; SIGUSR1 prints the counters. Only the mounting user can
//! access it.
//!
//! # Cached data, and for how long
//!
//! | | by the kernel | here |
//! |---|---|---|
//! | a name that exists | `--entry-timeout`, 1 s | until memory is short, but compared with the directory at each lookup that arrives here |
//! | a name that does not | never: the kernel would not bound them | as the policy decides, until its directory changed |
//! | times, sizes, modes | `--entry-timeout`, 1 s | never |
//! | contents | while a file is open | never |
//!
//! So a new file in the mirrored directory is visible at most `--check-after` (1 s) later, if the
//! mirror had cached its absence: at that interval a directory's times are compared with the last
//! ones, and if they differ, its negatives are dropped. Times younger than 2 s prove nothing,
//! because the next change may have the same; then the negatives are dropped each time. A removed
//! or replaced file is noticed at most `--entry-timeout` later.
//!
//! Other mounts below the directory are not entered, and not listed.
//!
//! `ci/fuse.sh` checks all of this. It also searches for the line that begins with "serving", and
//! for "detaching" where a mount is in use.

#![forbid(unsafe_code)]

#[path = "fuse_mirror/args.rs"]
mod args;
#[path = "fuse_mirror/mirror.rs"]
mod mirror;
#[path = "fuse_mirror/nodes.rs"]
mod nodes;
#[path = "fuse_mirror/served.rs"]
mod served;

use args::Args;
use clap::Parser;
use fuser::{Config, MountOption, Session};
use mirror::Mirror;
use rustix::mount::UnmountFlags;
use served::Served;
use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::oneshot;

/// How long users of a detached mount may take to leave.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let args = Args::parse();
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => match runtime.block_on(run(&args)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&*error),
        },
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Mounts the mirror and serves it until a signal, or until another process unmounts it.
async fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let (source, point) = args.places()?;
    let mirror = Arc::new(Mirror::new(&source, args)?);
    // Before the mount: a signal that arrives just then must not leave the mount behind.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut usr1 = signal(SignalKind::user_defined1())?;

    let config = config(&source, args.threads);
    let mut session = Session::new(Served::new(Arc::clone(&mirror)), &point, &config)
        .map_err(|error| args::cannot_mount(&point, &error))?;
    let mut unmounter = session.unmount_callable();
    let (ended, mut end) = oneshot::channel();
    std::thread::spawn(move || ended.send(session.run()));
    tell(io::stdout(), format_args!("serving {} at {}", source.display(), point.display()));

    let result = loop {
        tokio::select! {
            // Another process unmounted it.
            result = &mut end => break result?,
            _ = usr1.recv() => tell(io::stdout(), format_args!("{}", mirror.report())),
            _ = interrupt.recv() => break leave(&point, unmounter.unmount(), end).await,
            _ = terminate.recv() => break leave(&point, unmounter.unmount(), end).await,
        }
    };
    if args.statistics {
        tell(io::stdout(), format_args!("{}", mirror.report()));
    }
    Ok(result?)
}

/// Writes a line, if possible: a failed print must not leave the mount without a server.
fn tell(mut to: impl Write, line: fmt::Arguments<'_>) {
    let _ = writeln!(to, "{line}");
}

fn config(source: &Path, threads: usize) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::DefaultPermissions,
        // A comma would end the name, because the options are one string.
        MountOption::FSName(source.to_string_lossy().replace(',', "?")),
        MountOption::Subtype("lowwater".into()),
    ];
    config.n_threads = Some(threads);
    config
}

/// Waits for the end of the session. A mount in use is detached: new lookups do not find it.
async fn leave(point: &Path, unmounted: io::Result<()>, end: oneshot::Receiver<io::Result<()>>) -> io::Result<()> {
    if let Err(error) = unmounted {
        tell(io::stderr(), format_args!("{}: {error}; detaching it", point.display()));
        if rustix::mount::unmount(point, UnmountFlags::DETACH).is_err() {
            let status = Command::new("fusermount3").args(["-u", "-z"]).arg(point).status()?;
            if !status.success() {
                return Err(io::Error::other(format!("{} is still mounted: {error}", point.display())));
            }
        }
    }
    match tokio::time::timeout(LEAVE_WITHIN, end).await {
        Ok(result) => result.map_err(io::Error::other)?,
        Err(_) => {
            tell(io::stderr(), format_args!("{}: still in use; its users get errors from now on", point.display()));
            Ok(())
        }
    }
}
