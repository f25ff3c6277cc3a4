//! Whatever a process sends first. `scripts/fuzz 60 hello`
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_nodemgr::hello::{Frame, parse};
use weir_protocol::codec;

fuzz_target!(|bytes: &[u8]| {
    if let Frame::Whole(hello) = parse(bytes) {
        // What was understood is what was meant: written again, it reads the same.
        let again = codec::encode(&hello).expect("a hello that came in goes out");
        assert_eq!(codec::decode::<weir_protocol::message::Hello>(&again).expect("and in again"), hello);
    }
});
