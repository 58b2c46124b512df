//! What the fuzz targets do with the bytes they are given. Each body is a function that panics if something is wrong, so it also runs as
//! an ordinary test, on the stable compiler, on inputs that are always the same.

#![forbid(unsafe_code)]

pub mod dcache;
pub mod list_lru;
pub mod map;
pub mod pressure;
pub mod server_protocol;
pub mod server_settings;
pub mod text;

/// The server's own files, as they stand there.
#[path = "../../crates/server/src"]
#[expect(dead_code, reason = "the files are taken whole, and only what parses is fuzzed")]
mod server {
    pub mod decoder;
    pub mod protocol;
    pub mod receive_budget;
    pub mod settings;
    pub mod value;
}
// Where those files look for each other.
use server::{decoder, protocol, receive_budget, settings, value};
