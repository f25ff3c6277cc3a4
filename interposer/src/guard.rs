//! The edge between the application, us and the driver: admit, call once, settle.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_abi::CUresult;
use weir_abi::types::CUDA_SUCCESS;

use crate::failpoint;
use crate::link::{Client, Gpu};
use crate::thread;

/// Runs one hooked call: `admit` decides, `call` is the driver, `settle` books the outcome.
///
/// The driver is called outside of every catch, exactly once (`FnOnce`): a bug of ours can neither skip it nor
/// repeat it nor lose its answer. Without a client there is nothing to enforce, and a call that the driver
/// makes on its own behalf while we are inside another is its own affair.
pub fn guard<R>(
    admit: impl FnOnce(&'static Client) -> Result<R, CUresult>,
    call: impl FnOnce() -> CUresult,
    settle: impl FnOnce(&'static Client, R, CUresult),
) -> CUresult {
    let Some(_inside) = thread::Inside::enter() else { return call() };
    let Some(client) = Client::get() else { return call() };
    client.knock();
    let Some(admitted) = caught(client, || admit(client)) else { return call() };
    let receipt = match admitted {
        Ok(receipt) => receipt,
        Err(refusal) => return refusal, // a decision, as one of the driver's own codes
    };
    let result = call();
    caught(client, || settle(client, receipt, result));
    if result != CUDA_SUCCESS {
        refused(client, result);
    }
    result
}

/// The driver has refused a call. Its reason may be that an error has broken the context.
#[cold]
pub fn refused(client: &Client, result: CUresult) {
    if result.is_sticky() {
        caught(client, || client.gpus.iter().for_each(Gpu::give_up_broken));
    }
}

/// A call of which we only need to know that it succeeded: `then` books what it did.
pub fn after_success(call: impl FnOnce() -> CUresult, then: impl FnOnce(&'static Client)) -> CUresult {
    guard(
        |_| Ok(()),
        call,
        |client, (), result| {
            if result == CUDA_SUCCESS {
                then(client);
            }
        },
    )
}

/// Runs our own code; a panic in it is counted, shown as *degraded*, and goes no further.
pub fn caught<R>(client: &Client, ours: impl FnOnce() -> R) -> Option<R> {
    let outcome = contained(ours);
    if outcome.is_none() {
        client.count_fault();
    }
    outcome
}

/// As [`caught`], for what we do without a client too.
pub fn alone<R>(ours: impl FnOnce() -> R) -> Option<R> {
    match Client::get() {
        Some(client) => caught(client, ours),
        None => contained(ours),
    }
}

fn contained<R>(ours: impl FnOnce() -> R) -> Option<R> {
    let _errno = Errno::keep();
    catch_unwind(AssertUnwindSafe(|| {
        failpoint::pass();
        ours()
    }))
    .ok()
}

/// The application's `errno`, put back on drop: it must not see that we allocated or slept.
struct Errno(i32);

impl Errno {
    fn keep() -> Self {
        // SAFETY: the C library returns the address of this thread's own errno, always valid.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 }
    }
}
