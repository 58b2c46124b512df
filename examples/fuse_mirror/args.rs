//! The command line, and its errors in words.
//!
//! A failed mount has many causes, so an error names a remedy where there is one.
//!
//! A new argument needs its default in `--help`. `ci/fuse.sh` searches for parts of the errors.

use clap::{Parser, ValueEnum};
use lowwater_dcache_model::negative::{NegativePolicy, PerDirectory, Probation, ThreeInARow, Unbounded};
use std::error::Error;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

/// Mirrors a directory, read-only, with a dentry cache in between that a flood of missing names
/// cannot fill.
#[derive(Debug, Parser)]
pub struct Args {
    /// The directory to mirror
    source: PathBuf,
    /// Where to mount it: an empty directory
    mount_point: PathBuf,
    /// The policy that bounds cached names that do not exist
    #[arg(long, value_enum, default_value_t = PolicyName::Default)]
    policy: PolicyName,
    /// Buckets of the table of names
    #[arg(long, default_value_t = 1 << 16, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub buckets: u32,
    /// Requests that are answered concurrently
    #[arg(long, default_value_t = 1, value_parser = parse_threads)]
    pub threads: usize,
    /// Seconds for which the kernel caches a name that exists, and its attributes
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = parse_seconds)]
    pub entry_timeout: Duration,
    /// Seconds between two checks of a directory for files that others made
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = parse_seconds)]
    pub check_after: Duration,
    /// Print the cache's counters at the end
    #[arg(long)]
    pub statistics: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyName {
    Unbounded,
    ThreeInARow,
    PerDirectory,
    Default,
}

impl Args {
    pub fn policy(&self) -> Box<dyn NegativePolicy> {
        match self.policy {
            PolicyName::Unbounded => Box::new(Unbounded),
            PolicyName::ThreeInARow => Box::new(ThreeInARow),
            PolicyName::PerDirectory => Box::new(PerDirectory::default()),
            PolicyName::Default => Box::new(Probation::default()),
        }
    }

    /// Returns the directory and the mount point, as absolute paths, if one can be mounted on the
    /// other.
    pub fn places(&self) -> Result<(PathBuf, PathBuf), Box<dyn Error>> {
        let source = directory(&self.source, "the directory to mirror")?;
        let point = directory(&self.mount_point, "the mount point")?;
        if point.starts_with(&source) || source.starts_with(&point) {
            let (source, point) = (source.display(), point.display());
            return Err(format!("{source} and {point} are one in the other: the mirror would look into itself").into());
        }
        if std::fs::read_dir(&point).map_err(|error| format!("{}: {error}", point.display()))?.next().is_some() {
            return Err(
                format!("{}: the mount point is not empty, and its content would be hidden", point.display()).into()
            );
        }
        if !Path::new(DEVICE).exists() {
            return Err(format!("there is no {DEVICE}: `modprobe fuse`, or give the container that device").into());
        }
        Ok((source, point))
    }
}

fn directory(path: &Path, what: &str) -> Result<PathBuf, String> {
    let tell = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("{}: {what} does not exist", path.display()),
        io::ErrorKind::NotConnected => {
            format!("{}: {what} is a mount whose server is gone; `{HELPER} -u` removes it", path.display())
        }
        _ => format!("{}: {what}: {error}", path.display()),
    };
    let path = path.canonicalize().map_err(tell)?;
    match std::fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => Ok(path),
        Ok(_) => Err(format!("{}: {what} is not a directory", path.display())),
        Err(error) => Err(tell(error)),
    }
}

/// The reason for a failed mount, and a remedy.
pub fn cannot_mount(point: &Path, error: &io::Error) -> String {
    let help = match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Err(error) => format!("; {DEVICE} cannot be opened: {error}"),
        Ok(_) if helper_is_there() => String::new(),
        Ok(_) => {
            format!(
                "; without the right to mount, `{HELPER}` is needed, which is not installed (Debian's package fuse3)"
            )
        }
    };
    let error = error.to_string();
    format!("cannot mount on {}: {}{help}", point.display(), error.trim())
}

fn helper_is_there() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = ["/bin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(known).any(|dir| dir.join(HELPER).is_file())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("`{text}` is not a number of seconds: 0, 0.5, 60"))
}

fn parse_threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| (1..=256).contains(threads));
    threads.ok_or_else(|| format!("`{text}` is not a number of threads: 1 to 256"))
}
