#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kubefan_fuzz::properties::http2_frames(data));
