//! What `weir-cluster ps` and `drain` say to the running controller: one JSON line each way, on a socket in its directory.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_protocol::units::Nanos;

use super::Event;
use crate::control::machine::{Controller, Standing};
use crate::control::model::{Decision, Instance};
use crate::control::store::Store;
use crate::fault::{Fault, UNREACHABLE};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Decisions that are shown.
const SHOWN: usize = 200;

/// A question to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// How everything stands.
    Ps {
        /// With the last decisions.
        decisions: bool,
    },
    /// Take instances away from a node, or let it have some again.
    Drain {
        /// The node.
        node: String,
        /// Let it have some again.
        off: bool,
        /// It is known to be dead: forget what was lost there.
        dead: bool,
    },
}

/// How everything stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Standings {
    /// The nodes.
    pub nodes: Vec<NodeRow>,
    /// The services.
    pub services: std::collections::BTreeMap<String, Standing>,
    /// The instances.
    pub instances: Vec<Instance>,
    /// The last decisions, the newest first, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// The controller's time, in nanoseconds since 1970.
    pub now_ns: u64,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// How long ago it was heard of.
    pub silent_ms: u64,
    /// Whether it gets instances.
    pub open: bool,
}

/// Where the controller of this directory listens.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("control.sock")
}

/// Asks the controller of this directory.
///
/// # Errors
/// None runs.
pub fn ask(dir: &Path, question: &Ask) -> Result<Standings, Fault> {
    let path = socket(dir);
    let gone = |error: std::io::Error| {
        let message = format!("no controller at `{}`: {error}", path.display());
        Fault::new(message, "start it with `weir-cluster serve FILE`").exit(UNREACHABLE)
    };
    let mut stream = UnixStream::connect(&path).map_err(gone)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(gone)?;
    let line = serde_json::to_string(question).map_err(|error| gone(error.into()))?;
    writeln!(stream, "{line}").map_err(gone)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(gone)?;
    let standings: Standings = serde_json::from_str(&answer).map_err(|error| gone(error.into()))?;
    match standings.refused {
        Some(refused) => Err(Fault::new(refused, "`weir-cluster ps FILE` shows what there is")),
        None => Ok(standings),
    }
}

/// Listens for questions. The store's lock has shown that no other controller runs here.
pub(super) fn listen(dir: &Path, tell: Sender<Event>) -> Result<(), Fault> {
    let path = socket(dir);
    let _ = std::fs::remove_file(&path); // one that a killed controller left
    let listener = UnixListener::bind(&path).map_err(|error| {
        Fault::new(format!("cannot listen at `{}`: {error}", path.display()), "choose a shorter `dir`")
    })?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || one(stream, &tell));
        }
    });
    Ok(())
}

fn one(stream: UnixStream, tell: &Sender<Event>) {
    let mut line = String::new();
    let _ = stream.set_read_timeout(Some(PATIENCE)); // without it a thread waits longer
    let mut reader = BufReader::new(stream);
    if reader.read_line(&mut line).is_err() {
        return;
    }
    let answer = match serde_json::from_str(&line) {
        Ok(asked) => {
            let (reply, hear) = channel();
            if tell.send(Event::Asked(asked, reply)).is_err() {
                return;
            }
            hear.recv_timeout(PATIENCE).unwrap_or_default()
        }
        Err(error) => refused(format!("the question is not understood: {error}")),
    };
    let _ = writeln!(reader.get_mut(), "{answer}"); // whoever asked may have gone
}

fn refused(why: String) -> String {
    let standings = Standings { refused: Some(why), ..Standings::default() };
    serde_json::to_string(&standings).unwrap_or_default()
}

/// The answer to a question.
pub(super) fn answer(controller: &mut Controller, store: &Store, now: Nanos, asked: &Ask) -> String {
    let mut decisions = Vec::new();
    match asked {
        Ask::Ps { decisions: true } => match store.decisions(SHOWN) {
            Ok(last) => decisions = last,
            Err(fault) => return refused(fault.message),
        },
        Ask::Ps { .. } => {}
        Ask::Drain { node, off, dead } => {
            if !controller.nodes(now).iter().any(|(name, ..)| name == node) {
                return refused(format!("there is no node `{node}`"));
            }
            controller.drain(node, !off);
            if *dead {
                controller.forget_node(node, now);
            }
        }
    }
    let row =
        |(name, silent, open): (String, Nanos, bool)| NodeRow { name, silent_ms: silent.0 / 1_000_000, open };
    let standings = Standings {
        nodes: controller.nodes(now).into_iter().map(row).collect(),
        services: controller.standing().clone(),
        instances: controller.instances().cloned().collect(),
        decisions,
        now_ns: now.0,
        refused: None,
    };
    serde_json::to_string(&standings).unwrap_or_default()
}
