//! The manager's threads run for some microseconds and sleep again. They ask for the scheduler's shortest slice: whoever has
//! the processor when one of them is woken then gives way at once, and not when its own slice is over, which may be
//! milliseconds later (EEVDF, from Linux 6.12 on; an older one leaves it as it is).

use std::io;

/// The shortest slice that the scheduler grants, ns.
const SLICE_NS: u64 = 100_000;

/// Of the calling thread, and of those that it starts. Whoever runs it by another rule keeps that.
pub fn be_prompt() {
    if let Err(error) = ask() {
        tracing::debug!(%error, "the scheduler grants no shorter slice");
    }
}

fn ask() -> io::Result<()> {
    let mut attributes = held()?;
    if attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return Ok(());
    }
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the calling thread, and attributes that live as long as the call.
    answer(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

/// How the calling thread is scheduled.
fn held() -> io::Result<libc::sched_attr> {
    // SAFETY: numbers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the calling thread, a place for the answer, and its size.
    answer(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) })?;
    Ok(attributes)
}

fn answer(of_call: libc::c_long) -> io::Result<()> {
    if of_call == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> libc::sched_attr {
        held().unwrap()
    }

    #[test]
    fn whoever_is_prompt_has_the_shortest_slice_and_so_has_who_he_starts() {
        std::thread::spawn(|| {
            let before = attributes();
            be_prompt();
            let after = std::thread::spawn(attributes).join().unwrap();
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
            // A scheduler that knows no slices says nothing of them.
            assert!(before.sched_runtime == 0 || after.sched_runtime == SLICE_NS, "{}", after.sched_runtime);
        })
        .join()
        .unwrap();
    }
}
