//! A node manager in a throw-away directory, and processes that register with it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use weir_nodemgr::control::schema::{CreateTenant, Created};
use weir_nodemgr::control::{Client, Stats, TenantStats};
use weir_nodemgr::gpus::{Device, Source};
use weir_nodemgr::{Manager, Options, Place};
use weir_protocol::units::Bytes;

/// Longest that anything here may take.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// A node manager of two GPUs with 100 GiB each, without a reserve.
pub struct Stage {
    pub place: Place,
    manager: Option<Manager>,
    dir: tempfile::TempDir,
}

impl Stage {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// One whose options are changed before it starts.
    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::Builder::new().prefix("weir").tempdir_in("/tmp").unwrap();
        let place = Place::at(&dir.path().join("node")).unwrap();
        let mut options = options(&place);
        change(&mut options);
        let manager = Some(Manager::start(options).unwrap());
        Self { place, manager, dir }
    }

    /// Ends the manager; whatever it has told anybody stays told.
    pub fn stop(&mut self) {
        self.manager = None;
    }

    /// Ends it, and starts another one in the same place.
    pub fn restart(&mut self) {
        self.restart_with(|_| {});
    }

    /// The same, with options that are changed before it starts.
    pub fn restart_with(&mut self, change: impl FnOnce(&mut Options)) {
        self.stop();
        let mut options = options(&self.place);
        change(&mut options);
        self.manager = Some(Manager::start(options).unwrap());
    }

    /// Whether the manager has noticed that somebody else is in its place.
    pub fn was_replaced(&self) -> bool {
        self.manager.as_ref().unwrap().was_replaced()
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.place).unwrap()
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn stats(&self) -> Stats {
        self.client().stats().unwrap()
    }

    pub fn tenant(&self, name: &str) -> Option<TenantStats> {
        self.stats().tenants.into_iter().find(|tenant| tenant.name == name)
    }

    /// Waits until the tenant looks as it should.
    pub fn until(&self, name: &str, what: &str, holds: impl Fn(Option<&TenantStats>) -> bool) {
        let start = Instant::now();
        while !holds(self.tenant(name).as_ref()) {
            assert!(start.elapsed() < DEADLINE, "{what} has not come: {:?}", self.tenant(name));
            std::thread::yield_now();
        }
    }
}

pub fn options(place: &Place) -> Options {
    let gpu = |n: u8| Device { uuid: [n; 16], name: format!("Test {n}"), memory_total: Bytes::gib(100) };
    let mut options = Options::new(place.clone(), Source::Fixed(vec![gpu(0), gpu(1)]));
    options.reserve = Some(Bytes(0));
    options.scraper = env!("CARGO_BIN_EXE_weir").into();
    options
}

pub fn wish(name: &str, request_percent: u16) -> CreateTenant {
    CreateTenant {
        name: name.into(),
        request_permille: Some(request_percent * 10),
        memory_bytes: Some(10 << 30),
        ..CreateTenant::default()
    }
}

/// A process of a tenant.
pub struct Actor {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Actor {
    /// Starts one; the first line that it says is `ready SLOT`, or why it was refused.
    pub fn enter(created: &Created) -> (Self, String) {
        let mut command = Command::new(peer());
        command.env("WEIR_DIR", &created.dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (says, hears) = (BufReader::new(child.stdout.take().unwrap()), child.stdin.take().unwrap());
        let mut actor = Self { child, says, hears };
        let first = actor.heard();
        (actor, first)
    }

    pub fn ready(created: &Created) -> Self {
        let (actor, first) = Self::enter(created);
        assert!(first.starts_with("ready"), "{first}");
        actor
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Sends a word without waiting for what it leads to.
    pub fn tell(&mut self, word: &str) {
        writeln!(self.hears, "{word}").unwrap();
    }

    pub fn ask(&mut self, word: &str) -> String {
        self.tell(word);
        self.heard()
    }

    pub fn heard(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub fn wait(&mut self) {
        self.child.wait().unwrap();
    }

    /// Waits until the process runs another program.
    pub fn until_it_is(&self, program: &str) {
        let start = Instant::now();
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", self.pid())).unwrap();
        while name().trim() != program {
            assert!(start.elapsed() < DEADLINE, "it is still {}", name());
            std::thread::yield_now();
        }
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The example `peer`, which is built along with the tests.
fn peer() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let path = path.join("examples/peer");
    assert!(path.exists(), "build it with `cargo build -p weir-nodemgr --example peer`");
    path
}
