//! Processes of ours that speak with strangers have no rights.

use crate::codes;
use crate::fault::Fault;

/// The user and group `nobody`, by the number that Linux gives them everywhere.
pub const NOBODY: libc::gid_t = 65_534;

/// From root to user `nobody` and this group, with no other one and no way back. Another user stays who he is. To be called
/// while there is one thread.
///
/// # Errors
/// The system does not let us.
pub fn give_up_root(group: libc::gid_t) -> Result<(), Fault> {
    // SAFETY: takes numbers only.
    let no_way_back = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 };
    let is_root = rustix::process::geteuid().is_root();
    // SAFETY: takes numbers only, and no other thread runs yet that would keep its rights.
    let given_up = unsafe {
        !is_root
            || (libc::setgroups(0, std::ptr::null()) == 0
                && libc::setgid(group) == 0
                && libc::setuid(NOBODY) == 0)
    };
    if no_way_back && given_up { Ok(()) } else { Err(failed("give up root's rights")) }
}

/// Has the kernel end this process with the thread that started it. To be called without root: a change of user undoes it.
///
/// # Errors
/// The system does not let us.
pub fn end_with_parent() -> Result<(), Fault> {
    // SAFETY: takes numbers only.
    let is_set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) == 0 };
    if is_set { Ok(()) } else { Err(failed("end with the process that started this one")) }
}

fn failed(what: &str) -> Fault {
    let error = std::io::Error::last_os_error();
    Fault::system(&codes::SYSTEM, what, error, "start it as another user")
}
