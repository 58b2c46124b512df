//! The reasons why PSI and mountinfo are not parsed by `procfs-core`. See docs/DESIGN.md,
//! section 7.
//!
//! If an assertion fails after an update of `procfs-core`, the reason no longer holds, and the
//! crate should be considered again.

use lowwater_pressure::cgroup::Mount;
use lowwater_pressure::Stalls;
use procfs_core::process::MountInfo;
use procfs_core::{FromRead, MemoryPressure};
use std::panic::catch_unwind;

const GOOD: &str =
    "some avg10=1.25 avg60=0.00 avg300=0.00 total=58761\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";

#[test]
fn both_parsers_accept_valid_texts() {
    let (ours, theirs) = (Stalls::parse(GOOD).unwrap(), MemoryPressure::from_read(GOOD.as_bytes()).unwrap());
    assert_eq!((ours.some.total_us, ours.full.total_us), (theirs.some.total, theirs.full.total));
}

#[test]
fn procfs_core_names_no_field() {
    let bad = GOOD.replace("total=58761", "total=many");
    let error = Stalls::parse(&bad).unwrap_err().to_string();
    assert!(error.contains("some total") && error.contains("many"), "{error}");
    let error = MemoryPressure::from_read(bad.as_bytes()).unwrap_err().to_string();
    assert!(!error.contains("total") && !error.contains("many"), "it does now: {error}");
}

#[test]
fn procfs_core_panics_for_a_line_that_was_cut() {
    assert!(Stalls::parse("some").is_err());
    assert!(catch_unwind(|| MemoryPressure::from_read("some".as_bytes()).is_err()).is_err(), "it does not any more");
}

#[test]
fn procfs_core_leaves_the_escapes_of_a_mount_point() {
    let line = "31 23 0:28 / /sys/fs/my\\040groups rw,relatime shared:9 - cgroup2 cgroup2 rw";
    assert_eq!(Mount::parse_all(line).unwrap()[0].point, "/sys/fs/my groups");
    let theirs = MountInfo::from_line(line).unwrap().mount_point;
    assert_eq!(theirs.to_str(), Some("/sys/fs/my\\040groups"), "it takes them back now");
}
