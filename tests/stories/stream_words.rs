//! Words that a stream writes (`cuStreamWriteValue64`) on the simulated GPU: by them Weir sees how far a filler has come.

use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::bare_python;

#[test]
fn a_stream_writes_words_in_passing_and_whoever_sees_that_it_has_come_further_sees_them() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let ran = bare_python(&gpu, "stream_words.py").run().well();
    let said: serde_json::Value = serde_json::from_str(&ran.stdout[0]).expect("one JSON line");
    let stale = said["stale"].as_object().expect("a count for each way");
    assert!(stale.len() == 3 && stale.values().all(|count| count.as_u64() == Some(0)), "{said}");
    // A stream that stops at each word until a thread has written it idles for as long as that thread takes to wake.
    let (launches, took_ms) = (said["launches"].as_f64(), said["took_ms"].as_f64());
    let kernels_ms = launches.expect("a count") * 0.02;
    assert!(took_ms.is_some_and(|took| took < 2.0 * kernels_ms), "{said}: {kernels_ms} ms of kernels");
}
