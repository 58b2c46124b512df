//! A dentry cache that a flood of missing names cannot fill.
//!
//! The cache holds the results of path lookups in front of any source of names: a file server's
//! disk, an object gateway, a DNS zone. A dentry is one cached name: a negative one says that the
//! name does not exist. The cache is modelled on Linux 7.3's `fs/dcache.c`: lookups write no shared
//! cache line but that of the dentry they return, unused dentries are on LRU lists per memcg and
//! NUMA node, and a shrinker reclaims them under memory pressure. Unlike in Linux, the number of
//! negative dentries is bounded.
//!
//! Start at [`Dcache`]. Numbers such as D5 are those of the guarantees in `docs/INVARIANTS.md` of
//! the repository.
//!
//! # Fork
//!
//! In the child of a `fork`, a lock that another thread of the parent held is never released. So
//! the child of a process with several threads must neither use nor drop any value of this crate:
//! it calls `exec`, or ends by `_exit`.
//!
//! # Modules
//!
//! From the highest to the lowest. A module names only modules of its own row and below it.
//!
//! | module | |
//! |---|---|
//! | `dcache` | [`Dcache`] and its builder |
//! | [`replay`], `check` | recordings of lookups run against a mount; the invariants of a mount at rest |
//! | `namei`, `invalidate`, `walk`, `watch` | changes of names; invalidation of cached answers; walks over a tree; watched directories |
//! | `lookup`, `path` | from a path to a dentry: RCU-walk, then ref-walk |
//! | `mount`, `shrinker` | a mounted backend; a mount as a shrinker |
//! | [`negative`] | policies that bound negative dentries |
//! | `charge`, `shrink` | charges to a memcg; reclaim of dentries |
//! | `lifecycle` | allocation, hashing, last put and death of a dentry |
//! | `dcache_core`, `superblock` | the state that all mounts share; the state of one mount |
//! | `footprint`, `ghost`, `reclaim_cursor` | the bytes of a dentry; the ghost table of trimmed names; the lists that a charge reclaims from |
//! | `dentry`, `inode`, `children` | a name below a directory; the inode it refers to; the names below one directory |
//! | [`backend`] | the source of truth behind the cache: the trait, a tree in memory, a directory of the file system |
//! | `seqcount`, `lockref`, `qstr` | sequence counts; user counts; names and their hashes |
//! | `stats`, `flag`, `kind`, `error` | counters; flags of a dentry; kinds of inodes; errors |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod backend;
mod charge;
mod check;
mod children;
mod dcache;
mod dcache_core;
mod dentry;
mod error;
mod flag;
mod footprint;
mod ghost;
mod inode;
mod invalidate;
mod kind;
mod lifecycle;
mod lockref;
mod lookup;
mod mount;
mod namei;
pub mod negative;
mod path;
mod qstr;
mod reclaim_cursor;
pub mod replay;
mod seqcount;
mod shrink;
mod shrinker;
mod stats;
mod superblock;
mod walk;
mod watch;

#[cfg(all(test, not(lowwater_loom)))]
mod tests;

pub use backend::Backend;
pub use check::DentryCounts;
pub use dcache::{Builder, Dcache};
pub use dcache_core::OnUnlink;
pub use error::{Error, ErrorKind};
pub use kind::Kind;
pub use mount::{DentryRef, DirEntry, Mount, Stat};
pub use negative::NegativePolicy;
pub use path::PATH_MAX;
pub use qstr::{Name, NAME_MAX};
pub use stats::Statistics;
pub use walk::{Walk, WalkControl, WalkEntry};
pub use watch::DirectoryWatch;
