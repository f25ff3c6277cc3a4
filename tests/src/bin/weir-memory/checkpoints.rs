//! Checkpoints of other processes, as `cuda-checkpoint` takes them.

use std::ptr::null_mut;

use weir_tests::call;
use weir_tests::obeying::Done;

use crate::Client;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    let pid = i32::try_from(n(0)).unwrap_or(-1);
    let result = match command {
        "lock" => call!(client, cuCheckpointProcessLock(pid, null_mut())),
        "checkpoint" => call!(client, cuCheckpointProcessCheckpoint(pid, null_mut())),
        "restore" => call!(client, cuCheckpointProcessRestore(pid, null_mut())),
        "unlock" => call!(client, cuCheckpointProcessUnlock(pid, null_mut())),
        _ => return None,
    };
    Some((result, Vec::new()))
}
