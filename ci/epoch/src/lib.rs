//! Model checks of the read side of hash chains (`read/epoch.rs` of `lowwater-store`, unchanged)
//! over the real crossbeam-epoch, under loom. The model checks of `lowwater-store` replace
//! crossbeam-epoch by a simpler read side. Run by `ci/epoch.sh`, in a few minutes.
//!
//! The file under test is included by path, so the two cannot differ.

#![cfg(all(test, crossbeam_loom))]

extern crate alloc;

mod hash_chains;
