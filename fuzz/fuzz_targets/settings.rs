#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lowwater_fuzz::settings::check(data));
