//! Fuzz target: the registry's map, in which no object may be hidden. The body is in `src/map.rs`.
//!
//! Change the body, not this file: the body also runs as a test.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lowwater_fuzz::map::check(data));
