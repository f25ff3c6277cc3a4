//! Checkpoints of processes (`cuCheckpointProcess*`, since CUDA 12.8): one process locks another, takes its device memory off
//! the devices, brings it back to the same addresses, and lets it go on.
//!
//! Device memory is host memory here, so nothing is moved but in the books; the bytes take the time that they take over the
//! bus. What a real driver refuses is refused at the same step: managed memory, memory that crosses processes (before
//! driver 610) and multicast objects, of which a real one hangs (gpu-truths, rule 15).

use std::ffi::*;
use std::time::{Duration, Instant};

use weir_abi::types::*;

use crate::api::Driver;
use crate::edge::{Answer, get, put};
use crate::memory::Kind;
use crate::session::{self, Obstacle, Step};

/// Between two looks whether a process that is being locked has come to rest.
const LOOK: Duration = Duration::from_millis(1);

/// `CUcheckpointLockArgs`; the other steps' arguments are as long.
#[derive(Clone, Copy)]
#[repr(C)]
struct LockArgs {
    /// 0: without an end.
    timeout_ms: c_uint,
    reserved_0: c_uint,
    reserved_1: [u64; 7],
}

/// Arguments of which nothing is known yet but that they are zero.
fn check_zero(args: *mut c_void) -> Answer {
    if args.is_null() || get(args.cast::<[u64; 8]>().cast_const())? == [0; 8] {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// What the allocation's kind is for a checkpoint.
fn obstacle(kind: Kind) -> Option<Obstacle> {
    match kind {
        Kind::Managed => Some(Obstacle::Managed),
        Kind::Imported | Kind::Piece => Some(Obstacle::Ipc),
        _ => None,
    }
}

/// Counts an allocation that comes or goes.
pub fn count(kind: Kind, comes: bool) {
    if let Some(obstacle) = obstacle(kind) {
        count_obstacle(obstacle, comes);
    }
}

/// Counts what stands in the way of a checkpoint.
pub fn count_obstacle(obstacle: Obstacle, comes: bool) {
    // Without a session there is nothing to take a checkpoint of.
    let _counted = session::current().and_then(|session| session.count_obstacle(obstacle, comes));
}

/// Waits as long as so many bytes take at this rate; 1 GB/s is a byte in a nanosecond.
fn pass_over_the_bus(bytes: u64, gb_s: u64) {
    std::thread::sleep(Duration::from_nanos(bytes / gb_s.max(1)));
}

impl Driver {
    pub fn cuCheckpointProcessGetState(pid: c_int, state: *mut c_uint) -> Answer {
        put(state, session::current()?.process_state(pid)? as c_uint)
    }

    pub fn cuCheckpointProcessLock(pid: c_int, args: *mut c_void) -> Answer {
        let session = session::current()?;
        let args = if args.is_null() {
            LockArgs { timeout_ms: 0, reserved_0: 0, reserved_1: [0; 7] }
        } else {
            get(args.cast::<LockArgs>().cast_const())?
        };
        if args.reserved_0 != 0 || args.reserved_1 != [0; 7] {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let patience = (args.timeout_ms > 0).then(|| Duration::from_millis(args.timeout_ms.into()));
        let begun = Instant::now();
        loop {
            match session.process_step(pid, Step::Lock) {
                Err(CUDA_ERROR_NOT_READY) => {}
                done => return done.map(drop),
            }
            if patience.is_some_and(|patience| begun.elapsed() >= patience) {
                session.process_step(pid, Step::Abandon)?;
                return Err(CUDA_ERROR_NOT_READY);
            }
            std::thread::sleep(LOOK);
        }
    }

    pub fn cuCheckpointProcessCheckpoint(pid: c_int, args: *mut c_void) -> Answer {
        check_zero(args)?;
        let session = session::current()?;
        pass_over_the_bus(session.process_step(pid, Step::Checkpoint)?, session.config().device_to_host_gb_s);
        Ok(())
    }

    pub fn cuCheckpointProcessRestore(pid: c_int, args: *mut c_void) -> Answer {
        check_zero(args)?;
        let session = session::current()?;
        pass_over_the_bus(session.process_step(pid, Step::Restore)?, session.config().host_to_device_gb_s);
        Ok(())
    }

    pub fn cuCheckpointProcessUnlock(pid: c_int, args: *mut c_void) -> Answer {
        check_zero(args)?;
        session::current()?.process_step(pid, Step::Unlock).map(drop)
    }
}
