//! Fuzz target: texts of the kernel and the service manager. The body is in `src/pressure.rs`.
//!
//! Change the body, not this file: the body also runs as a test.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lowwater_fuzz::pressure::check(data));
