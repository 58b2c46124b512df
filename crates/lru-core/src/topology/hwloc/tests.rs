//! Described machines, and this one.

use super::*;

#[test]
fn four_described_nodes() {
    let topology = Hwloc::synthetic("numa:4 core:8 pu:2").unwrap();
    let nodes = || (0..4).map(NodeId::new);
    assert_eq!(topology.nodes(), 4);
    for (index, node) in nodes().enumerate() {
        let first = index * 16;
        assert_eq!(topology.cpus_of(node), (first..first + 16).collect::<Vec<_>>());
        assert!(topology.cpus_of(node).iter().all(|cpu| topology.machine.node_of(Some(*cpu)) == node));
        assert_eq!(topology.distance(node, node), LOCAL_DISTANCE);
        assert!(nodes().filter(|other| *other != node).all(|other| topology.distance(node, other) > LOCAL_DISTANCE));
    }
    assert!(!topology.is_this_machine(), "binding to it would do nothing and say Ok");
}

#[test]
fn a_description_that_is_none() {
    for description in ["", "numa:four", "nonsense", "pu:0", "a\0b"] {
        let error = Hwloc::synthetic(description).unwrap_err().to_string();
        assert!(error.starts_with(&std::format!("hwloc finds no topology in {description}: ")), "{error}");
    }
}

#[test]
fn this_machine_is_the_one_sysfs_tells() {
    let topology = Hwloc::detect().unwrap();
    assert!(topology.is_this_machine());
    assert!(topology.current().index() < topology.nodes());
    #[cfg(target_os = "linux")]
    if let Ok(sysfs) = super::super::Sysfs::detect() {
        assert_eq!(topology.nodes(), sysfs.nodes());
        for node in (0..sysfs.nodes() as u16).map(NodeId::new) {
            assert_eq!(topology.cpus_of(node), sysfs.cpus_of(node));
        }
    }
}
