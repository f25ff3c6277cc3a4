//! The node manager of this machine, by its control socket: JSON lines, as docs/api.md has them.
//!
//! Fields that are not needed here are passed over, as the API asks of its readers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use weir_protocol::units::SmShare;

use crate::fault::{Fault, UNREACHABLE};

/// Version of the API that is read.
const SCHEMA: u32 = 1;

/// Longest answer, in bytes.
const MAX_ANSWER: u64 = 64 << 20;

/// Longest wait for one; a change of budget takes a second where nothing is launched.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the node manager knows.
#[derive(Clone, Debug, Deserialize)]
pub struct Stats {
    schema: u32,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// The tenants.
    pub tenants: Vec<Tenant>,
}

/// A GPU.
#[derive(Clone, Debug, Deserialize)]
pub struct Gpu {
    /// Its index.
    pub index: usize,
    /// Its UUID.
    pub uuid: String,
    /// The product's name.
    pub name: String,
    /// Whether it is simulated.
    pub simulated: bool,
    /// What tenants can have together.
    pub memory_usable_bytes: u64,
    /// What they have.
    pub memory_limits_bytes: u64,
    /// Sum of the requests.
    pub requested_permille: u16,
}

/// A tenant.
#[derive(Clone, Debug, Deserialize)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// What it did on its GPUs.
    pub gpus: Vec<TenantGpu>,
}

/// A tenant on one GPU.
#[derive(Clone, Debug, Deserialize)]
pub struct TenantGpu {
    /// Index of the GPU.
    pub index: usize,
    /// Counters of all of its processes.
    pub total: Counters,
}

/// What a tenant did on a GPU since it was made.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Counters {
    /// Launches.
    pub launches: u64,
    /// SM time charged.
    pub charged_ns: u64,
    /// Most memory held at once.
    pub memory_peak_bytes: u64,
    /// Copies by way.
    pub copies: BTreeMap<String, Copied>,
    /// Wall time by what it went to.
    pub stalls_ns: BTreeMap<String, u64>,
}

/// Copies of one way.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Copied {
    /// Bytes.
    pub bytes: u64,
}

/// A connection.
pub struct Manager {
    reader: BufReader<UnixStream>,
    socket: PathBuf,
}

impl Manager {
    /// Connects to the node manager whose directory is `dir`.
    ///
    /// # Errors
    /// [`UNREACHABLE`]; so with all that follow, or the manager's refusal.
    pub fn connect(dir: &Path) -> Result<Self, Fault> {
        let socket = dir.join("control.sock");
        let connect = || {
            let stream = UnixStream::connect(&socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(BufReader::new(stream))
        };
        let reader = connect().map_err(|error: std::io::Error| {
            let message = format!("no node manager at `{}`: {error}", socket.display());
            Fault::new(message, "start it with `weir node`, or name its directory with --dir")
                .exit(UNREACHABLE)
        })?;
        Ok(Self { reader, socket })
    }

    /// Everything that it knows.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn stats(&mut self) -> Result<Stats, Fault> {
        let answer = self.ask(&json!({ "do": "stats", "overview": false }))?;
        let stats: Stats = serde_json::from_value(answer).map_err(|error| self.not_understood(&error))?;
        if stats.schema == SCHEMA {
            return Ok(stats);
        }
        let message = format!("the node manager speaks schema {}, and this build {SCHEMA}", stats.schema);
        Err(Fault::new(message, "use a `weir-cluster` of the node manager's version").exit(UNREACHABLE))
    }

    /// Gives a tenant this share, no more and no less; answers after the first launch under it.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn set_share(&mut self, tenant: &str, share: SmShare) -> Result<(), Fault> {
        let permille = share.as_permille();
        let change = json!({
            "do": "set", "tenant": tenant, "request_permille": permille, "limit_permille": permille, "dry_run": false,
        });
        self.ask(&change).map(|_| ())
    }

    fn ask(&mut self, request: &Value) -> Result<Value, Fault> {
        let gone = |error: std::io::Error| {
            let message = format!("the node manager does not answer: {error}");
            Fault::new(message, "look whether `weir node` still runs").exit(UNREACHABLE)
        };
        self.reader.get_mut().write_all(format!("{request}\n").as_bytes()).map_err(gone)?;
        let mut line = Vec::new();
        self.reader.by_ref().take(MAX_ANSWER).read_until(b'\n', &mut line).map_err(gone)?;
        if line.is_empty() {
            return Err(gone(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let answer: Value = serde_json::from_slice(&line).map_err(|error| self.not_understood(&error))?;
        if answer["is"] != "error" {
            return Ok(answer);
        }
        let said = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        let message = format!("the node manager refuses ({}): {}", said("code"), said("message"));
        Err(Fault::new(message, said("help")))
    }

    fn not_understood(&self, error: &serde_json::Error) -> Fault {
        let message = format!("the answer at `{}` is not understood: {error}", self.socket.display());
        Fault::new(message, "use a `weir-cluster` of the node manager's version").exit(UNREACHABLE)
    }
}

impl Stats {
    /// What a tenant did on a GPU; nothing once it has ended.
    pub fn counters(&self, tenant: &str, gpu: usize) -> Option<&Counters> {
        let tenant = self.tenants.iter().find(|row| row.name == tenant)?;
        tenant.gpus.iter().find(|row| row.index == gpu).map(|row| &row.total)
    }
}
