//! A simulated GPU of a story's own: a broker in a throw-away directory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use weir_simgpu_link::books::{Books, Client};

use crate::dist::Dist;
use crate::wait;

/// Kernels of every name cost 20 us, and the broker stays until it is killed.
pub const EVERY_KERNEL_20_US: &str = "linger_ms = 3_600_000\n[[kernel]]\nname = \"*\"\ntime_us = 20\n";

/// One simulated machine.
pub struct SimGpu {
    dist: Dist,
    dir: TempDir,
    broker: Child,
}

impl SimGpu {
    /// A machine of this configuration (TOML).
    ///
    /// # Panics
    /// If it does not come up.
    pub fn new(config: &str) -> Self {
        let dist = Dist::find();
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("simgpu.toml"), config).expect("a file in it");
        let log = std::fs::File::create(dir.path().join("broker.log")).expect("a file in it");
        let broker = Command::new(dist.simgpu().join("weir-simgpu"))
            .args(["broker", "--foreground", "--dir"])
            .arg(dir.path())
            .arg("--config")
            .arg(dir.path().join("simgpu.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the broker of the simulated GPU starts");
        let mut gpu = Self { dist, dir, broker };
        wait::until("a broker that answers", || gpu.alive().then(|| gpu.try_books()).flatten());
        gpu
    }

    fn alive(&mut self) -> bool {
        if let Ok(Some(status)) = self.broker.try_wait() {
            let log = std::fs::read_to_string(self.dir.path().join("broker.log")).unwrap_or_default();
            panic!("the broker of the simulated GPU ended with {status}:\n{log}");
        }
        true
    }

    /// The build that this machine is of.
    pub fn dist(&self) -> &Dist {
        &self.dist
    }

    /// Where its sockets are.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// A directory of a node manager, which is not there.
    pub fn no_node(&self) -> PathBuf {
        self.dir.path().join("no-node")
    }

    /// What makes a program find this machine's GPUs.
    pub fn environment(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("LD_LIBRARY_PATH", self.dist.simgpu()),
            ("WEIR_SIMGPU_DIR", self.dir.path().to_path_buf()),
            ("WEIR_SIMGPU_CONFIG", self.dir.path().join("simgpu.toml")),
        ]
    }

    /// The books as `weir-simgpu books` prints them.
    ///
    /// # Panics
    /// If the broker does not answer.
    pub fn books(&self) -> Books {
        self.try_books().expect("the broker answers")
    }

    fn try_books(&self) -> Option<Books> {
        let mut command = Command::new(self.dist.simgpu().join("weir-simgpu"));
        let output = command.args(["books", "--dir"]).arg(self.dir.path()).output().ok()?;
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("books are JSON"))
    }

    /// The books of one process on the first GPU.
    pub fn client(&self, pid: i32) -> Option<Client> {
        self.books().gpus.swap_remove(0).clients.into_iter().find(|client| client.pid == pid)
    }

    /// The books' time, and what each of these processes has truly used of the first GPU until then, in nanoseconds.
    pub fn true_use<const N: usize>(&self, pids: [i32; N]) -> (u64, [u64; N]) {
        let books = self.books();
        let of = |pid: i32| {
            let clients = books.gpus[0].clients.iter().filter(|client| client.pid == pid);
            clients.flat_map(|client| &client.contexts).map(|context| context.true_use_ns).sum()
        };
        (books.now_ns, pids.map(of))
    }

    /// Parts of the first GPU that these processes truly use, over a while, in percent.
    pub fn shares<const N: usize>(&self, pids: [i32; N], window: Duration) -> [f64; N] {
        wait::in_time(|| {
            let before = self.true_use(pids);
            std::thread::sleep(window); // real processes take their shares in real time
            let after = self.true_use(pids);
            let wall = (after.0 - before.0) as f64;
            std::array::from_fn(|at| (after.1[at] - before.1[at]) as f64 * 100.0 / wall)
        })
    }

    /// Calls per driver function, of all processes that ever used this machine.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        let clients = self.books().gpus.into_iter().flat_map(|gpu| gpu.clients);
        for (name, count) in clients.flat_map(|client| client.calls) {
            *sums.entry(name).or_default() += count;
        }
        sums
    }
}

impl Drop for SimGpu {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        let _ = self.broker.wait();
    }
}
