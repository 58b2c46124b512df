//! Tests of the topology that hwloc reports: for machines that hwloc makes up from a description,
//! and for the machine of the test, where it must equal that of sysfs.
//!
//! The tests need the C library (feature `hwloc`). Expected values follow from the descriptions or
//! from sysfs; a new test must pass on any machine.

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

/// Machines of 1 to 64 nodes, with and without packages between the machine and its nodes.
#[test]
fn up_to_sixty_four_described_nodes() {
    for (description, nodes, cpus) in [
        ("numa:1 core:4 pu:1", 1, 4),
        ("numa:2 core:3 pu:2", 2, 6),
        ("pack:4 numa:2 core:4 pu:2", 8, 8),
        ("pack:8 numa:4 core:1 pu:1", 32, 1),
        ("numa:64 core:4 pu:2", 64, 8),
        ("pack:16 numa:4 core:16 pu:2", 64, 32),
    ] {
        let topology = Hwloc::synthetic(description).unwrap();
        assert_eq!(topology.nodes(), nodes, "{description}");
        for index in 0..nodes {
            let node = NodeId::new(index as u16);
            let own = index * cpus..(index + 1) * cpus;
            assert_eq!(topology.cpus_of(node), own.collect::<std::vec::Vec<_>>(), "{description}: node {index}");
            assert!(topology.cpus_of(node).iter().all(|cpu| topology.machine.node_of(Some(*cpu)) == node));
            for other in (0..nodes).map(|other| NodeId::new(other as u16)) {
                assert_eq!(topology.distance(node, other) == LOCAL_DISTANCE, node == other, "{description}");
            }
        }
        assert_eq!(
            topology.machine.node_of(Some(nodes * cpus)),
            NodeId::ZERO,
            "{description}: a processor beyond the last"
        );
    }
}

/// A package with processors, and a second memory that is as near to them (CXL memory, HBM).
#[test]
fn processors_of_two_nodes_belong_to_the_first() {
    let topology = Hwloc::synthetic("pack:1 [numa] [numa] core:4 pu:1").unwrap();
    let second = NodeId::new(1);
    assert_eq!(topology.nodes(), 2);
    assert_eq!(topology.cpus_of(NodeId::ZERO), [0, 1, 2, 3]);
    assert!(topology.cpus_of(second).is_empty());
    assert!((0..4).all(|cpu| topology.machine.node_of(Some(cpu)) == NodeId::ZERO));
    assert!(topology.distance(NodeId::ZERO, second) > LOCAL_DISTANCE);
}

/// A memory of the whole machine that has a lower number than that of a package.
#[test]
fn processors_of_two_nodes_belong_to_the_smaller() {
    let node = |cpus: &[usize]| NumaNode { cpus: cpus.to_vec(), distances: Vec::new(), has_memory: true };
    let mut nodes = [node(&[0, 1, 2, 3]), node(&[0, 1]), node(&[2, 3]), node(&[2, 3])];
    assign_shared_cpus(&mut nodes);
    assert_eq!(nodes.map(|node| node.cpus), [&[][..], &[0, 1], &[2, 3], &[]]);
}

#[test]
fn invalid_descriptions_are_refused() {
    for description in ["", "numa:four", "nonsense", "pu:0", "a\0b"] {
        let error = Hwloc::synthetic(description).unwrap_err().to_string();
        assert!(error.starts_with(&std::format!("hwloc finds no topology in {description}: ")), "{error}");
    }
}

#[test]
fn this_machine_equals_that_of_sysfs() {
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
