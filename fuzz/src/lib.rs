//! The bodies of the fuzz targets. Each is a function that takes bytes and panics on an error, so
//! it also runs as an ordinary test, on the stable compiler, with fixed inputs (tests/bodies.rs).
//!
//! A new target needs a module here, a binary in `fuzz_targets` that `Cargo.toml` lists, and in
//! `tests/bodies.rs` a test with fixed inputs and a line in `regressions`.

#![forbid(unsafe_code)]

pub mod dcache;
pub mod list_lru;
pub mod map;
pub mod pressure;
pub mod server_protocol;
pub mod server_settings;
pub mod text;

/// The server's own source files, included as they are.
#[path = "../../crates/server/src"]
#[expect(dead_code, reason = "whole files are included, and only their parsers are fuzzed")]
mod server {
    pub mod decoder;
    pub mod find_byte;
    pub mod protocol;
    pub mod receive_budget;
    pub mod settings;
    pub mod value;
}
// The paths under which those files refer to each other.
use server::{decoder, find_byte, protocol, receive_budget, settings, value};
