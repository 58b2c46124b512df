#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lowwater_fuzz::list_lru::check(data));
