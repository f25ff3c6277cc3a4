//! Host functions in streams: while the program's function runs, on a thread of the driver's, nothing there waits
//! ([`excuse`]). The driver is given a function of ours and a note of the program's, which is called with its own argument.
//!
//! While it runs nothing else of its stream does, and no event tells its time from that of the launches around it. So a mark stands
//! before it and one behind it: what lies between them is charged to nobody.
//!
//! A captured one goes as it is: it runs once for each launch of its graph, and whoever asks the node for its function must hear the
//! program's. So does the host node of a graph. For what these launch the rule of liveness holds.
//!
//! [`excuse`]: super::excuse

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::flight::Due;

use super::meter::{ANYTHING, BRACKET, Hands};
use crate::driver::Stream;
use crate::guard::guard;
use crate::link::CAPTURES;
use crate::thread::{self, Current};

/// The program's function and its argument, until it runs.
struct Note<F> {
    function: F,
    data: *mut c_void,
}

type Host = unsafe extern "C" fn(*mut c_void);
type Callback = unsafe extern "C" fn(CUstream, CUresult, *mut c_void);

/// `cuLaunchHostFunc`; `with` calls the driver with another function and argument.
pub fn host(
    stream: Stream,
    function: CUhostFn,
    data: *mut c_void,
    call: impl FnOnce() -> CUresult,
    with: impl FnOnce(CUhostFn, *mut c_void) -> CUresult,
) -> CUresult {
    noted(stream, function.map(|function| Note { function, data }), call, |note| with(Some(run_host), note))
}

/// `cuStreamAddCallback`, in the same way.
pub fn callback(
    stream: Stream,
    function: CUstreamCallback,
    data: *mut c_void,
    call: impl FnOnce() -> CUresult,
    with: impl FnOnce(CUstreamCallback, *mut c_void) -> CUresult,
) -> CUresult {
    let note = function.map(|function| Note { function, data });
    noted(stream, note, call, |note| with(Some(run_callback), note))
}

fn noted<F>(
    stream: Stream,
    note: Option<Note<F>>,
    call: impl FnOnce() -> CUresult,
    with: impl FnOnce(*mut c_void) -> CUresult,
) -> CUresult {
    let given: Cell<*mut Note<F>> = Cell::new(std::ptr::null_mut());
    guard(
        |client| {
            let captured = || CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing();
            let Some(note) = note.filter(|_| !captured()) else { return Ok(None) };
            given.set(Box::into_raw(Box::new(note)));
            let current = thread::with(|thread| thread.find_for(client, stream));
            Ok(current.inspect(|current| mark(current, stream, ANYTHING)))
        },
        || if given.get().is_null() { call() } else { with(given.get().cast()) },
        |_, current, result| {
            if result == CUDA_SUCCESS {
                current.into_iter().for_each(|current| mark(&current, stream, BRACKET));
            }
            if result != CUDA_SUCCESS && !given.get().is_null() {
                // SAFETY: made above; the driver has refused it, so nobody will call it.
                drop(unsafe { Box::from_raw(given.get()) });
            }
        },
    )
}

/// Puts a mark into the stream of the call, if one is at hand.
fn mark(current: &Current, stream: Stream, due: Due) {
    thread::with(|thread| Hands::new(thread, current, stream).put(due));
}

/// Takes the note; it is given back before the program's function runs, which may never return.
///
/// # Safety
/// `note` was made by [`noted`] for a function of this type, and comes from the driver, once.
unsafe fn take<F>(note: *mut c_void) -> Note<F> {
    // SAFETY: the caller's promise.
    *unsafe { Box::from_raw(note.cast::<Note<F>>()) }
}

unsafe extern "C" fn run_host(note: *mut c_void) {
    // SAFETY: the driver calls each host function once, with what `host` gave it.
    let Note { function, data } = unsafe { take::<Host>(note) };
    // SAFETY: the program's own function with its own argument, where the driver would have called it.
    thread::with(|thread| thread.calls_back(|| unsafe { function(data) }));
}

unsafe extern "C" fn run_callback(stream: CUstream, status: CUresult, note: *mut c_void) {
    // SAFETY: as above, of `callback`.
    let Note { function, data } = unsafe { take::<Callback>(note) };
    // SAFETY: as above, with what the driver says.
    thread::with(|thread| thread.calls_back(|| unsafe { function(stream, status, data) }));
}
