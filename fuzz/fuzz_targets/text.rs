//! Fuzz target: amounts, processor lists and distances. The body is in `src/text.rs`.
//!
//! Change the body, not this file: the body also runs as a test.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lowwater_fuzz::text::check(data));
