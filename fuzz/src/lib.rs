//! What the fuzz targets do with the bytes they are given. Each body is a function that panics if something is wrong, so it also runs as
//! an ordinary test, on the stable compiler, on inputs that are always the same.

#![forbid(unsafe_code)]

pub mod dcache;
pub mod list_lru;
pub mod map;
pub mod pressure;
pub mod protocol;
pub mod settings;
pub mod text;

/// The server's own files, as they stand there.
#[path = "../../crates/server/src"]
#[expect(dead_code, unused_imports, reason = "the files are taken whole, and only what parses is fuzzed")]
mod server {
    pub mod args;
    pub mod arrival;
    pub mod auth;
    pub mod config;
    pub mod data;
    pub mod listen;
    pub mod options;
    pub mod parse;
    pub mod scope;
    pub mod stash;
    pub mod stream;
    pub mod tenant;
    pub mod value;
}
// Where those files look for each other.
use server::{arrival, auth, config, data, listen, options, parse, scope, stash, stream, tenant, value};
