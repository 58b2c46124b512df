//! Arguments at the ends of their range: the least and the greatest numbers, malformed texts and
//! malformed files.
//!
//! A program may take such values from its configuration. A change must ensure that sums saturate,
//! lookups of unknown ids find nothing, malformed input is refused, and only documented panics
//! occur.

use crate::leaks::{item, Hook, Item, Name};
use lowwater_lru_core::list_lru::baseline::EagerListLru;
use lowwater_lru_core::list_lru::baseline::Turn;
use lowwater_lru_core::topology::{Sysfs, Topology as _};
use lowwater_lru_core::{ByteSize, ListLru, MemcgId, MemcgTree, NodeId};
use lowwater_store::hash_chains::HashChains;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[test]
fn extreme_amounts_neither_wrap_nor_panic() {
    for n in [0, 1, u64::MAX / 1024, u64::MAX / 1024 + 1, u64::MAX - 1, u64::MAX] {
        let all = [ByteSize::new(n), ByteSize::kib(n), ByteSize::mib(n), ByteSize::gib(n)];
        assert!(all.is_sorted(), "{all:?}");
        for bytes in all {
            assert_eq!(bytes.saturating_add(ByteSize::MAX), ByteSize::MAX);
            assert_eq!(bytes.saturating_sub(ByteSize::MAX), ByteSize::ZERO);
            assert_eq!(bytes.to_string().parse(), Ok(bytes));
        }
    }
    let huge = "9".repeat(100_000);
    for text in [&huge, &format!("{huge}T"), "\u{ff10}", "1\u{212a}", "0x10", "1_000", "1e3", "\0", "K", "max ", "-0"] {
        assert!(text.parse::<ByteSize>().is_err(), "{text:?}");
    }
    assert_eq!("0".repeat(100_000).parse(), Ok(ByteSize::ZERO));
}

#[test]
fn unknown_ids_find_nothing() {
    let (tree, other) = (MemcgTree::new(0), MemcgTree::new(0));
    let id = tree.root().create("group").unwrap().id();
    for n in [id.get() + 1, 1 << 20, u32::MAX - 1, u32::MAX] {
        assert_eq!(tree.get(MemcgId::new(n)), None);
        assert_eq!(MemcgId::new(n).index(), n as usize);
    }
    assert_eq!(other.get(id), None);
    // A hook's id belongs to its tree.
    let hook = Arc::new(Hook);
    let (_, second) = (tree.add_hook(hook.clone()), tree.add_hook(hook.clone()));
    other.remove_hook(second);
    tree.remove_hook(second);
    tree.remove_hook(second);
    assert_eq!(Arc::strong_count(&hook), 2);
    // The number of nodes is unlimited: every node has a list.
    let lists = ListLru::<Item>::new();
    let last = NodeId::new(u16::MAX);
    assert_eq!(lists.count_one(tree.root(), last), 0);
    lists.add(item(1), tree.root(), last).unwrap();
    assert_eq!((lists.count_node(last), lists.count_node(NodeId::ZERO)), (1, 0));
}

#[test]
fn limits_and_charges_at_their_ends() {
    let tree = MemcgTree::new(4);
    let (top, group) = {
        let top = tree.root().create("top").unwrap();
        let group = top.create("group").unwrap();
        (top, group)
    };
    for (min, low, high, max) in [
        (ByteSize::MAX, ByteSize::MAX, ByteSize::ZERO, ByteSize::MAX),
        (ByteSize::ZERO, ByteSize::MAX, ByteSize::MAX, ByteSize::ZERO),
        (ByteSize::MAX, ByteSize::ZERO, ByteSize::new(1), ByteSize::new(u64::MAX - 1)),
        (ByteSize::ZERO, ByteSize::ZERO, ByteSize::MAX, ByteSize::MAX),
    ] {
        for memcg in [&top, &group] {
            memcg.set_min(min);
            memcg.set_low(low);
            memcg.set_high(high);
            memcg.set_max(max);
        }
        for bytes in [ByteSize::ZERO, ByteSize::new(1), ByteSize::kib(32), ByteSize::new(u64::MAX - 1), ByteSize::MAX] {
            let charged = group.try_charge(bytes).is_ok();
            assert_eq!(charged, bytes <= max, "{bytes} of {max}");
            let more = group.try_charge(ByteSize::MAX);
            assert_eq!(more.is_ok(), max == ByteSize::MAX && bytes == ByteSize::ZERO);
            let _ = [&top, &group].map(|memcg| memcg.protection(tree.root()));
            if more.is_ok() {
                group.uncharge(ByteSize::MAX);
            }
            if charged {
                group.uncharge(bytes);
            }
            tree.drain_stock();
            assert_eq!((tree.root().usage(), group.usage()), (ByteSize::ZERO, ByteSize::ZERO));
        }
    }
}

/// The behaviour that [`Memcg::uncharge`](lowwater_lru_core::Memcg::uncharge) documents.
#[test]
fn uncharging_too_much_behaves_as_documented() {
    let tree = MemcgTree::new(0);
    let group = tree.root().create("group").unwrap();
    let _ = group.try_charge(ByteSize::kib(1)).unwrap();
    let uncharged = catch_unwind(AssertUnwindSafe(|| group.uncharge(ByteSize::kib(2))));
    assert_eq!(uncharged.is_err(), cfg!(debug_assertions));
    assert_eq!(group.usage(), ByteSize::ZERO);
    // The tree stays usable.
    let _ = group.try_charge(ByteSize::kib(4)).unwrap();
    assert_eq!(group.usage(), ByteSize::kib(4));
    group.offline().unwrap();
}

#[test]
fn impossible_bucket_counts_are_refused() {
    for buckets in [usize::MAX, usize::MAX / 2 + 2, usize::MAX / 2 + 1] {
        assert!(catch_unwind(|| HashChains::<Name>::new(buckets)).is_err(), "{buckets}");
    }
    assert_eq!(HashChains::<Name>::new(0).buckets(), 1);
}

#[test]
fn the_baseline_lists_refuse_invalid_nodes() {
    let tree = MemcgTree::new(0);
    let child = tree.root().create("child").unwrap();
    for nodes in [0, 1, 3] {
        let eager = EagerListLru::<Item>::new(nodes);
        let beyond = NodeId::new(nodes as u16);
        let refused = item(1);
        let add = || eager.add(refused.clone(), tree.root(), beyond);
        assert!(catch_unwind(AssertUnwindSafe(add)).is_err(), "{nodes} nodes");
        assert_eq!(Arc::strong_count(&refused), 1);
        // Another group's list is not affected.
        if nodes > 0 {
            eager.add(item(2), &child, NodeId::ZERO).unwrap();
        }
        for memcg in [tree.root(), &child] {
            assert_eq!((eager.count_one(memcg, beyond), eager.count_node(beyond)), (0, 0));
            assert!(eager.walk_one(memcg, beyond, &mut 9, |_| Turn::Remove).is_empty());
        }
    }
}

/// A temporary directory in the format of `/sys/devices/system/node`.
struct FakeSysfs(PathBuf);

impl FakeSysfs {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let root = std::env::temp_dir().join(format!("lowwater-hostile-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        for (file, text) in files {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).unwrap();
            std::fs::write(file, text).unwrap();
        }
        Self(root)
    }
}

impl Drop for FakeSysfs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_malformed_sysfs_is_refused_or_harmless() {
    let refused: [&[(&str, &[u8])]; 10] = [
        &[],
        &[("online", b"")],
        &[("online", b"\xff\xfe")],
        &[("online/is-a-directory", b"")],
        &[("online", b"0-65535")],
        &[("online", b"18446744073709551616")],
        &[("online", b"0,0"), ("node0/cpulist", b"")],
        &[("online", b"0"), ("node0/cpulist", b"0-99999999999")],
        &[("online", b"0"), ("node0/cpulist", b"0"), ("node0/distance", b"4294967296")],
        &[("online", b"0,7"), ("node0/cpulist", b"0-65535"), ("node7/cpulist", b"65535")],
    ];
    for files in refused {
        let fake = FakeSysfs::new(files);
        assert!(Sysfs::read(&fake.0).is_err(), "{files:?}");
    }
    let fake = FakeSysfs::new(&[
        ("online", b"3,65535"),
        ("node3/cpulist", b"0-65535\n"),
        ("node65535/cpulist", b"\n"),
        ("node3/distance", b"0 4294967295"),
        ("node65535/distance", b"4294967295 0"),
        ("has_memory", b"9"),
    ]);
    let odd = Sysfs::read(&fake.0).unwrap();
    assert_eq!((odd.nodes(), odd.current()), (2, NodeId::ZERO));
    assert_eq!(odd.distance(NodeId::ZERO, NodeId::new(1)), u32::MAX);
    for node in [NodeId::new(2), NodeId::new(u16::MAX)] {
        assert!(catch_unwind(AssertUnwindSafe(|| odd.os_node(node))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| odd.cpus_of(node).len())).is_err());
    }
}
