//! The directory, seen through the cache.
//!
//! It translates between the kernel's file numbers (`nodes`), the cache (`lowwater-dcache-model`)
//! and the real directory.
//!
//! A change must ensure that no cached name is trusted for longer than the table of the main file
//! promises.

use crate::args::Args;
use crate::nodes::{Node, Nodes, Seen};
use fuser::Errno;
use lowwater::{MemcgTree, Registry};
use lowwater_dcache_model::backend::Files;
use lowwater_dcache_model::negative::BoundInputs;
use lowwater_dcache_model::{Dcache, ErrorKind, Kind, Mount, WalkControl};
use lowwater_lru_core::topology::Fixed;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The coarsest clock of a file system in use, FAT's: a directory that changed this long ago gets
/// other times when it changes again.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// Attempts for a name that is replaced during its lookup.
const TRIES: u32 = 4;
/// Dentries that the report visits in one step of its walk.
const STEP: usize = 1024;

/// The mirror: see the module.
pub struct Mirror {
    // Dropped before the registry that it is registered at.
    mount: Mount,
    dcache: Dcache,
    _registry: Registry,
    source: PathBuf,
    device: u64,
    check_after: Duration,
    pub entry_timeout: Duration,
    pub nodes: Nodes,
    /// Lookups that found the name, or found that it is missing; not those that failed.
    lookups: AtomicU64,
    missing: AtomicU64,
    invalidated: AtomicU64,
}

/// A name in a directory.
pub struct Listed {
    pub name: OsString,
    /// The kernel's number of the file.
    pub id: u64,
    pub kind: fuser::FileType,
}

impl Mirror {
    /// Opens the directory, and mounts it under a dentry cache of its own with the policy of the
    /// arguments.
    pub fn new(source: &Path, args: &Args) -> Result<Self, Box<dyn std::error::Error>> {
        let meta = fs::metadata(source)?;
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, 1);
        // One node, so that the policy's bound covers all.
        let dcache = Dcache::builder()
            .buckets(args.buckets as usize)
            .boxed_policy(args.policy())
            .topology(Arc::new(Fixed::new(1)))
            .build();
        let mount = dcache.mount(Arc::new(Files::open(source)?), &registry, tree.root())?;
        Ok(Self {
            mount,
            dcache,
            _registry: registry,
            source: source.to_path_buf(),
            device: meta.dev(),
            check_after: args.check_after,
            entry_timeout: args.entry_timeout,
            nodes: Nodes::new(meta.ino()),
            lookups: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            invalidated: AtomicU64::new(0),
        })
    }

    pub fn node(&self, id: u64) -> Result<Arc<Node>, Errno> {
        self.nodes.get(id).ok_or(Errno::ESTALE)
    }

    /// The path of a node outside of the mirror.
    pub fn outside(&self, path: &[u8]) -> PathBuf {
        self.source.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)))
    }

    /// The file of a node, if it is still where the kernel found it.
    pub fn attributes(&self, node: &Node) -> Result<Metadata, Errno> {
        match fs::symlink_metadata(self.outside(&node.path)) {
            Ok(meta) if self.is(&meta, node.inode) => Ok(meta),
            Err(error) if !is_missing(&error) => Err(error.into()),
            // It was moved, removed or replaced: the kernel looks its name up again.
            _ => Err(Errno::ESTALE),
        }
    }

    /// Whether this is the mirrored file with that number.
    pub fn is(&self, meta: &Metadata, inode: u64) -> bool {
        meta.dev() == self.device && meta.ino() == inode
    }

    /// Looks a name up in a directory, and returns the file with its path. A cached negative is
    /// answered without the directory.
    ///
    /// The kernel's lookup is not recorded, because the reply may yet be an error, which the kernel
    /// does not count: the caller calls [`Nodes::tell`].
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<(Metadata, Vec<u8>), Errno> {
        let dir = self.node(parent)?;
        self.freshen(&dir)?;
        let path = join(&dir.path, name.as_bytes());
        for _ in 0..TRIES {
            let Some(cached) = self.mount.stat(&path).map_err(errno)? else {
                // Relaxed, here and below: statistics.
                self.lookups.fetch_add(1, Relaxed);
                self.missing.fetch_add(1, Relaxed);
                return Err(Errno::ENOENT);
            };
            match fs::symlink_metadata(self.outside(&path)) {
                Ok(meta) if meta.dev() != self.device => return Err(Errno::EXDEV),
                Ok(meta) if meta.ino() == cached.inode && kind(&meta) == cached.kind => {
                    self.lookups.fetch_add(1, Relaxed);
                    return Ok((meta, path));
                }
                Err(error) if !is_missing(&error) => return Err(error.into()),
                // It was removed or replaced since it was cached.
                _ => {}
            }
            let had = self.mount.invalidate(&path).map_err(errno)?;
            self.invalidated.fetch_add(u64::from(had), Relaxed);
        }
        Err(Errno::ESTALE)
    }

    /// Drops a directory's negatives if the directory may have changed since the last check. Does
    /// nothing within `check_after` of that check.
    fn freshen(&self, dir: &Node) -> Result<(), Errno> {
        let mut seen = dir.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if seen.at.is_some_and(|at| now - at < self.check_after) {
            return Ok(());
        }
        let meta = self.attributes(dir)?;
        let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
        if seen.times != Some(times) {
            let given_up = self.mount.invalidate_negatives(&dir.path).map_err(errno)?;
            self.invalidated.fetch_add(given_up, Relaxed);
        }
        let age = SystemTime::now().duration_since(time(meta.ctime(), meta.ctime_nsec()));
        let settled = age.is_ok_and(|age| age > SETTLED_AFTER);
        *seen = Seen { at: Some(now), times: settled.then_some(times) };
        Ok(())
    }

    /// The names in a directory.
    pub fn list(&self, dir: &Node) -> Result<Vec<Listed>, Errno> {
        let above = dir.path.iter().rposition(|&b| b == b'/').map_or(&b"/"[..], |at| &dir.path[..at.max(1)]);
        let above = fs::symlink_metadata(self.outside(above)).map_or(dir.inode, |meta| meta.ino());
        let dots = [(".", dir.inode), ("..", above)].map(|(name, inode)| Listed {
            name: name.into(),
            id: self.nodes.id(inode),
            kind: fuser::FileType::Directory,
        });
        let names = self.mount.readdir(&dir.path).map_err(errno)?;
        let listed = names.into_iter().filter_map(|entry| {
            let kind = match entry.kind {
                Kind::File => fuser::FileType::RegularFile,
                Kind::Directory => fuser::FileType::Directory,
                // A link, a device, a socket; or another mount, which is left out.
                Kind::Other => {
                    let meta = fs::symlink_metadata(self.outside(&join(&dir.path, &entry.name))).ok()?;
                    fuser::FileType::from_std(meta.file_type()).filter(|_| meta.dev() == self.device)?
                }
            };
            Some(Listed { name: OsString::from_vec(entry.name.into_vec()), id: self.nodes.id(entry.inode), kind })
        });
        Ok(dots.into_iter().chain(listed).collect())
    }

    /// The counters, a line each, by names that `ci/fuse.sh` reads; its last one is
    /// `known_to_kernel`. O(positives cached).
    pub fn report(&self) -> String {
        let state = self.dcache.statistics();
        let policy = self.dcache.policy();
        let inputs = BoundInputs {
            buckets: self.dcache.buckets() as u64,
            positives: state.nr_unused.saturating_sub(state.nr_negative),
            directories: self.directories(),
        };
        let bound = policy.bound(inputs).map_or("none".into(), |bound| bound.to_string());
        let mut text = format!("policy {}\nbound {bound}", policy.name());
        let figures = [
            ("negatives", state.nr_negative),
            ("positives", inputs.positives),
            ("dentries", state.nr_dentry),
            ("lookups", self.lookups.load(Relaxed)),
            ("missing", self.missing.load(Relaxed)),
            ("backend_lookups", state.backend_lookups),
            ("trimmed", state.trimmed),
            ("promoted", state.promoted),
            ("ghost_hits", state.ghost_hits),
            ("invalidated", self.invalidated.load(Relaxed)),
            ("known_to_kernel", self.nodes.len() as u64),
        ];
        for (name, figure) in figures {
            // To a string: it cannot fail.
            let _ = write!(text, "\n{name} {figure}");
        }
        text + "\n"
    }

    /// Directories that are cached, the root among them.
    fn directories(&self) -> u64 {
        let mut directories = 1;
        let Ok(mut walk) = self.mount.walk_positives(b"/") else { return directories };
        while walk.step(STEP, |step| {
            directories += u64::from(step.kind() == Some(Kind::Directory));
            WalkControl::Continue
        }) {}
        directories
    }
}

/// The model's kind of a file.
fn kind(meta: &Metadata) -> Kind {
    match meta.file_type() {
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_file() => Kind::File,
        _ => Kind::Other,
    }
}

/// Converts a time of the system; `nanoseconds` counts forward, also before 1970.
pub fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    whole + Duration::from_nanos(nanoseconds.unsigned_abs())
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir == b"/" { b"" } else { b"/" };
    [dir, slash, name].concat()
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The system's error number for an error of the cache.
fn errno(error: lowwater_dcache_model::Error) -> Errno {
    match error.kind() {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::NotADirectory => Errno::ENOTDIR,
        ErrorKind::NameTooLong => Errno::ENAMETOOLONG,
        ErrorKind::InvalidName => Errno::EINVAL,
        ErrorKind::Backend(error) => error.raw_os_error().map_or(Errno::EIO, Errno::from_i32),
        _ => Errno::EIO,
    }
}
