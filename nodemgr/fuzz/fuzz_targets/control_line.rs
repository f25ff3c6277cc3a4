//! Whatever comes as a line on the control socket. `scripts/fuzz 60 control_line`
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_nodemgr::control::schema::parse;

fuzz_target!(|line: &[u8]| {
    if let Ok(request) = parse(line) {
        let again = line_of(&request);
        assert_eq!(parse(again.as_bytes()).expect("a request that came in goes out"), request);
    }
});

fn line_of(request: &weir_nodemgr::control::schema::Request) -> String {
    serde_json::to_string(request).expect("a request has a form in JSON")
}
