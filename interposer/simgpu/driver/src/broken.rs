//! Contexts that an error has broken: a bad address in a kernel, a bit that cannot be corrected. The error is *sticky*: every
//! call that needs the context answers it, nothing that was queued there is done any more, and nothing but the end of the
//! context helps. NVIDIA documents of most of these codes that the process "must be terminated and relaunched"; here a
//! program may also go on in a new context, as drivers have been seen to allow. What a program of several contexts is told
//! of those that are whole is not documented: here they go on.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weir_abi::SYMBOLS;
use weir_abi::types::CUresult;

use crate::context;
use crate::edge::Answer;

/// Whether a context of this process was ever broken: all that a call looks at otherwise.
static ANY: AtomicBool = AtomicBool::new(false);

/// Calls that need no working context, by how their names begin: what makes, ends, and changes contexts, and what asks after
/// devices.
const SPARED: [&str; 10] = [
    "cuCtxCreate",
    "cuCtxDestroy",
    "cuCtxDetach",
    "cuCtxGetCurrent",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuCtxSetCurrent",
    "cuDevice",
    "cuGreenCtxDestroy",
    "cuThreadExchangeStreamCaptureMode",
];

/// What an error has made of a context: its code, or 0.
#[derive(Default)]
pub struct Health(AtomicU32);

impl Health {
    /// Refuses a broken context with the code of what broke it.
    #[inline]
    pub fn check(&self) -> Answer {
        // Relaxed: the code is all there is to know.
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(CUresult(code)),
        }
    }

    /// The error goes with its context.
    pub fn heal(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A sticky error strikes the call in progress: the thread's context is broken from now on. The call's answer.
pub fn strike(code: CUresult) -> CUresult {
    if let Ok(context) = context::current() {
        context.root().health.0.store(code.0, Ordering::Relaxed);
        ANY.store(true, Ordering::Release);
    }
    code
}

/// Whether any context of this process was ever broken.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// Refuses a call that needs the thread's context if that is broken.
#[inline]
pub fn check(index: usize) -> Answer {
    if any() { check_current(SYMBOLS[index].name) } else { Ok(()) }
}

#[cold]
fn check_current(symbol: &str) -> Answer {
    match context::current() {
        Ok(context) if !SPARED.iter().any(|spared| symbol.starts_with(spared)) => context.check_whole(),
        _ => Ok(()),
    }
}
