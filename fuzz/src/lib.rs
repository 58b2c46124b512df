//! What the fuzz targets do with the bytes they are given. Each body is a function that panics if something is wrong, so it also runs as
//! an ordinary test, on the stable compiler, on inputs that are always the same.

#![forbid(unsafe_code)]

pub mod list_lru;
pub mod protocol;
pub mod text;

/// The example's own files, as they stand there.
#[path = "../../examples/cache_server"]
#[expect(dead_code, unused_imports, reason = "the parser's files are taken whole, and only the parser is fuzzed")]
mod server {
    pub mod parse;
    pub mod stash;
    pub mod value;
}
// Where those files look for each other.
use server::{stash, value};
