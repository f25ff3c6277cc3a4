//! A node manager with one tenant, and the `weir` command at its door.

use std::process::{Command, Output};

use weir_nodemgr::control::Client;
use weir_nodemgr::control::schema::CreateTenant;
use weir_nodemgr::gpus::{Device, Source};
use weir_nodemgr::{Manager, Options, Place};
use weir_protocol::units::Bytes;

/// A shared library that is harmless to preload: these stories are about budgets, not about enforcing them.
pub const LIBRARY: &str = "/lib/x86_64-linux-gnu/libm.so.6";

pub struct Node {
    place: Place,
    _dir: tempfile::TempDir,
    manager: Option<Manager>,
    holder: Option<Client>,
}

impl Node {
    /// GPU 0 of 80 GiB, of which `held` has 60 % and 60 GiB; GPU 1 is free.
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("weir").tempdir_in("/tmp").unwrap();
        let place = Place::at(&dir.path().join("node")).unwrap();
        let gpu = |n: u8| Device { uuid: [n; 16], name: format!("Test {n}"), memory_total: Bytes::gib(80) };
        let mut options = Options::new(place.clone(), Source::Fixed(vec![gpu(0), gpu(1)]));
        options.reserve = Some(Bytes(0));
        let manager = Manager::start(options).unwrap();
        let mut holder = Client::connect(&place).unwrap();
        let held = CreateTenant {
            name: "held".into(),
            request_permille: Some(600),
            memory_bytes: Some(60 << 30),
            ..CreateTenant::default()
        };
        holder.create(held).unwrap();
        Self { place, _dir: dir, manager: Some(manager), holder: Some(holder) }
    }

    /// The tenant `held` ends.
    pub fn leave(&mut self) {
        self.holder = None;
        while !self.tenants().is_empty() {
            std::thread::yield_now();
        }
    }

    /// The node manager ends.
    pub fn end(&mut self) {
        self.manager = None;
    }

    /// Names and budgets of the tenants.
    pub fn tenants(&self) -> Vec<(String, weir_nodemgr::control::schema::Budget)> {
        let stats = Client::connect(&self.place).unwrap().stats().unwrap();
        stats.tenants.into_iter().map(|tenant| (tenant.name, tenant.budget)).collect()
    }

    /// `weir` with its directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.env_remove("WEIR_PRELOAD").env_remove("LD_PRELOAD").env_remove("CUDA_VISIBLE_DEVICES");
        // A directory of its own comes first where a case brings one.
        if !args.contains(&"--dir") {
            command.arg("--dir").arg(self.place.base());
        }
        command.args(args);
        command
    }

    pub fn weir(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Without what differs from run to run.
    pub fn censor(&self, text: &str) -> String {
        text.replace(&self.place.base().display().to_string(), "[DIR]")
    }
}
