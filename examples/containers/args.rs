//! The command line: the sizes of the model.
//!
//! Defaults are those of the first report that `containers.rs` follows; with others the results
//! cannot be compared with its figures.

use std::path::PathBuf;

use clap::{value_parser, Parser};

/// Counts the bytes of the LRU lists of many containers, before, during and after
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Groups (containers)
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    pub memcgs: u32,
    /// File systems
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    pub mounts: u32,
    /// NUMA nodes; each group has objects on one
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u16).range(1..=1024))]
    pub nodes: u16,
    /// Lists of a file system: one for its dentries, one for its inodes
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u32).range(1..=64))]
    pub lists_per_mount: u32,
    /// File systems that a group uses
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(0..=10_000))]
    pub mounts_per_memcg: u32,
    /// One JSON object on stdout instead of a table
    #[arg(long)]
    pub json: bool,
    /// Draw the bytes as a picture (SVG)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}
