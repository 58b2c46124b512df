//! The reason why the crate `thin-vec` is not used: it cannot report a failed allocation. See
//! docs/DESIGN.md, section 7.
//!
//! If this test fails after an update of the crate, the crate may replace `src/thin_vec.rs`.

#![cfg(all(feature = "std", not(lowwater_loom)))]

use std::process::{Command, Stdio};

const CHILD: &str = "LOWWATER_THIN_VEC_CHILD";

#[test]
fn the_crate_thin_vec_aborts_without_memory() {
    if std::env::var_os(CHILD).is_some() {
        // More bytes than the address space has. There is no `try_reserve`.
        let mut list = thin_vec::ThinVec::<u64>::new();
        list.reserve(usize::MAX / 32);
        return;
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_crate_thin_vec_aborts_without_memory"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    // A signal, not the exit code 101 of a failed test. The allocators of ThreadSanitizer and
    // AddressSanitizer end the process with codes of their own.
    let by_sanitizer = std::env::var("LOWWATER_SANITIZER").ok().map(|kind| if kind == "thread" { 66 } else { 1 });
    assert!(status.code().is_none() || status.code() == by_sanitizer, "{status}");
}
