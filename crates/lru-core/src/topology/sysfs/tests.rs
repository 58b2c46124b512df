//! Machines described by files, valid and malformed.
//!
//! Each test writes a directory of the kernel's format; the last test reads the real one. An error
//! must name the file and quote its text.

use super::*;
use alloc::string::ToString as _;
use std::path::PathBuf;

/// A temporary directory that is removed on drop.
struct Dir(PathBuf);

impl Dir {
    /// Creates the directory with these files and contents.
    fn with(name: &str, files: &[(&str, &str)]) -> Self {
        let dir = std::env::temp_dir().join(std::format!("lowwater-sysfs-{}-{name}", std::process::id()));
        let dir = Self(dir);
        for (file, text) in files {
            let file = dir.0.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        dir
    }

    fn read(&self) -> Result<Sysfs, TopologyError> {
        Sysfs::read(&self.0)
    }

    fn error(&self) -> String {
        self.read().unwrap_err().to_string().replace(self.0.to_str().unwrap(), "ROOT")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // A leftover in the temporary directory is harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn distances(topology: &Sysfs) -> Vec<Vec<u32>> {
    let nodes = || (0..topology.nodes() as u16).map(NodeId::new);
    nodes().map(|a| nodes().map(|b| topology.distance(a, b)).collect()).collect()
}

fn node_of(topology: &Sysfs, cpu: usize) -> u16 {
    topology.machine.node_of(Some(cpu)).get()
}

#[test]
fn one_node() {
    let dir = Dir::with("one", &[("online", "0\n"), ("node0/cpulist", "0-1\n"), ("node0/distance", "10\n")]);
    let topology = dir.read().unwrap();
    assert_eq!(topology.nodes(), 1);
    assert_eq!(topology.cpus_of(NodeId::ZERO), [0, 1]);
    assert_eq!(distances(&topology), [[10]]);
    assert_eq!(topology.current(), NodeId::ZERO);
}

#[test]
fn two_nodes_with_interleaved_processors() {
    let dir = Dir::with(
        "two",
        &[
            ("online", "0-1\n"),
            ("has_memory", "0-1\n"),
            ("node0/cpulist", "0,2\n"),
            ("node0/distance", "10 21\n"),
            ("node1/cpulist", "1,3\n"),
            ("node1/distance", "31 10\n"),
        ],
    );
    let topology = dir.read().unwrap();
    assert_eq!(topology.cpus_of(NodeId::new(1)), [1, 3]);
    assert_eq!(distances(&topology), [[10, 21], [31, 10]]);
    assert_eq!([0, 1, 2, 3].map(|cpu| node_of(&topology, cpu)), [0, 1, 0, 1]);
}

/// Node numbers 0, 2, 8, 252 as on machines with accelerators; one node without processors, one
/// without memory, and only that one with distances.
#[test]
fn four_nodes_with_gaps_are_counted_without() {
    let dir = Dir::with(
        "four",
        &[
            ("online", "0,2,8,252\n"),
            ("has_memory", "0,2,252\n"),
            ("node0/cpulist", "0-3\n"),
            ("node2/cpulist", "4-5\n"),
            ("node8/cpulist", "6-7\n"),
            ("node8/distance", "40 12 10 80\n"),
            ("node252/cpulist", "\n"),
        ],
    );
    let topology = dir.read().unwrap();
    assert_eq!(topology.nodes(), 4);
    assert_eq!([0, 1, 2, 3].map(|n| topology.os_node(NodeId::new(n))), [0, 2, 8, 252]);
    assert_eq!(topology.cpus_of(NodeId::new(2)), [6, 7], "a node without memory keeps its processors");
    assert_eq!(topology.cpus_of(NodeId::new(3)), [0; 0]);
    assert_eq!(node_of(&topology, 7), 1, "node 8 has no memory, node 2 is the nearest that has");
    assert_eq!(distances(&topology)[0], [10, 20, 20, 20]);
    assert_eq!(distances(&topology)[2], [40, 12, 10, 80]);
}

#[test]
fn a_processor_that_no_node_has_is_on_the_first_node() {
    let dir = Dir::with("range", &[("online", "1\n"), ("node1/cpulist", "2\n")]);
    let topology = dir.read().unwrap();
    assert_eq!([0, 2, 3, usize::MAX].map(|cpu| node_of(&topology, cpu)), [0; 4]);
    assert_eq!(topology.machine.node_of(None), NodeId::ZERO);
}

#[test]
#[should_panic(expected = "node 1 does not exist: there are 1 nodes")]
fn cpus_of_panics_for_an_invalid_node() {
    let dir = Dir::with("panic", &[("online", "0\n"), ("node0/cpulist", "0\n")]);
    dir.read().unwrap().cpus_of(NodeId::new(1));
}

#[test]
fn errors_name_the_file_and_its_text() {
    let good = [("online", "0-1\n"), ("node0/cpulist", "0\n"), ("node1/cpulist", "1\n")];
    assert!(Dir::with("good", &good).read().is_ok());
    let cases: [(&str, &str, &str); 7] = [
        ("online", "zero\n", r#"ROOT/online says "zero": not a list of numbers and ranges such as 0-3,8,10-11"#),
        ("online", "\n", r#"ROOT/online says "": at least one node must be online"#),
        ("node1/cpulist", "3-1\n", r#"ROOT/node1/cpulist says "3-1": the numbers of a list must ascend"#),
        ("node1/cpulist", "0-3\n", r#"ROOT/node1/cpulist says "0": a processor can be on one node only"#),
        (
            "node0/distance",
            "10\n",
            r#"ROOT/node0/distance says "10": there must be one distance for each node that is online"#,
        ),
        ("node0/distance", "\u{0}\n", r#"ROOT/node0/distance says "\0": not a line of distances such as 10 21"#),
        ("has_memory", "0-99999\n", r#"ROOT/has_memory says "0-99999": a list may name numbers below 65536"#),
    ];
    for (index, (file, text, message)) in cases.into_iter().enumerate() {
        let mut files = good.to_vec();
        files.push((file, text));
        assert_eq!(Dir::with(&std::format!("bad{index}"), &files).error(), message);
    }
}

#[test]
fn missing_files() {
    let error = Dir::with("empty", &[]).error();
    assert!(error.starts_with("cannot read ROOT/online: "), "{error}");
    let error = Dir::with("half", &[("online", "0-1\n"), ("node0/cpulist", "0\n")]).error();
    assert!(error.starts_with("cannot read ROOT/node1/cpulist: "), "{error}");
}

/// Every machine has the calling thread on one of its nodes.
#[test]
fn this_machine() {
    let topology = super::super::detect();
    assert!(topology.current().index() < topology.nodes());
}
