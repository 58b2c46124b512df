//! The read side of hash chains (`lru-core/src/chains/read/epoch.rs`, as it stands) over the real crossbeam-epoch, under loom: the checks of
//! `lru-core` take a plainer read side in its place. `ci/epoch.sh` runs it, in some minutes.

#![cfg(all(test, crossbeam_loom))]

mod chains;
