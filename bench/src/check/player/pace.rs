//! How fast this GPU does the work of kernels, when nothing else runs on it.

use serde_json::{Value, json};

use super::work::WIDE;
use crate::client::{ClientError, Driver};
use crate::events::Events;
use crate::kernels::Kernel;

/// How many rounds of a kernel's work this GPU does in a microsecond: by two lengths, so that starting one does not count.
pub fn measure() -> Result<Value, ClientError> {
    let names = ["check_pace", "check_pace_short"];
    let (long, short) = (1e6, 1e5); // rounds: the variable says 1 for a microsecond
    let driver = Driver::open_with(&[Kernel::work(names[0], long), Kernel::work(names[1], short)])?;
    let stream = driver.stream()?;
    let mut events = Events::new(&driver, stream)?;
    let mut best = |name: &str, number| -> Result<f64, ClientError> {
        let function = driver.function(name, number)?;
        let mut least = f64::INFINITY;
        for _ in 0..10 {
            let first = events.mark()?;
            driver.launch_into(stream, function, WIDE)?;
            let second = events.mark()?;
            events.wait(second)?;
            least = least.min(1e3 * events.between_ms(first, second)?);
        }
        Ok(least)
    };
    let took_us = best(names[0], 0)? - best(names[1], 1)?;
    Ok(json!({"rounds_per_us": (long - short) / took_us.max(f64::MIN_POSITIVE)}))
}
