//! GPUs that tenants share by NVIDIA's MPS instead of in turns: their kernels run at once, so partitions and priorities do
//! what turns cannot, and gates do the rest.
//!
//! A client of MPS says what it wants in its environment, when it starts, and never again. So `weir run` says it:
//!
//! | variable | value | why |
//! | --- | --- | --- |
//! | `CUDA_MPS_PIPE_DIRECTORY` | where the control daemon is | a client that finds none there runs without MPS, in silence |
//! | `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` | the limit, rounded up to a whole percent | at most that part of the SMs |
//! | `CUDA_MPS_CLIENT_PRIORITY` | 0 (normal); fillers 1 (below normal) | who comes first where SMs are short |
//!
//! Source: NVIDIA, Multi-Process Service, Legacy MPS v2 interface (docs.nvidia.com/deploy/mps).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_protocol::units::SmShare;

use crate::codes;
use crate::control::schema::ClassName;
use crate::fault::Fault;

/// Where a control daemon is if nobody says otherwise.
const STANDARD: &str = "/tmp/nvidia-mps";

/// The file in which a control daemon leaves its number.
const DAEMON: &str = "nvidia-cuda-mps-control.pid";

/// `[mps]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// GPUs by index or UUID; absent: all.
    pub gpu: Option<Vec<String>>,
    /// Where the control daemon is.
    pub pipe_directory: Option<PathBuf>,
}

impl Row {
    /// Where the control daemon is.
    pub fn pipe_directory(&self) -> &Path {
        self.pipe_directory.as_deref().unwrap_or(Path::new(STANDARD))
    }
}

/// What a tenant's processes say to MPS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Where the control daemon is.
    pub pipe_directory: PathBuf,
    /// Part of the SMs that its kernels may have at most.
    pub active_thread_percentage: u16,
    /// 0 or 1, the lower one first.
    pub priority: u8,
}

/// What the clients of a tenant of this class have: 0 or 1, the lower one first.
pub fn priority(class: ClassName) -> u8 {
    u8::from(class == ClassName::Filler)
}

impl Client {
    /// A tenant of this class and limit.
    pub fn of(pipe_directory: &Path, class: ClassName, limit: SmShare) -> Self {
        Self {
            pipe_directory: pipe_directory.to_owned(),
            active_thread_percentage: limit.as_permille().div_ceil(10).max(1),
            priority: priority(class),
        }
    }

    /// Whether a control daemon is there.
    ///
    /// # Errors
    /// [`codes::MPS`]: a program that started now would run beside MPS instead of under it, without a partition.
    pub fn check(&self) -> Result<(), Fault> {
        let wrong = |why: String| {
            let help = "start it with `nvidia-cuda-mps-control -d`, or correct pipe_directory under [mps] in weir.toml";
            let place = self.pipe_directory.display();
            Err(Fault::new(&codes::MPS, format!("no MPS control daemon at `{place}`: {why}"), help))
        };
        let file = self.pipe_directory.join(DAEMON);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => return wrong(format!("{DAEMON}: {error}")),
        };
        match text.trim().parse::<u32>() {
            Ok(pid) if Path::new("/proc").join(pid.to_string()).exists() => Ok(()),
            Ok(pid) => wrong(format!("its process {pid} has ended")),
            Err(_) => wrong(format!("{DAEMON} holds no number of a process")),
        }
    }

    /// The variables, by name.
    pub fn environment(&self) -> [(&'static str, OsString); 3] {
        [
            ("CUDA_MPS_PIPE_DIRECTORY", self.pipe_directory.clone().into()),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", self.active_thread_percentage.to_string().into()),
            ("CUDA_MPS_CLIENT_PRIORITY", self.priority.to_string().into()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(class: ClassName, permille: u16) -> (u16, u8) {
        let client = Client::of(Path::new("/x"), class, SmShare::permille(permille));
        (client.active_thread_percentage, client.priority)
    }

    #[test]
    fn the_limit_is_the_partition_and_only_fillers_come_last() {
        assert_eq!(client(ClassName::Latency, 300), (30, 0));
        assert_eq!(client(ClassName::Primary, 1000), (100, 0));
        assert_eq!(client(ClassName::Filler, 301), (31, 1), "the gate holds what the partition cannot");
        assert_eq!(client(ClassName::Filler, 1), (1, 1));
    }

    #[test]
    fn a_directory_without_a_living_daemon_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let client = Client::of(dir.path(), ClassName::Primary, SmShare::FULL);
        let file = dir.path().join(DAEMON);
        let why = || client.check().map_err(|fault| (fault.code, fault.message));
        assert!(why().unwrap_err().1.contains(DAEMON));
        std::fs::write(&file, "none\n").unwrap();
        assert!(why().unwrap_err().1.contains("no number"));
        std::fs::write(&file, format!("{}\n", u32::MAX)).unwrap();
        assert!(why().unwrap_err().1.contains("has ended"));
        std::fs::write(&file, format!("{}\n", std::process::id())).unwrap();
        assert_eq!(why(), Ok(()));
    }
}
