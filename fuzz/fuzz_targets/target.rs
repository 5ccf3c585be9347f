//! The one program of all targets, so that it is built and linked once; which of them is the
//! variable `WINDLASS_FUZZ_TARGET`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("WINDLASS_FUZZ_TARGET").expect("WINDLASS_FUZZ_TARGET");
    windlass_fuzz::target(&name).expect("a target")
});

fuzz_target!(|data: &[u8]| TARGET(data));
