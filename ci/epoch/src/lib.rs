//! The read side of hash chains (`store/src/hash_chains/read/epoch.rs`, as it stands) over the real crossbeam-epoch, under loom: the checks of
//! `store` take a plainer read side in its place. `ci/epoch.sh` runs it, in some minutes.

#![cfg(all(test, crossbeam_loom))]

mod hash_chains;
