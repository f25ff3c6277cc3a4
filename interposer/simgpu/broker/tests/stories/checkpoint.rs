//! One process takes a checkpoint of another, as NVIDIA's `cuda-checkpoint` does.

use weir_simgpu_link::{Obstacle, ProcessState, Refusal, Session, SessionError, Step};

use crate::harness::{Broker, Player, until};
use crate::roles::Role;

/// Starts a process that makes calls, and waits until it does.
fn calling(broker: &Broker, role: Role) -> (Player, i32) {
    let mut player = broker.play(role);
    player.go();
    until(|| broker.progress(player.pid()).0 > 0);
    let pid = player.pid().cast_signed();
    (player, pid)
}

fn lock(manager: &Session, pid: i32) {
    until(|| manager.process_step(pid, Step::Lock).is_ok());
}

fn refusal(result: Result<u64, SessionError>) -> Refusal {
    match result {
        Err(SessionError::Refused(why)) => why,
        other => panic!("it was to be refused: {other:?}"),
    }
}

#[test]
fn a_locked_process_stands_still_and_its_memory_leaves_the_gpu_and_comes_back() {
    let broker = Broker::start("memory = \"4GiB\"\ncontext_overhead = \"1MiB\"\n");
    let (player, pid) = calling(&broker, Role::Calls);
    let manager = broker.client();
    lock(&manager, pid);
    let before = broker.books_of(player.pid()).unwrap();
    let moved = manager.process_step(pid, Step::Checkpoint).unwrap();
    assert_eq!((moved, moved), (before.memory_bytes, (1 << 30) + (1 << 20)));
    assert_eq!(manager.process_state(pid).unwrap(), ProcessState::Checkpointed);
    assert_eq!(broker.books().gpus[0].memory_used, 0, "others may have it");
    manager.reserve(0, 4 << 30).unwrap();
    assert_eq!(refusal(manager.process_step(pid, Step::Restore)), Refusal::OutOfMemory);
    manager.release(0, 4 << 30).unwrap();
    assert_eq!(manager.process_step(pid, Step::Restore).unwrap(), moved);
    let after = broker.books_of(player.pid()).unwrap();
    assert_eq!(
        (after.memory_bytes, &after.contexts),
        (before.memory_bytes, &before.contexts),
        "it stood still"
    );
    manager.process_step(pid, Step::Unlock).unwrap();
    let stood_at = broker.progress(player.pid()).0;
    until(|| broker.progress(player.pid()).0 > stood_at);
}

#[test]
fn a_step_in_another_state_than_its_own_is_refused_and_changes_nothing() {
    // The driver's reference names the state that each step needs.
    let broker = Broker::start("");
    let (_player, pid) = calling(&broker, Role::Calls);
    let manager = broker.client();
    let refused = |step, state: ProcessState| {
        assert_eq!(refusal(manager.process_step(pid, step)), Refusal::WrongState(state), "{step:?}");
        assert_eq!(manager.process_state(pid).unwrap(), state);
    };
    [Step::Checkpoint, Step::Restore, Step::Unlock]
        .iter()
        .for_each(|step| refused(*step, ProcessState::Running));
    lock(&manager, pid);
    [Step::Lock, Step::Restore, Step::Abandon].iter().for_each(|step| refused(*step, ProcessState::Locked));
    manager.process_step(pid, Step::Checkpoint).unwrap();
    [Step::Lock, Step::Checkpoint, Step::Unlock]
        .iter()
        .for_each(|step| refused(*step, ProcessState::Checkpointed));
    assert_eq!(refusal(manager.process_step(1, Step::Lock)), Refusal::NoSuchProcess(1));
}

#[test]
fn managed_memory_cannot_be_taken_off_the_gpu_and_the_process_stays_locked() {
    // cuda-checkpoint: no UVM memory.
    let broker = Broker::start("");
    let (player, pid) = calling(&broker, Role::Manages);
    let manager = broker.client();
    lock(&manager, pid);
    let refused = refusal(manager.process_step(pid, Step::Checkpoint));
    assert_eq!(refused, Refusal::NoCheckpointOf(Obstacle::Managed));
    assert_eq!(manager.process_state(pid).unwrap(), ProcessState::Locked);
    manager.process_step(pid, Step::Unlock).unwrap();
    let stood_at = broker.progress(player.pid()).0;
    until(|| broker.progress(player.pid()).0 > stood_at);
}

#[test]
fn a_call_under_way_is_waited_for_and_whoever_waits_and_dies_holds_nobody_up() {
    let broker = Broker::start("");
    let mut player = broker.play(Role::Calls);
    until(|| broker.books_of(player.pid()).is_some_and(|books| books.memory_bytes > 1 << 30));
    let (pid, manager, other) = (player.pid().cast_signed(), broker.client(), broker.client());
    // It has its memory and is about to begin a call that lasts until the gun.
    until(|| {
        manager
            .process_step(pid, Step::Lock)
            .is_err_and(|why| matches!(why, SessionError::Refused(Refusal::NotReady)))
            || {
                manager.process_step(pid, Step::Unlock).unwrap();
                false
            }
    });
    assert_eq!(refusal(other.process_step(pid, Step::Lock)), Refusal::NotReady, "one locks it at a time");
    drop(manager);
    player.go();
    until(|| broker.progress(player.pid()).0 > 0);
    lock(&other, pid);
}

#[test]
fn a_process_that_dies_while_it_is_away_gives_nothing_back_twice() {
    let broker = Broker::start("context_overhead = \"1MiB\"\n");
    let (player, pid) = calling(&broker, Role::Calls);
    let manager = broker.client();
    manager.reserve(0, 1 << 20).unwrap();
    lock(&manager, pid);
    manager.process_step(pid, Step::Checkpoint).unwrap();
    player.signal(rustix::process::Signal::KILL);
    until(|| manager.process_state(pid).is_err());
    assert_eq!(broker.books().gpus[0].memory_used, 1 << 20);
}
