//! Fuzz target: the server's command line and limits file. The body is in `src/server_settings.rs`.
//!
//! Change the body, not this file: the body also runs as a test.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lowwater_fuzz::server_settings::check(data));
