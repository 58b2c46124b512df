//! Fuzz target: the server's protocol decoder. The body is in `src/server_protocol.rs`.
//!
//! Change the body, not this file: the body also runs as a test.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lowwater_fuzz::server_protocol::check(data));
