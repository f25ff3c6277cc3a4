//! The process: a thread for each question. How many there are at once is the manager's to bound.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags};

use super::fetch;
use super::message::{Answer, Heard, Question, receive, send};
use crate::fault::Fault;
use crate::{codes, unprivileged};

/// Stack of the thread of one question, in bytes.
const STACK: usize = 512 << 10;

/// Where memory is short it is this process that ends (proc_pid_oom_score_adj(5)), not its manager or a tenant.
const FIRST_TO_GO: &str = "500";

/// Answers what is asked on the standard input, a socket, until nobody is at its other end.
///
/// # Errors
/// Root's rights cannot be given up, or the standard input is not the manager's socket.
pub fn run() -> Result<(), Fault> {
    let _ = std::fs::write("/proc/self/oom_score_adj", FIRST_TO_GO);
    unprivileged::give_up_root(unprivileged::NOBODY)?;
    unprivileged::end_with_parent()?;
    serve().map_err(|error| {
        Fault::system(&codes::SYSTEM, "hear the node manager", error, "this command is for `weir node` alone")
    })
}

fn serve() -> io::Result<()> {
    let agent = fetch::agent();
    loop {
        match receive::<Question>(io::stdin(), RecvFlags::empty())? {
            Heard::Message(question) => answer_apart(&agent, question)?,
            Heard::End => return Ok(()),
            Heard::Nothing | Heard::Nonsense => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn answer_apart(agent: &ureq::Agent, question: Question) -> io::Result<()> {
    let (agent, question) = (agent.clone(), Arc::new(question));
    let asked = question.clone();
    let started = std::thread::Builder::new().name("weir-page".into()).stack_size(STACK).spawn(move || {
        let find = || fetch::find(&agent, &asked.url, &asked.wanted);
        let found =
            catch_unwind(AssertUnwindSafe(find)).unwrap_or_else(|_| Err("its page is too much".into()));
        let _ = tell(asked.number, found); // nobody hears it any more: the next question says so, too
    });
    started.map(drop).or_else(|error| tell(question.number, Err(error.to_string())))
}

fn tell(number: u64, found: Result<super::message::Found, String>) -> io::Result<()> {
    send(io::stdin(), &Answer::of(number, found), SendFlags::empty()).map(drop)
}
