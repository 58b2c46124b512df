//! Fuzz target: a mount compared with a model. The body is in `src/dcache.rs`.
//!
//! Change the body, not this file: the body also runs as a test.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lowwater_fuzz::dcache::check(data));
