//! Recordings of path lookups, and replays of them against a cache.
//!
//! A recording is text with one operation per line: an operation code, a tab, a path from the root,
//! a tab, and 1 if the path existed before the operation, otherwise 0; a move has the new path
//! there.
//!
//! ```text
//!     l<TAB>/usr/include/stdio.h<TAB>1      lookup, found
//!     l<TAB>/usr/local/include/stdio.h<TAB>0
//!     c<TAB>/tmp/cc1.s<TAB>0                create
//!     u<TAB>/tmp/cc1.s<TAB>1                remove
//!     m<TAB>/a/x.tmp<TAB>/a/x               move
//! ```
//!
//! A tab, a newline and a backslash in a path are written as `\t`, `\n` and `\\`.
//!
//! A change must keep old recordings readable, and the output of
//! `benches/data/strace-to-recording.py`, which writes this format.

use crate::backend::Memory;
use crate::error::ErrorKind;
use crate::kind::Kind;
use crate::mount::Mount;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// An operation of a recording: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedOp {
    /// A path was looked up; the flag is whether it existed.
    Lookup(Box<[u8]>, bool),
    /// A path was created, unless the flag says that it existed.
    Create(Box<[u8]>, bool),
    /// A path was removed, if the flag says that it existed.
    Unlink(Box<[u8]>, bool),
    /// A path was moved.
    Rename(Box<[u8]>, Box<[u8]>),
}

/// A line that is not an operation of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the recording is not `op<TAB>path<TAB>0 or 1, or the other path`")]
pub struct ParseError {
    /// The number of the line, from 1.
    pub line: usize,
}

/// Parses a recording.
///
/// # Errors
///
/// [`ParseError`] with the first line that cannot be parsed.
pub fn parse(text: &[u8]) -> Result<Vec<RecordedOp>, ParseError> {
    let lines = text.split(|&b| b == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    lines.map(|(n, line)| parse_line(line).ok_or(ParseError { line: n + 1 })).collect()
}

fn parse_line(line: &[u8]) -> Option<RecordedOp> {
    let mut fields = line.split(|&b| b == b'\t');
    let (op, path, last) = (fields.next()?, fields.next()?, fields.next()?);
    let path = unescape_path(path)?;
    if fields.next().is_some() {
        return None;
    }
    let existed = match last {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    };
    match op {
        b"l" => Some(RecordedOp::Lookup(path, existed?)),
        b"c" => Some(RecordedOp::Create(path, existed?)),
        b"u" => Some(RecordedOp::Unlink(path, existed?)),
        b"m" => Some(RecordedOp::Rename(path, unescape_path(last)?)),
        _ => None,
    }
}

/// Returns the path of a field; `None` unless it begins at the root.
fn unescape_path(field: &[u8]) -> Option<Box<[u8]>> {
    if field.first() != Some(&b'/') {
        return None;
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.iter();
    while let Some(&byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b't' => b'\t',
                b'n' => b'\n',
                b'\\' => b'\\',
                _ => return None,
            },
            other => other,
        });
    }
    Some(bytes.into())
}

/// The counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Lookups of paths.
    pub lookups: u64,
    /// Lookups that found nothing, or failed.
    pub missing: u64,
    /// Those of `missing` that were answered without the backend, mostly by a negative dentry.
    pub negative_hits: u64,
    /// The most negative dentries that were cached at one time.
    pub negatives_max: u64,
    /// Negative dentries cached at the end.
    pub negatives: u64,
    /// Positive dentries cached at the end.
    pub positives: u64,
}

/// Returns a backend that holds each path that existed at its first mention in the recording (a
/// moved one counts as existing), and the directories through which each path leads that the
/// recording found, created, removed or moved. A file or directory that a recorded move brings to a
/// path is at the path from which it comes.
///
/// # Errors
///
/// [`InvalidInput`](std::io::ErrorKind::InvalidInput), if the name of one of these directories is
/// too long or has a NUL byte.
pub fn backend_for(ops: &[RecordedOp]) -> std::io::Result<Memory> {
    let memory = Memory::new();
    let mut made: HashSet<Box<[u8]>> = HashSet::new();
    let mut dirs: HashSet<Box<[u8]>> = HashSet::new();
    let mut files: Vec<Box<[u8]>> = Vec::new();
    let mut moves = Moves::default();
    for op in ops {
        let (path, existed) = match op {
            RecordedOp::Lookup(path, existed)
            | RecordedOp::Create(path, existed)
            | RecordedOp::Unlink(path, existed) => (path, *existed),
            RecordedOp::Rename(path, _) => (path, true),
        };
        let needs_dirs = existed || !matches!(op, RecordedOp::Lookup(..));
        let mut visit_dir = |dir: &[u8]| {
            if needs_dirs {
                let dir = moves.origin(dir);
                if !dirs.contains(&*dir) {
                    dirs.insert(dir.into());
                }
            }
        };
        let path = resolve(path, &mut visit_dir);
        let to = match op {
            RecordedOp::Rename(_, to) => Some(resolve(to, visit_dir)),
            _ => None,
        };
        let origin: Box<[u8]> = moves.origin(&path).into();
        if existed && !made.contains(&path) && !made.contains(&origin) {
            files.push(origin.clone());
        }
        match to {
            Some(to) => {
                moves.rename(&path, to.clone());
                made.insert(to);
            }
            None if matches!(op, RecordedOp::Unlink(..)) && !moves.0.is_empty() => moves.forget(&path),
            None => {}
        }
        made.extend([path, origin]);
    }
    for dir in &dirs {
        memory.create_path(dir, Kind::Directory)?;
    }
    for file in files {
        if !dirs.contains(&file) {
            // A file that contradicts a directory of the same recording is left out.
            let _ = memory.create_path(&file, Kind::File);
        }
    }
    Ok(memory)
}

/// The targets of the moves so far, each with the path at which it was when the recording began.
#[derive(Default)]
struct Moves(HashMap<Box<[u8]>, Box<[u8]>>);

impl Moves {
    /// Returns the path at which the recording began with what is at a resolved path now. O(bytes
    /// of the path).
    fn origin<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        if self.0.is_empty() {
            return Cow::Borrowed(path);
        }
        let ends = path.iter().enumerate().skip(1).filter(|(_, &b)| b == b'/').map(|(at, _)| at);
        let moved = ends.chain([path.len()]).filter_map(|end| Some((self.0.get(&path[..end])?, end))).next_back();
        moved.map_or(Cow::Borrowed(path), |(from, end)| Cow::Owned([from, &path[end..]].concat()))
    }

    /// Notes a move. O(moves), as targets below `from` move, too.
    fn rename(&mut self, from: &[u8], to: Box<[u8]>) {
        let origin = self.origin(from).into();
        self.forget(&to);
        let below = |path: &[u8]| path.strip_prefix(from).filter(|rest| rest.starts_with(b"/")).map(<[u8]>::to_vec);
        let moved: Vec<_> = self.0.iter().filter_map(|(at, from)| Some((below(at)?, from.clone()))).collect();
        self.forget(from);
        self.0.extend(moved.into_iter().map(|(rest, from)| ([&*to, &*rest].concat().into(), from)));
        self.0.insert(to, origin);
    }

    /// Forgets what was moved to a path and below it.
    fn forget(&mut self, path: &[u8]) {
        self.0.retain(|at, _| at.strip_prefix(path).is_none_or(|rest| !rest.is_empty() && !rest.starts_with(b"/")));
    }
}

/// Returns a path without `.`, `..` and empty components, which is empty for the root. Calls
/// `visit_dir` with each directory on the way, also with one that is left again by `..`.
fn resolve(path: &[u8], mut visit_dir: impl FnMut(&[u8])) -> Box<[u8]> {
    let mut resolved = Vec::with_capacity(path.len());
    let mut parts = path.split(|&b| b == b'/').peekable();
    while let Some(part) = parts.next() {
        match part {
            b"" | b"." => {}
            b".." => resolved.truncate(resolved.iter().rposition(|&b| b == b'/').unwrap_or(0)),
            name => {
                resolved.push(b'/');
                resolved.extend_from_slice(name);
            }
        }
        if parts.peek().is_some() || matches!(part, b"." | b"..") {
            visit_dir(&resolved);
        }
    }
    resolved.into()
}

/// Replays a recording against a mount with backend `backend`. An operation that fails is
/// skipped, because a recording may be incomplete.
///
/// # Errors
///
/// Only [`ErrorKind::Backend`].
pub fn run(ops: &[RecordedOp], mount: &Mount, backend: &Memory) -> Result<ReplayCounts, crate::Error> {
    let mut tally = ReplayCounts::default();
    for op in ops {
        match op {
            RecordedOp::Lookup(path, _) => {
                let before = backend.lookups();
                let found = skip_failed(mount.lookup(path).map(|found| found.is_some()))?;
                tally.lookups += 1;
                if found != Some(true) {
                    tally.missing += 1;
                    tally.negative_hits += u64::from(backend.lookups() == before);
                }
            }
            RecordedOp::Create(path, _) => {
                skip_failed(mount.create(path).map(drop))?;
            }
            RecordedOp::Unlink(path, _) => {
                skip_failed(mount.unlink(path))?;
            }
            RecordedOp::Rename(from, to) => {
                skip_failed(mount.rename(from, to))?;
            }
        }
        tally.negatives_max = tally.negatives_max.max(mount.core.counters.read().nr_negative);
    }
    let state = mount.core.counters.read();
    tally.negatives = state.nr_negative;
    tally.negatives_max = tally.negatives_max.max(state.nr_negative);
    tally.positives = state.nr_dentry.saturating_sub(state.nr_negative);
    Ok(tally)
}

fn skip_failed<T>(result: Result<T, crate::Error>) -> Result<Option<T>, crate::Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::Backend(_)) => Err(error),
        Err(_) => Ok(None),
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use crate::Dcache;
    use lowwater_lru_core::topology::Fixed;
    use lowwater_lru_core::MemcgTree;
    use lowwater_shrinker::Registry;
    use std::sync::Arc;

    /// Returns a mount with its cache and registry; dropped in this order.
    fn mounted(memory: &Arc<Memory>) -> (Mount, Dcache, Registry) {
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, 1);
        let dcache = Dcache::builder().topology(Arc::new(Fixed::new(1))).build();
        (dcache.mount(memory.clone(), &registry, tree.root()).unwrap(), dcache, registry)
    }

    #[test]
    fn replayed_lookups_find_the_recorded_names() {
        let text = b"l\t/usr/include/a.h\t1\nl\t/usr/include/no.h\t0\nl\t/usr/include/no.h\t0\nc\t/tmp/a\t0\nm\t/tmp/a\t/tmp/b\n\
            l\t/tmp/b\t1\nu\t/tmp/b\t1\nl\t/tmp/b\t0\nu\t/tmp/never\t0\n";
        let ops = parse(text).unwrap();
        let memory = Arc::new(backend_for(&ops).unwrap());
        let stage = mounted(&memory);
        let tally = run(&ops, &stage.0, &memory).unwrap();
        assert_eq!((tally.lookups, tally.missing), (5, 3), "a.h and b were there");
        assert_eq!(tally.negative_hits, 2, "no.h the second time, and b, which was removed");
        // no.h; b, which was removed; and `never`, which did not exist.
        assert_eq!((tally.negatives, tally.negatives_max), (3, 3));
        assert_eq!(tally.positives, 5, "the root, /usr, include, a.h and /tmp");
    }

    #[test]
    fn backend_for_contains_the_preexisting_paths_only() {
        let text = b"c\t/made/here\t0\nl\t/made/here\t1\nl\t/was/dir\t1\nl\t/was/dir/x\t1\nl\t/not/there\t0\n\
            c\t/made/before\t1\nu\t/made/gone\t1\nu\t/made/never\t0\nl\t/made/never\t1\n";
        let ops = parse(text).unwrap();
        let stage = mounted(&Arc::new(backend_for(&ops).unwrap()));
        let is = |path: &[u8]| stage.0.lookup(path).unwrap().map(|entry| entry.kind());
        assert_eq!(is(b"/made"), Some(Kind::Directory), "where something is made, a directory is");
        assert_eq!(is(b"/made/here"), None, "the recording makes it");
        assert_eq!((is(b"/was/dir"), is(b"/was/dir/x")), (Some(Kind::Directory), Some(Kind::File)));
        assert_eq!(is(b"/not"), None);
        assert_eq!(
            (is(b"/made/before"), is(b"/made/gone")),
            (Some(Kind::File), Some(Kind::File)),
            "before the recording"
        );
        assert_eq!(is(b"/made/never"), None, "it did not exist when it was to be removed first");
    }

    #[test]
    fn backend_for_resolves_dots() {
        let text = b"l\t/a/../b/./f\t1\nl\t/../c/d/..\t1\nm\t/b/x\t/q/../y\nl\t/y\t1\nl\t/../no/f\t0\n";
        let ops = parse(text).unwrap();
        let memory = Arc::new(backend_for(&ops).unwrap());
        let stage = mounted(&memory);
        let is = |path: &[u8]| stage.0.lookup(path).unwrap().map(|entry| entry.kind());
        assert_eq!((is(b"/b/f"), is(b"/b/x")), (Some(Kind::File), Some(Kind::File)));
        for dir in [b"/a", b"/c", b"/q"] {
            assert_eq!(is(dir), Some(Kind::Directory), "a path leads through {}", dir.escape_ascii());
        }
        assert_eq!((is(b"/y"), is(b"/no")), (None, None), "the recording makes one, and did not find the other");
        assert_eq!(run(&ops, &stage.0, &memory).unwrap().missing, 1, "all but /no/f are found");
    }

    #[test]
    fn what_a_recorded_move_brings_is_not_there_before() {
        let recordings = [
            &b"l\t/a/f\t1\nm\t/a\t/b\nl\t/b/f\t1\nm\t/c\t/b/d\nl\t/b/d\t1\n"[..],
            b"m\t/a\t/b\nl\t/b/f\t1\nm\t/b\t/c\nl\t/c/f\t1\nl\t/c/g/h\t1\n",
            b"m\t/x\t/a/d\nm\t/a\t/b\nl\t/b/d/f\t1\n",
            // One file, which the recording itself makes.
            b"l\t/d/f\t0\nc\t/d/f\t0\nm\t/d\t/e\nl\t/e/f\t1\n",
        ];
        for (text, missing) in recordings.into_iter().zip([0, 0, 0, 1]) {
            let ops = parse(text).unwrap();
            let memory = Arc::new(backend_for(&ops).unwrap());
            let stage = mounted(&memory);
            assert!(stage.0.lookup(b"/b").unwrap().is_none());
            assert_eq!(run(&ops, &stage.0, &memory).unwrap().missing, missing, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn valid_lines_are_parsed_and_invalid_ones_numbered() {
        let ops = parse(b"l\t/a\t1\nc\t/b\\tc\t0\nu\t/a\\n\\\\\t1\nm\t/a\t/b\n").unwrap();
        assert_eq!(ops[0], RecordedOp::Lookup(b"/a"[..].into(), true));
        assert_eq!(ops[1], RecordedOp::Create(b"/b\tc"[..].into(), false));
        assert_eq!(ops[2], RecordedOp::Unlink(b"/a\n\\"[..].into(), true));
        assert_eq!(ops[3], RecordedOp::Rename(b"/a"[..].into(), b"/b"[..].into()));
        let bad =
            [&b"l\t/a\t1\nl\ta\t1"[..], b"\nl\t/a", b"\nx\t/a\t1", b"\nl\t/a\t2", b"\nl\t/a\\x\t1", b"\nl\t/a\t1\t"];
        for bad in bad.into_iter().chain([&b"\nm\t/a\t1"[..], b"\nm\t/a\t"]) {
            assert_eq!(parse(bad), Err(ParseError { line: 2 }), "{}", bad.escape_ascii());
        }
    }
}
