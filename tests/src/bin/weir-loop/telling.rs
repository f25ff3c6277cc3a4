//! Tells Weir how long each step took, as a server tells its time per token (`interposer/include/weir.h`).

use std::ffi::{CStr, CString, c_char, c_int};

use libloading::os::unix::Library;

use crate::progress::Tally;

type Tell = unsafe extern "C" fn(*const c_char, u64) -> c_int;

/// Who tells, and whom.
pub struct Telling {
    metric: CString,
    tell: Option<Tell>, // none without Weir
    ended_ns: Option<u64>,
}

impl Telling {
    /// By this name.
    pub fn by(metric: &CStr) -> Self {
        // SAFETY: what is preloaded is in everybody's scope and never unloaded; the type is the header's.
        let tell = unsafe { Library::this().get::<Tell>(b"weir_latency\0").ok().map(|found| *found) };
        Self { metric: metric.to_owned(), tell, ended_ns: None }
    }

    /// A step has ended just now.
    pub fn ended(&mut self, tally: &Tally) {
        let now_ns = tally.now_ns();
        if let Some(before_ns) = self.ended_ns.replace(now_ns) {
            tally.stepped(now_ns - before_ns);
            if let Some(tell) = self.tell {
                // SAFETY: a C string that outlives the call.
                unsafe { tell(self.metric.as_ptr(), now_ns - before_ns) };
            }
        }
    }
}
