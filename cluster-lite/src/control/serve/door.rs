//! The gateway as the controller has it: found if it runs, started if it does not, never started twice.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::control::config::Config;
use crate::control::gateway::{Link, Tell};
use crate::control::route::{Table, Traffic};
use crate::fault::Fault;

/// A gateway that was started has this long to listen before another one is.
const STARTING: Duration = Duration::from_secs(3);

/// The way to the gateway.
pub(super) struct Door {
    listen: SocketAddr,
    socket: PathBuf,
    log: PathBuf,
    program: PathBuf,
    link: Option<Link>,
    started: Option<(Child, Instant)>,
}

impl Door {
    pub fn new(config: &Config) -> Result<Self, Fault> {
        let program = std::env::current_exe().map_err(|error| {
            Fault::new(format!("this program cannot find itself: {error}"), "start it by its full path")
        })?;
        Ok(Self {
            listen: config.listen,
            socket: config.dir.join("gateway.sock"),
            log: config.dir.join("gateway.log"),
            program,
            link: None,
            started: None,
        })
    }

    /// Gives it the table and takes its counts; nothing while there is no gateway.
    pub fn exchange(&mut self, table: &Table, say: &dyn Fn(String)) -> Option<Traffic> {
        if self.link.is_none() {
            self.link = Link::connect(&self.socket).ok();
        }
        let Some(link) = &mut self.link else {
            self.start(say);
            return None;
        };
        match link.tell(&Tell::Route(table.clone())) {
            Ok(traffic) => Some(traffic),
            Err(error) => {
                say(format!("the gateway does not answer: {error}"));
                self.link = None;
                None
            }
        }
    }

    fn start(&mut self, say: &dyn Fn(String)) {
        if let Some((child, at)) = &mut self.started {
            let runs = child.try_wait().is_ok_and(|status| status.is_none());
            if at.elapsed() < STARTING || runs {
                return;
            }
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let started = log.and_then(|log| {
            let mut command = Command::new(&self.program);
            command
                .arg("gateway")
                .arg("--listen")
                .arg(self.listen.to_string())
                .arg("--socket")
                .arg(&self.socket);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).spawn()
        });
        match started {
            Ok(child) => self.started = Some((child, Instant::now())),
            Err(error) => say(format!("the gateway cannot be started: {error}")),
        }
    }

    /// Lets it finish what it has and end.
    pub fn end(&mut self) {
        if let Some(link) = &mut self.link {
            let _ = link.tell(&Tell::End); // one that has gone has ended
        }
        if let Some((child, _)) = &mut self.started {
            let _ = child.wait();
        }
    }
}
