//! What calls take of the CPU: a real driver's work for a call takes microseconds, in which it does not sleep.

use weir_simgpu_link::now_ns;

use crate::edge::Answer;
use crate::session::{self, Session};

/// A call that takes some time at least; it keeps its CPU busy until then when it ends.
pub struct Takes {
    until_ns: u64,
}

/// Begins a call that takes as long as the configuration says.
#[inline]
pub fn takes(of: impl FnOnce(&Session) -> u64) -> Answer<Takes> {
    let ns = of(session::current()?);
    Ok(Takes { until_ns: if ns == 0 { 0 } else { now_ns() + ns } })
}

impl Drop for Takes {
    #[inline]
    fn drop(&mut self) {
        while self.until_ns > 0 && now_ns() < self.until_ns {
            std::hint::spin_loop();
        }
    }
}
