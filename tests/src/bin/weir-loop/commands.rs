//! Obeys the lines on stdin, beside the loop.

use std::io::BufRead;

use weir_abi::types::{CUDA_SUCCESS, CUdeviceptr};
use weir_protocol::units::Bytes;
use weir_tests::client::Driver;
use weir_tests::driver::DriverError;
use weir_tests::obeying::say_json as say;
use weir_tests::said::Said;

use crate::progress::Tally;

/// Reads until stdin ends.
pub fn obey(driver: &Driver, tally: &Tally) {
    let mut held = Vec::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("allocate", size) => allocate(driver, size, &mut held),
            ("free", _) => free(driver, &mut held),
            ("report", _) => say(&Said::Report(tally.since_last_report())),
            _ => say(&Said::Allocated { bytes: 0, result: format!("no such command: {line}") }),
        }
    }
}

fn allocate(driver: &Driver, size: &str, held: &mut Vec<(CUdeviceptr, u64)>) {
    let bytes = size.parse::<Bytes>().map_or(0, |bytes| bytes.0);
    // This thread has no context of its own.
    let result = match driver.use_context().and_then(|()| driver.allocate(bytes)) {
        Ok(pointer) => {
            held.push((pointer, bytes));
            format!("{CUDA_SUCCESS:?}")
        }
        Err(DriverError::Call { result, .. }) => format!("{result:?}"),
        Err(error) => error.to_string(),
    };
    say(&Said::Allocated { bytes, result });
}

fn free(driver: &Driver, held: &mut Vec<(CUdeviceptr, u64)>) {
    let freed = held.drain(..).filter(|(pointer, _)| driver.free(*pointer).is_ok());
    say(&Said::Freed { bytes: freed.map(|(_, bytes)| bytes).sum() });
}
