//! Model checks of the read side of hash chains (`store/src/hash_chains/read/epoch.rs`, unchanged)
//! over the real crossbeam-epoch, under loom. The model checks of `store` replace crossbeam-epoch
//! by a simpler read side. Run by `ci/epoch.sh`, in a few minutes.
//!
//! The file under test is included by path, so the two cannot differ.

#![cfg(all(test, crossbeam_loom))]

mod hash_chains;
