//! Random sequences of calls, compared with a plain model of a tree.
//!
//! proptest draws calls; results, counters and invariants are compared after each step.
//!
//! The model must stay plain enough to be right by reading.

use super::Fixture;
use crate::negative::{PerDirectory, Probation, ThreeInARow, Unbounded};
use crate::{ErrorKind, Kind, NegativePolicy, OnUnlink};
use lowwater_lru_core::ByteSize;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;

#[derive(Clone, Debug)]
enum Op {
    Lookup(Vec<u8>),
    Stat(Vec<u8>),
    Create(Vec<u8>),
    Mkdir(Vec<u8>),
    Unlink(Vec<u8>),
    Rmdir(Vec<u8>),
    Link(Vec<u8>, Vec<u8>),
    Rename(Vec<u8>, Vec<u8>),
    Watch(Vec<u8>),
    Shrink,
    ShrinkTree(Vec<u8>),
    Invalidate(Vec<u8>),
    InvalidateNegatives(Vec<u8>),
}

/// The model: full paths, each with its kind and inode number.
#[derive(Default, Debug)]
struct Model {
    names: BTreeMap<Vec<u8>, (Kind, u64)>,
    next: u64,
}

type Outcome = Result<Option<Kind>, io::ErrorKind>;

impl Model {
    fn get(&self, path: &[u8]) -> Option<(Kind, u64)> {
        if path.is_empty() {
            return Some((Kind::Directory, 0));
        }
        self.names.get(path).copied()
    }

    /// Returns an error if a file is on the way, `Ok(false)` if a directory is missing.
    fn parents(&self, path: &[u8]) -> Result<bool, io::ErrorKind> {
        for (at, _) in path.iter().enumerate().filter(|&(at, &b)| at > 0 && b == b'/') {
            match self.get(&path[..at]) {
                None => return Ok(false),
                Some((Kind::Directory, _)) => {}
                Some(_) => return Err(io::ErrorKind::NotADirectory),
            }
        }
        Ok(true)
    }

    fn must(&self, path: &[u8]) -> Result<(), io::ErrorKind> {
        self.parents(path)?.then_some(()).ok_or(io::ErrorKind::NotFound)
    }

    fn below(&self, dir: &[u8]) -> Vec<Vec<u8>> {
        let prefix = [dir, b"/"].concat();
        self.names.keys().filter(|name| name.starts_with(&prefix)).cloned().collect()
    }

    fn make(&mut self, path: &[u8], kind: Kind) -> Outcome {
        self.must(path)?;
        if self.get(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists);
        }
        self.next += 1;
        self.names.insert(path.into(), (kind, self.next));
        Ok(Some(kind))
    }

    fn remove(&mut self, path: &[u8], directory: bool) -> Outcome {
        self.must(path)?;
        match (self.get(path), directory) {
            (None, _) => return Err(io::ErrorKind::NotFound),
            (Some((Kind::Directory, _)), false) => return Err(io::ErrorKind::IsADirectory),
            (Some((Kind::File, _)), true) => return Err(io::ErrorKind::NotADirectory),
            _ => {}
        }
        if !self.below(path).is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty);
        }
        self.names.remove(path);
        Ok(None)
    }

    fn link(&mut self, old: &[u8], new: &[u8]) -> Outcome {
        self.must(old)?;
        let (kind, file) = self.get(old).ok_or(io::ErrorKind::NotFound)?;
        if kind == Kind::Directory {
            return Err(io::ErrorKind::IsADirectory);
        }
        self.must(new)?;
        if self.get(new).is_some() {
            return Err(io::ErrorKind::AlreadyExists);
        }
        self.names.insert(new.into(), (kind, file));
        Ok(Some(kind))
    }

    /// Renames in the model, with the same errors as the cache.
    fn rename(&mut self, old: &[u8], new: &[u8]) -> Outcome {
        self.must(old)?;
        self.must(new)?;
        let from = self.get(old).ok_or(io::ErrorKind::NotFound)?;
        if from.0 == Kind::Directory && [new, b"/"].concat().starts_with(&[old, b"/"].concat()) && old != new {
            return Err(io::ErrorKind::InvalidInput);
        }
        if old == new {
            // Renaming a directory to itself is not `Loop`: only its parent is compared.
            return Ok(None);
        }
        match (from.0, self.get(new)) {
            (Kind::Directory, Some((Kind::File, _))) => return Err(io::ErrorKind::NotADirectory),
            (Kind::File, Some((Kind::Directory, _))) => return Err(io::ErrorKind::IsADirectory),
            (_, Some((_, file))) if file == from.1 => return Ok(None),
            _ => {}
        }
        if !self.below(new).is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty);
        }
        for name in self.below(old) {
            let value = self.names.remove(&name).unwrap();
            self.names.insert([new, &name[old.len()..]].concat(), value);
        }
        let value = self.names.remove(old).unwrap();
        self.names.insert(new.into(), value);
        Ok(None)
    }

    fn lookup(&self, path: &[u8]) -> Outcome {
        Ok(if self.parents(path)? { self.get(path).map(|(kind, _)| kind) } else { None })
    }
}

/// Few names, so that they collide; two are too long to be inline, and differ only in the bytes
/// that are not.
fn path() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        4 => Just(&b"a"[..]),
        4 => Just(&b"b"[..]),
        2 => Just(&b"c"[..]),
        1 => Just(&b"a-name-of-more-than-thirty-two-bytes-A"[..]),
        1 => Just(&b"a-name-of-more-than-thirty-two-bytes-B"[..]),
    ];
    prop::collection::vec(name, 1..=3).prop_map(|names| names.iter().flat_map(|name| [b"/", *name].concat()).collect())
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => path().prop_map(Op::Lookup),
        3 => path().prop_map(Op::Stat),
        4 => path().prop_map(Op::Create),
        6 => path().prop_map(Op::Mkdir),
        3 => path().prop_map(Op::Unlink),
        3 => path().prop_map(Op::Rmdir),
        2 => (path(), path()).prop_map(|(a, b)| Op::Link(a, b)),
        4 => (path(), path()).prop_map(|(a, b)| Op::Rename(a, b)),
        1 => path().prop_map(Op::Watch),
        1 => Just(Op::Shrink),
        1 => path().prop_map(Op::ShrinkTree),
        2 => path().prop_map(Op::Invalidate),
        1 => path().prop_map(Op::InvalidateNegatives),
    ]
}

fn outcome<T>(result: Result<T, crate::Error>, kind: impl FnOnce(T) -> Option<Kind>) -> Outcome {
    result.map(kind).map_err(|error| match error.kind() {
        ErrorKind::Loop => io::ErrorKind::InvalidInput,
        other => other.io(),
    })
}

/// Runs the operations on cache and model. After each it compares the results and checks the
/// invariants; at the end the cache must find every name of the model.
fn check(
    policy: Box<dyn NegativePolicy>,
    on_unlink: OnUnlink,
    room: Option<u64>,
    ops: Vec<Op>,
) -> Result<(), TestCaseError> {
    let builder = crate::Dcache::builder().buckets(4).boxed_policy(policy).on_unlink(on_unlink);
    let fixture = Fixture::build(builder.charge(room.is_some()));
    if let Some(dentries) = room {
        fixture.tree.root().set_max(ByteSize::new(dentries * crate::Dcache::dentry_bytes() as u64));
    }
    let mount = &fixture.mount;
    let mut model = Model::default();
    for op in ops {
        let (mine, theirs) = match &op {
            Op::Lookup(path) => (outcome(mount.lookup(path), |e| e.map(|e| e.kind())), model.lookup(path)),
            Op::Stat(path) => {
                let stat = mount.stat(path);
                if let (Ok(Some(stat)), Ok(Some(entry))) = (&stat, mount.lookup(path)) {
                    prop_assert_eq!(*stat, entry.stat(), "stat and lookup agree (D6)");
                }
                (outcome(stat, |stat| stat.map(|stat| stat.kind)), model.lookup(path))
            }
            Op::Create(path) => (outcome(mount.create(path), |e| Some(e.kind())), model.make(path, Kind::File)),
            Op::Mkdir(path) => (outcome(mount.mkdir(path), |e| Some(e.kind())), model.make(path, Kind::Directory)),
            Op::Unlink(path) => (outcome(mount.unlink(path), |()| None), model.remove(path, false)),
            Op::Rmdir(path) => (outcome(mount.rmdir(path), |()| None), model.remove(path, true)),
            Op::Link(a, b) => (outcome(mount.link(a, b), |e| Some(e.kind())), model.link(a, b)),
            Op::Rename(a, b) => (outcome(mount.rename(a, b), |()| None), model.rename(a, b)),
            Op::Watch(path) => {
                drop(mount.watch(path));
                (Ok(None), Ok(None))
            }
            Op::Shrink => {
                // One round for each second chance, and for each level of the tree.
                for _ in 0..8 {
                    fixture.registry.drop_caches();
                }
                prop_assert_eq!(fixture.dcache.statistics().nr_dentry, 1, "only the root is in use");
                (Ok(None), Ok(None))
            }
            Op::ShrinkTree(path) => {
                let _ = mount.shrink_tree(path);
                (Ok(None), Ok(None))
            }
            // The backend did not change, so no answer changes.
            Op::Invalidate(path) => {
                let before = fixture.dcache.statistics().nr_dentry;
                if mount.invalidate(path).is_ok_and(|had| had) {
                    prop_assert!(fixture.dcache.statistics().nr_dentry < before, "no dentry is in use");
                }
                (Ok(None), Ok(None))
            }
            Op::InvalidateNegatives(path) => {
                if mount.invalidate_negatives(path).is_ok() {
                    prop_assert_eq!(mount.invalidate_negatives(path).ok(), Some(0), "none is left");
                }
                (Ok(None), Ok(None))
            }
        };
        prop_assert_eq!(mine, theirs, "{:?}", op);
        fixture.assert_valid();
        prop_assert!(fixture.tree.root().usage() <= fixture.tree.root().max());
    }
    for (path, (kind, _)) in &model.names {
        let entry = mount.lookup(path).unwrap().expect("a name of the model exists");
        prop_assert_eq!(entry.kind(), *kind);
    }
    let Fixture { mount, tree, .. } = fixture;
    drop(mount);
    tree.drain_stock();
    prop_assert_eq!(tree.root().usage(), ByteSize::ZERO, "every charge is uncharged");
    Ok(())
}

const STEPS: usize = if cfg!(miri) { 10 } else { 60 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 96 }))]

    #[test]
    fn d1_d2_d5_d8_d9_d12_d15_it_is_a_tree(
        ops in prop::collection::vec(op(), 1..STEPS),
        policy in 0..4_usize,
        keep in prop::bool::ANY,
        room in prop::option::of(0..12_u64),
    ) {
        let tight = Probation { probation_floor: 2, protected_floor: 2, ..Probation::default() };
        let policy: Box<dyn NegativePolicy> = match policy {
            0 => Box::new(Unbounded),
            1 => Box::new(ThreeInARow),
            2 => Box::new(PerDirectory(2)),
            _ => Box::new(tight),
        };
        check(policy, if keep { OnUnlink::KeepNegative } else { OnUnlink::Forget }, room, ops)?;
    }
}
