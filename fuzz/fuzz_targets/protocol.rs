#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lowwater_fuzz::server_protocol::check(data));
