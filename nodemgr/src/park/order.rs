//! The order of a checkpoint over all processes of a tenant: lock all, checkpoint all; restore all, unlock all. Ranks wait for
//! each other, so none of them runs while another one's memory is away (gpu-truths, rule 15).
//!
//! A process that dies meanwhile is none any more. Nothing here ends one: a process that was restored and is killed before it
//! was locked again leaves memory behind (cuda-checkpoint#53).

use std::time::Duration;

use super::Failed;
use crate::birth;
use crate::codes;
use crate::fault::Fault;

/// A process: its number and its birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number in the manager's namespace.
    pub pid: i32,
    /// What tells it from another one of that number.
    pub birth: u64,
}

impl Member {
    fn lives(&self) -> bool {
        birth::find(self.pid, self.birth).is_some()
    }
}

/// How the driver says that a process stands (`CUprocessState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its calls go on.
    Running,
    /// They wait.
    Locked,
    /// They wait, and its memory is on the host.
    Checkpointed,
    /// It cannot be had back, or it stands as no driver did when this was written.
    Lost,
}

/// The driver's answer, if it is no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {answer}")]
pub struct Refusal {
    /// The function.
    pub call: &'static str,
    /// What it answered, by the driver's own name.
    pub answer: String,
}

/// The driver's calls.
pub trait Checkpoints: Send + Sync {
    /// How a process stands.
    ///
    /// # Errors
    /// The driver's refusal; so with all that follow.
    fn state(&self, pid: i32) -> Result<State, Refusal>;
    /// Waits for what is under way, so long at most, and holds all further calls.
    fn lock(&self, pid: i32, patience: Duration) -> Result<(), Refusal>;
    /// Takes the memory of a locked process to the host.
    fn checkpoint(&self, pid: i32) -> Result<(), Refusal>;
    /// Brings it back; the process is locked then.
    fn restore(&self, pid: i32) -> Result<(), Refusal>;
    /// Lets a locked process go on.
    fn unlock(&self, pid: i32) -> Result<(), Refusal>;
}

/// Takes the memory of all of them to the host, or none of it. It is broken off if one of them calls meanwhile.
pub fn take(
    driver: &dyn Checkpoints,
    members: &[Member],
    patience: Duration,
    is_wanted: &dyn Fn() -> bool,
) -> Result<(), Failed> {
    let mut ours = Vec::with_capacity(members.len());
    let mut go = || {
        for member in members {
            lock(driver, member, patience, &mut ours)?;
            if is_wanted() {
                return Err(called());
            }
        }
        for member in members {
            step(member, "checkpoint", driver.checkpoint(member.pid))?;
            if is_wanted() {
                return Err(called());
            }
        }
        Ok(())
    };
    let Err(why) = go() else { return Ok(()) };
    match bring_back(driver, &ours) {
        Ok(()) => Err(Failed { why, undone: true }),
        Err(stuck) => Err(Failed { why: stuck, undone: false }),
    }
}

/// Locks a process that nobody else has locked; those that we have locked are `ours`.
fn lock(
    driver: &dyn Checkpoints,
    member: &Member,
    patience: Duration,
    ours: &mut Vec<Member>,
) -> Result<(), Fault> {
    let pid = member.pid;
    match driver.state(pid) {
        Ok(State::Running) => {}
        Ok(state) => {
            let message = format!("process {pid} is {state:?} by somebody else's checkpoint");
            return Err(Fault::new(&codes::PARK, message, "let it be restored and unlocked first"));
        }
        Err(refusal) => return step(member, "look at", Err(refusal)),
    }
    let locked = driver.lock(pid, patience);
    if locked.is_ok() {
        ours.push(*member);
    }
    step(member, "lock", locked)
}

/// Brings all of them back to where they run, wherever they stand.
pub fn bring_back(driver: &dyn Checkpoints, members: &[Member]) -> Result<(), Fault> {
    let stands = |member: &Member, wanted: State| match driver.state(member.pid) {
        Ok(State::Lost) if member.lives() => {
            let message =
                format!("process {} cannot be had back: the driver has lost its memory", member.pid);
            Err(Fault::new(&codes::PARK_FAILED, message, "end the tenant's processes and start them again"))
        }
        Ok(state) => Ok(state == wanted),
        Err(refusal) => step(member, "look at", Err(refusal)).map(|()| false),
    };
    for member in members {
        if stands(member, State::Checkpointed)? {
            step(member, "restore", driver.restore(member.pid))?;
        }
    }
    for member in members {
        if stands(member, State::Locked)? {
            step(member, "unlock", driver.unlock(member.pid))?;
        }
    }
    Ok(())
}

/// A step, which a process that has died does not need any more.
fn step(member: &Member, what: &str, done: Result<(), Refusal>) -> Result<(), Fault> {
    let Err(refusal) = done else { return Ok(()) };
    if !member.lives() {
        return Ok(());
    }
    let message = format!("the driver does not {what} process {}: {refusal}", member.pid);
    let help = "`docs/park.md` says of what no checkpoint can be taken; try again when the tenant is idle";
    Err(Fault::new(&codes::PARK_FAILED, message, help))
}

fn called() -> Fault {
    let message = "the tenant has called the driver meanwhile: it is not idle";
    Fault::new(&codes::PARK_FAILED, message, "try again when it is")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// A driver that notes what is asked of it, and refuses one step.
    #[derive(Default)]
    struct Noted {
        states: Mutex<BTreeMap<i32, State>>,
        steps: Mutex<Vec<String>>,
        refuses: Option<&'static str>,
    }

    impl Noted {
        fn refusing(refuses: &'static str) -> Self {
            Self { refuses: Some(refuses), ..Self::default() }
        }

        fn go(&self, what: &'static str, pid: i32, to: State) -> Result<(), Refusal> {
            let step = format!("{what} {pid}");
            let refused = self.refuses == Some(step.as_str());
            self.steps.lock().unwrap().push(step);
            if refused {
                return Err(Refusal { call: what, answer: "CUDA_ERROR_NOT_SUPPORTED".into() });
            }
            self.states.lock().unwrap().insert(pid, to);
            Ok(())
        }

        fn steps(&self) -> String {
            self.steps.lock().unwrap().join(", ")
        }
    }

    impl Checkpoints for Noted {
        fn state(&self, pid: i32) -> Result<State, Refusal> {
            Ok(self.states.lock().unwrap().get(&pid).copied().unwrap_or(State::Running))
        }
        fn lock(&self, pid: i32, _patience: Duration) -> Result<(), Refusal> {
            self.go("lock", pid, State::Locked)
        }
        fn checkpoint(&self, pid: i32) -> Result<(), Refusal> {
            self.go("checkpoint", pid, State::Checkpointed)
        }
        fn restore(&self, pid: i32) -> Result<(), Refusal> {
            self.go("restore", pid, State::Locked)
        }
        fn unlock(&self, pid: i32) -> Result<(), Refusal> {
            self.go("unlock", pid, State::Running)
        }
    }

    /// Two processes that live as long as the test: the kernel's first one cannot be looked into by everybody, so this one
    /// stands for both, under two births.
    fn members() -> [Member; 2] {
        let pid = i32::try_from(std::process::id()).unwrap();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        [pid, parent].map(|pid| {
            let id = rustix::process::Pid::from_raw(pid).unwrap();
            let pidfd = rustix::process::pidfd_open(id, rustix::process::PidfdFlags::empty()).unwrap();
            Member { pid, birth: birth::of(pidfd, pid).unwrap() }
        })
    }

    const PATIENCE: Duration = Duration::from_secs(1);

    #[test]
    fn ranks_are_locked_before_any_is_checkpointed_and_restored_before_any_goes_on() {
        // gpu-truths, rule 15: lock all, checkpoint all, restore all, unlock all.
        let (driver, [a, b]) = (Noted::default(), members());
        assert!(take(&driver, &[a, b], PATIENCE, &|| false).is_ok());
        bring_back(&driver, &[a, b]).unwrap();
        let (a, b) = (a.pid, b.pid);
        let wanted = format!(
            "lock {a}, lock {b}, checkpoint {a}, checkpoint {b}, restore {a}, restore {b}, unlock {a}, unlock {b}"
        );
        assert_eq!(driver.steps(), wanted);
    }

    #[test]
    fn a_step_that_fails_is_undone_for_all() {
        let [a, b] = members();
        let refuses: &'static str = format!("checkpoint {}", b.pid).leak();
        let driver = Noted::refusing(refuses);
        let failed = take(&driver, &[a, b], PATIENCE, &|| false).unwrap_err();
        assert!(failed.undone && failed.why.message.contains("CUDA_ERROR_NOT_SUPPORTED"), "{}", failed.why);
        assert!([a, b].iter().all(|member| driver.state(member.pid) == Ok(State::Running)));
        assert!(driver.steps().ends_with(&format!("restore {}, unlock {}, unlock {}", a.pid, a.pid, b.pid)));
    }

    #[test]
    fn what_cannot_be_undone_is_said_not_to_be() {
        let [a, b] = members();
        let driver = Noted::refusing(format!("restore {}", a.pid).leak());
        let calls = std::sync::atomic::AtomicUsize::new(0);
        let wanted = || calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 2; // behind the first checkpoint
        let failed = take(&driver, &[a, b], PATIENCE, &wanted).unwrap_err();
        assert!(!failed.undone, "{}", failed.why);
        assert_eq!(driver.state(a.pid), Ok(State::Checkpointed), "nobody else goes on without it");
        assert_eq!(driver.state(b.pid), Ok(State::Locked));
    }

    #[test]
    fn whoever_calls_meanwhile_is_not_kept() {
        let ([a, b], driver) = (members(), Noted::default());
        let failed = take(&driver, &[a, b], PATIENCE, &|| true).unwrap_err();
        assert!(failed.undone);
        assert_eq!(driver.steps(), format!("lock {}, unlock {}", a.pid, a.pid));
    }

    #[test]
    fn what_somebody_else_has_locked_is_left_alone() {
        let ([a, b], driver) = (members(), Noted::default());
        driver.states.lock().unwrap().insert(b.pid, State::Checkpointed);
        let failed = take(&driver, &[a, b], PATIENCE, &|| false).unwrap_err();
        assert!(failed.undone && failed.why.code == codes::PARK.code, "{}", failed.why);
        assert_eq!(driver.state(b.pid), Ok(State::Checkpointed));
    }

    #[test]
    fn the_dead_need_no_step() {
        let [a, mut dead] = members();
        dead.birth += 1; // another process has its number
        let driver = Noted::refusing(format!("lock {}", dead.pid).leak());
        assert!(take(&driver, &[a, dead], PATIENCE, &|| false).is_ok());
    }
}
