//! Requests and replies over the socket: one packet each, one reply per request, in order. Who asks is known
//! from the socket's peer credentials, never from what a message says.

use serde::{Deserialize, Serialize};

use crate::config::Config;

/// Raise it with every change of a message.
pub const PROTOCOL: u32 = 5;

/// Longest request, bytes: a tag and a few integers.
pub const LONGEST_REQUEST: usize = 64;
/// Longest reply but for the welcome, bytes: a refusal in words.
pub const LONGEST_REPLY: usize = 1 << 10;
/// Longest welcome, bytes: below the kernel's default send buffer, so that the whole configuration fits into one
/// packet. What can be longer (the books) travels as a file descriptor.
pub const LONGEST_WELCOME: usize = 160 << 10;

/// Who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A driver: gets a page and a bell.
    Cuda,
    /// NVML and tools: ask only.
    Observer,
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First message; answered by [`Reply::Welcome`].
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Who connects.
        kind: Kind,
    },
    /// Make a context; its memory overhead is charged. Answered by [`Reply::Context`].
    CreateContext {
        /// On this device.
        device: u32,
    },
    /// End a context with all that runs in it.
    DestroyContext {
        /// Which.
        context: u32,
    },
    /// Take device memory.
    Reserve {
        /// Where.
        device: u32,
        /// How much.
        bytes: u64,
    },
    /// Give device memory back.
    Release {
        /// Where.
        device: u32,
        /// How much.
        bytes: u64,
    },
    /// What is done with a multicast object.
    Team(TeamRequest),
    /// How much memory there is. Answered by [`Reply::Memory`].
    Memory {
        /// Where.
        device: u32,
    },
    /// The books, as JSON in a memfd that comes with [`Reply::Books`].
    Books,
    /// What one process does with another, or with itself, for a checkpoint.
    Process {
        /// Which process.
        pid: i32,
        /// What is to be done.
        step: Step,
    },
}

/// What is done with a multicast object, which any process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TeamRequest {
    /// Make one; the process has it once. Answered by [`Reply::Team`].
    Create {
        /// Devices that must join before memory can be bound.
        devices: u32,
        /// Its size, which it takes on each of them.
        bytes: u64,
    },
    /// The process has it once more.
    Open {
        /// Which.
        team: u32,
    },
    /// The process has it once less. What it keeps for others is counted there from then on.
    Close {
        /// Which.
        team: u32,
    },
    /// A device joins, for as long as anybody has the object.
    Join {
        /// Which.
        team: u32,
        /// The device.
        device: u32,
    },
    /// Whether all devices have joined; [`Refusal::NotReady`] if not.
    Ready {
        /// Which.
        team: u32,
    },
    /// Bind memory of the process; [`Refusal::NotReady`] until all devices have joined.
    Bind(Binding),
    /// Let go of what this process, or one that is gone, has bound in a range.
    Unbind {
        /// Which.
        team: u32,
        /// The device.
        device: u32,
        /// From here.
        at: u64,
        /// So many bytes.
        bytes: u64,
    },
    /// The process gives memory up that is still bound: it is counted at whoever has the object. Where nobody has, it is given
    /// back.
    HandOver(Binding),
}

/// Memory that is bound to a multicast object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// To which.
    pub team: u32,
    /// Where the memory lies.
    pub device: u32,
    /// Where in the object it begins.
    pub at: u64,
    /// How much of it is bound.
    pub length: u64,
    /// What tells the memory from others of the process.
    pub memory: u64,
    /// How much the process holds for it.
    pub bytes: u64,
}

/// A step of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Nothing: only say how it stands. Answered by [`Reply::Process`].
    State,
    /// Hold its further calls; [`Refusal::NotReady`] until all that it has begun is done: ask again, or [`Step::Abandon`].
    Lock,
    /// Give up a lock that is not there yet.
    Abandon,
    /// Take its memory off the devices. Answered by [`Reply::Moved`].
    Checkpoint,
    /// Bring it back. Answered by [`Reply::Moved`].
    Restore,
    /// Let its calls go on.
    Unlock,
}

/// `CUprocessState`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessState {
    /// Its calls go on.
    #[default]
    Running = 0,
    /// They wait.
    Locked = 1,
    /// They wait, and it holds no device memory.
    Checkpointed = 2,
}

/// What no checkpoint can be taken of (gpu-truths, rule 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Obstacle {
    /// Managed memory.
    #[error("managed memory")]
    Managed = 0,
    /// Memory that was given to other processes, or is theirs: before driver 610.
    #[error("memory that crosses processes")]
    Ipc = 1,
    /// Multicast objects, at which a real driver may even hang (nccl#2340).
    #[error("multicast objects")]
    Multicast = 2,
}

impl Obstacle {
    /// All of them, in the order of their words on the page.
    pub const ALL: [Self; 3] = [Self::Managed, Self::Ipc, Self::Multicast];
}

/// What the broker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// To a hello. For [`Kind::Cuda`] with two descriptors: the page, the bell.
    Welcome(Box<Welcome>),
    /// The new context's number.
    Context(u32),
    /// The new multicast object's number.
    Team(u32),
    /// Done.
    Done,
    /// Device memory, bytes.
    Memory {
        /// Capacity.
        total: u64,
        /// Held by all processes.
        used: u64,
        /// Held by the asking process.
        own: u64,
    },
    /// The books are in the descriptor that comes along.
    Books,
    /// How a process stands.
    Process(ProcessState),
    /// So many bytes went over the bus.
    Moved(u64),
    /// No.
    Refused(Refusal),
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    #[error("the simulated GPU has not that much free memory")]
    OutOfMemory,
    /// `CUDA_ERROR_INVALID_DEVICE`.
    #[error("there is no such simulated GPU")]
    NoSuchDevice,
    /// `CUDA_ERROR_INVALID_CONTEXT`.
    #[error("this process has no such context")]
    NoSuchContext,
    /// `CUDA_ERROR_INVALID_VALUE`.
    #[error("no process {0} uses the simulated GPU")]
    NoSuchProcess(i32),
    /// `CUDA_ERROR_ILLEGAL_STATE`.
    #[error("the process is in another state: {0:?}")]
    WrongState(ProcessState),
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    #[error("no checkpoint can be taken of {0}")]
    NoCheckpointOf(Obstacle),
    /// `CUDA_ERROR_NOT_READY`, if it stays so until the time is over.
    #[error("the process has calls or work under way")]
    NotReady,
    /// `CUDA_ERROR_INVALID_VALUE`.
    #[error("there is no such multicast object, or none that takes this")]
    NotOfTeam,
    /// More was given back than taken.
    #[error("more memory is given back than this process holds")]
    NotHeld,
    /// Another version of library and broker.
    #[error("library and broker of the simulated GPU differ in version (broker: {broker})")]
    Protocol {
        /// The broker's [`PROTOCOL`].
        broker: u32,
    },
    /// A message at the wrong time, or too many clients.
    #[error("the broker of the simulated GPU refused: {0}")]
    Other(String),
}

/// What a new client learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The whole configuration: prices, faults, driver version.
    #[serde(with = "as_json")]
    pub config: Config,
    /// The devices, in order.
    pub devices: Vec<Device>,
}

/// One simulated GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its UUID, stable for a place in the list.
    pub uuid: [u8; 16],
    /// Capacity, bytes.
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// PCI bus number.
    pub pci_bus: u8,
}

impl Device {
    /// The UUID as NVML and `nvidia-smi` write it, `GPU-xxxxxxxx-xxxx-...`.
    pub fn uuid_text(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let u = &self.uuid;
        format!(
            "GPU-{}-{}-{}-{}-{}",
            hex(&u[..4]),
            hex(&u[4..6]),
            hex(&u[6..8]),
            hex(&u[8..10]),
            hex(&u[10..])
        )
    }
}

/// The configuration travels as JSON text: its types are made for files that describe themselves.
mod as_json {
    use serde::{Deserialize, Deserializer, Serializer, de, ser};

    use crate::config::Config;

    pub fn serialize<S: Serializer>(config: &Config, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&serde_json::to_string(config).map_err(ser::Error::custom)?)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Config, D::Error> {
        serde_json::from_str(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_protocol::codec;

    #[test]
    fn a_welcome_survives_the_wire_with_its_configuration() {
        let text = "[[kernel]]\nname = \"gemm*\"\ntime_us = 100\n[[fault]]\ncall = \"cuInit\"\nnth = 1\naction = \"error:2\"\n";
        let config: Config = toml::from_str(text).unwrap();
        let device = Device { uuid: [7; 16], memory_bytes: 1, sms: 2, pci_bus: 3 };
        let reply = Reply::Welcome(Box::new(Welcome { config, devices: vec![device] }));
        assert_eq!(codec::decode::<Reply>(&codec::encode(&reply).unwrap()).unwrap(), reply);
    }
}
