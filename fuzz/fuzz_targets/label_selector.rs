#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kubefan_fuzz::properties::label_selector(data));
