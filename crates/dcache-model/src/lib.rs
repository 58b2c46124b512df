//! A dentry cache that a flood of missing names cannot fill.
//!
//! It remembers what paths stand for, and which names do not exist, in front of anything that knows names: a file server's disk, an
//! object gateway, a zone. It is modelled on Linux 7.3's `fs/dcache.c`: lookups write no shared line, unused names are on lists per
//! group and NUMA node, and give way under pressure through a shrinker. Unlike Linux's, its negative entries are bounded.
//!
//! Begin at [`Dcache`].
//!
//! # Fork
//!
//! In the child of a `fork`, locks that other threads held are never given back. So the child of a process with several threads must neither
//! use nor drop anything of this crate: it calls `exec`, or ends by `_exit`.
//!
//! # Modules
//!
//! In the order in which a lookup meets them:

#![forbid(unsafe_code)]

mod path;

mod name;

mod dcache;
mod dcache_core;
mod mount;

mod lookup;

mod change;
mod invalidate;

mod children;
mod dentry;
mod flag;
mod kind;
mod lockref;
mod seq;

mod charge;
mod footprint;
mod inode;
mod life;

pub mod backend;

mod superblock;

mod ghost;
pub mod negative;
mod shrink;
mod shrinker;

mod valid;
mod walk;
mod watch;

mod error;
pub mod replay;
mod stats;

#[cfg(all(test, not(lowwater_loom)))]
mod tests;

pub use backend::Backend;
pub use dcache::{Builder, Dcache};
pub use dcache_core::OnUnlink;
pub use error::{Error, ErrorKind};
pub use kind::Kind;
pub use mount::{DirEntry, Entry, Mount, Stat};
pub use name::{Name, NAME_MAX};
pub use negative::NegativePolicy;
pub use path::PATH_MAX;
pub use stats::Statistics;
pub use valid::Census;
pub use walk::{Flow, Step, Walk};
pub use watch::Watch;
