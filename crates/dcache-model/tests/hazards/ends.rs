//! Extreme numbers, paths, recordings and topologies.
//!
//! Everything must return an error or saturate. docs/HAZARDS.md quotes names of these tests.

use crate::hazard::within;
use crate::{builder, fixture};
use lowwater_dcache_model::backend::Memory;
use lowwater_dcache_model::replay::{backend_for, parse, run, RecordedOp};
use lowwater_dcache_model::{Backend, Dcache, Kind, Name};
use lowwater_lru_core::{ByteSize, NodeId, Topology};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

#[test]
fn impossible_bucket_counts_are_refused_by_the_cache() {
    for buckets in [usize::MAX, usize::MAX / 2 + 2, usize::MAX / 2 + 1] {
        assert!(catch_unwind(|| Dcache::builder().buckets(buckets).build()).is_err(), "{buckets}");
    }
    assert_eq!(Dcache::builder().buckets(0).build().buckets(), 1);
    assert_eq!(Dcache::kernel_buckets(ByteSize::ZERO), 1);
    assert!(Dcache::kernel_buckets(ByteSize::MAX).is_power_of_two());
    within("one chain", || {
        let fixture = fixture(builder().buckets(0));
        fixture.fill();
        fixture.ends_well();
    });
}

/// A topology that returns given values; each call of `nodes` returns the next one. The cache does
/// not call the functions that panic.
struct Liar {
    nodes: Vec<usize>,
    asked: AtomicUsize,
    current: u16,
}

impl Topology for Liar {
    fn nodes(&self) -> usize {
        self.nodes[self.asked.fetch_add(1, Relaxed) % self.nodes.len()]
    }
    fn current(&self) -> NodeId {
        NodeId::new(self.current)
    }
    fn cpus_of(&self, _: NodeId) -> &[usize] {
        panic!("the topology's own fault")
    }
    fn distance(&self, _: NodeId, _: NodeId) -> u32 {
        panic!("the topology's own fault")
    }
}

#[test]
fn inconsistent_topologies_lose_no_names() {
    for (nodes, current) in
        [(vec![0], 0), (vec![0, 7], 3), (vec![2], u16::MAX), (vec![usize::MAX], 0), (vec![1, usize::MAX], 5)]
    {
        let case = format!("{nodes:?} {current}");
        within(&case, move || {
            let liar = Liar { nodes, asked: AtomicUsize::new(0), current };
            let fixture = fixture(builder().charge(true).topology(Arc::new(liar)));
            fixture.tree.root().set_max(ByteSize::kib(8));
            fixture.fill();
            for n in 0..300 {
                let _ = fixture.mount.lookup(format!("/d/no{n}").as_bytes()).unwrap();
            }
            fixture.tree.root().set_max(ByteSize::MAX);
            fixture.ends_well();
        });
    }
}

#[test]
fn paths_of_any_bytes_are_read_or_refused() {
    within("paths", || {
        let fixture = fixture(builder());
        fixture.fill();
        let mount = &fixture.mount;
        let (long, longer) = (vec![b'n'; 255], vec![b'n'; 256]);
        let (deep, deeper) = (b"/d/..".repeat(800), b"/d/..".repeat(900));
        let paths: Vec<&[u8]> = vec![
            b"",
            b"/",
            b"//",
            b".",
            b"..",
            b"/..",
            b"/../..",
            b"/d/../d",
            b"/d/..//./d/",
            b"\0",
            b"/d/\0",
            b"\xff\xfe",
            b"/d/0/",
            b"/d/0/x",
            b"/d/0/..",
            b"\n",
            b"/d\\t",
            &long,
            &longer,
            &deep,
            &deeper,
        ];
        for path in &paths {
            let _ = (mount.lookup(path).is_ok(), mount.stat(path).is_ok(), mount.readdir(path).is_ok());
            let _ = (mount.walk(path).is_ok(), mount.watch(path).is_ok(), mount.shrink_tree(path));
            let _ = (mount.invalidate(path), mount.invalidate_negatives(path));
            let _ = Name::new(path);
            for other in &paths {
                drop(mount.link(path, other));
                let _ = mount.rename(path, other);
            }
            drop(mount.create(path));
            drop(mount.mkdir(path));
            let _ = (mount.unlink(path), mount.rmdir(path));
        }
        mount.assert_valid();
        fixture.ends_well();
    });
}

#[test]
fn inconsistent_recordings_are_skipped() {
    within("recordings", || {
        for text in [
            &b"l"[..],
            b"l\t",
            b"l\t/a",
            b"l\t/a\t2",
            b"x\t/a\t1",
            b"l\ta\t1",
            b"l\t/a\t1\t1",
            b"l\t/a\\\t1",
            b"m\t/a\t\\x",
            b"\0\t/\t0",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        let path = |text: &str| text.as_bytes().into();
        let mut ops = vec![
            RecordedOp::Lookup(path("/"), true),
            RecordedOp::Create(path("/"), false),
            RecordedOp::Unlink(path("/"), true),
            RecordedOp::Rename(path("/"), path("/x")),
            RecordedOp::Rename(path("/x"), path("/x/y/z")),
            RecordedOp::Lookup(path("/a"), true),
            RecordedOp::Lookup(path("/a/b/c"), true),
            RecordedOp::Unlink(path("/a/b"), true),
            RecordedOp::Create(path("/a/b/c/d"), false),
            RecordedOp::Rename(path("/a"), path("/a")),
            RecordedOp::Lookup(path("no slash"), false),
            RecordedOp::Lookup(path("/\0"), false),
            RecordedOp::Lookup("/n".repeat(3000).as_bytes().into(), false),
        ];
        ops.extend(parse(b"l\t/q\\n\\t\\\\\t0\nm\t/never\t/there\n\n\n").unwrap());
        let memory = backend_for(&ops).unwrap();
        let fixture = fixture(builder());
        // Not the mount's backend: `run` only reads its number of lookups.
        let tally = run(&ops, &fixture.mount, &memory).unwrap();
        assert_eq!(tally.lookups, 7);
        // A file whose name is impossible is left out; a directory of such a name is an error.
        let left_out = backend_for(&[RecordedOp::Unlink(path("/\0"), true)]).unwrap();
        assert!(left_out.read_dir(1).unwrap().is_empty());
        assert!(backend_for(&[RecordedOp::Unlink(path("/\0/file"), true)]).is_err());
        fixture.ends_well();
    });
}

#[test]
fn the_memory_backend_returns_errors_for_missing_inodes() {
    let memory = Memory::new();
    let [a, b] = [b"a", b"b"].map(|name| Name::new(name).unwrap());
    for dir in [0, 2, u64::MAX] {
        assert!(memory.lookup(dir, a).is_err() && memory.create(dir, a, Kind::File).is_err());
        assert!(memory.remove(dir, a).is_err() && memory.read_dir(dir).is_err() && memory.link(7, dir, a).is_err());
        assert!(memory.rename((dir, a), (1, b)).is_err() && memory.rename((1, a), (dir, b)).is_err());
    }
    let file = memory.create(1, a, Kind::File).unwrap();
    assert!(memory.rename((1, a), (u64::MAX, b)).is_err());
    assert_eq!(memory.lookup(1, a).unwrap(), Some(file), "a name that cannot be moved stays");
    // A number that no inode has.
    assert!(memory.link(u64::MAX, 1, b).is_err() && memory.remove(1, b).is_err());
    memory.remove(1, a).unwrap();
    assert!(memory.read_dir(1).unwrap().is_empty());
}
