#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kubefan_fuzz::properties::load_frames(data));
