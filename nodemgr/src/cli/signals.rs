//! Signals taken one by one on the thread that asks for them, instead of by handlers.

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// A signal that came.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// Whether a process sent it; otherwise the terminal did, and then to everybody in the foreground.
    pub from_process: bool,
}

/// A set of blocked signals. Programs inherit that: start them through [`Signals::spare`].
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks `numbers` on this thread and on all that it starts.
    pub fn block(numbers: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initializes the set, the others then read and change it; all pointers are to it.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for number in numbers {
                libc::sigaddset(set.as_mut_ptr(), *number);
            }
            let set = set.assume_init();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            set
        };
        Self(set)
    }

    /// Has `command` start with these signals unblocked, as if we had never touched them.
    pub fn spare(&self, command: &mut Command) {
        let set = self.0;
        let unblock = move || {
            // SAFETY: the set is initialized; the call is async-signal-safe, as it must be between fork and exec.
            match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) } {
                0 => Ok(()),
                error => Err(std::io::Error::from_raw_os_error(error)),
            }
        };
        // SAFETY: the closure makes one system call, and neither allocates nor takes a lock.
        unsafe { command.pre_exec(unblock) };
    }

    /// The next of them; `None` when `patience` is over.
    pub fn wait(&self, patience: Option<Duration>) -> Option<Signal> {
        let time = patience.map(|time| libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(time.subsec_nanos()),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialized, `info` has room, and `time` is null or points at a value that outlives the
        // call.
        let number = unsafe { libc::sigtimedwait(&raw const self.0, info.as_mut_ptr(), time) };
        if number <= 0 {
            return None;
        }
        // SAFETY: zeroed bytes are a valid `siginfo_t`, and the kernel has filled it.
        let code = unsafe { info.assume_init() }.si_code;
        Some(Signal { number, from_process: code <= 0 })
    }
}
