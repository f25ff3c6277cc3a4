//! Commands: what a client asks of the GPU's front end, and how one lies in the ring (8 words, 64 bytes).
//!
//! ```text
//! word 0   kind (low 32 bits), stream slot (high 32 bits)
//! word 1   sequence number within the stream
//! word 2   submission time, ns of the client's CLOCK_MONOTONIC
//! word 3   kernel: solo ns      copy, memset: bytes       open: context        record, hold, mark: ns of the GPU
//! word 4   kernel: blocks       copy: direction           record, wait: event slot      open: stream kind
//! word 5   kernel: bandwidth    record, wait: record      open: priority
//! word 6   kernel: 1 if it spins
//! ```
//!
//! Whatever lies in the ring was written by a client, so [`Command::decode`] takes any eight words.

use crate::page::{EVENTS, STREAMS};

/// Longest kernel, ns (1 hour): larger claims are cut, so that sums of times never overflow.
pub const LONGEST_NS: u64 = 3_600_000_000_000;
/// Largest copy, bytes (1 PiB), cut for the same reason.
pub const LARGEST_COPY: u64 = 1 << 50;

/// One command, as it stands in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The stream's slot on the client's page.
    pub stream: u32,
    /// Place within the stream, ascending from 1; completion is `completed[stream] >= sequence`.
    pub sequence: u64,
    /// When the client submitted it, ns.
    pub at_ns: u64,
    /// What to do.
    pub work: Work,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Run a kernel.
    Kernel(Kernel),
    /// Move bytes; the data itself has been moved by the driver.
    Copy {
        /// From where to where.
        direction: Direction,
        /// How many.
        bytes: u64,
    },
    /// Fill device memory.
    Memset {
        /// How many bytes.
        bytes: u64,
    },
    /// Stamp an event when the stream comes here.
    Record {
        /// The event's slot on the page.
        slot: u32,
        /// Number of this record of that slot, ascending from 1.
        record: u32,
        /// What it takes of the GPU, ns.
        takes_ns: u64,
    },
    /// Hold the stream until a record has been reached.
    Wait {
        /// The event's slot.
        slot: u32,
        /// Which record.
        record: u32,
    },
    /// Hold the stream until the client resumes it: host functions, write-values and wait-values.
    Hold {
        /// What it takes of the GPU then, ns.
        then_ns: u64,
    },
    /// A word that the stream writes in passing, or finds as it should be.
    Mark {
        /// What it takes of the GPU, ns.
        takes_ns: u64,
    },
    /// Make the stream. Takes no sequence number.
    Open {
        /// The context it belongs to.
        context: u32,
        /// How it stands to the default stream.
        kind: StreamKind,
        /// CUDA's priority: lower is more urgent.
        priority: i32,
    },
    /// End the stream once it has drained. Takes no sequence number.
    Close,
}

/// A kernel's demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its time alone on the GPU, ns, waves and tails included.
    pub solo_ns: u64,
    /// Thread blocks in its grid.
    pub blocks: u32,
    /// Part of the memory bandwidth it takes when alone, thousandths.
    pub bandwidth_permille: u32,
    /// It spins until [`crate::Session::resume`]; `solo_ns` is ignored.
    pub spins: bool,
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Direction {
    /// Host to device.
    HostToDevice = 0,
    /// Device to host.
    DeviceToHost = 1,
    /// Within one device: runs on its SMs.
    DeviceToDevice = 2,
    /// To another device.
    Peer = 3,
    /// Between two places of host memory: takes no time of the GPU.
    HostToHost = 4,
}

/// How a stream stands to its context's legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StreamKind {
    /// Waits for the legacy stream, and the legacy stream for it.
    Blocking = 0,
    /// Takes no notice of the legacy stream.
    NonBlocking = 1,
    /// The legacy default stream; one per context.
    Legacy = 2,
}

/// Kinds as numbers; 0 is never valid, so an empty slot is no command.
mod kind {
    pub const KERNEL: u32 = 1;
    pub const COPY: u32 = 2;
    pub const MEMSET: u32 = 3;
    pub const RECORD: u32 = 4;
    pub const WAIT: u32 = 5;
    pub const HOLD: u32 = 6;
    pub const OPEN: u32 = 7;
    pub const CLOSE: u32 = 8;
    pub const MARK: u32 = 9;
}

/// The low half of a word.
#[allow(clippy::cast_possible_truncation, reason = "cutting is what it is for")]
const fn low(word: u64) -> u32 {
    word as u32
}

impl Command {
    /// The eight words of this command.
    pub fn encode(&self) -> [u64; 8] {
        let (kind, [a, b, c, d]) = match self.work {
            Work::Kernel(k) => {
                let fields =
                    [k.solo_ns, u64::from(k.blocks), u64::from(k.bandwidth_permille), u64::from(k.spins)];
                (kind::KERNEL, fields)
            }
            Work::Copy { direction, bytes } => (kind::COPY, [bytes, direction as u64, 0, 0]),
            Work::Memset { bytes } => (kind::MEMSET, [bytes, 0, 0, 0]),
            Work::Record { slot, record, takes_ns } => {
                (kind::RECORD, [takes_ns, u64::from(slot), u64::from(record), 0])
            }
            Work::Wait { slot, record } => (kind::WAIT, [0, u64::from(slot), u64::from(record), 0]),
            Work::Hold { then_ns } => (kind::HOLD, [then_ns, 0, 0, 0]),
            Work::Mark { takes_ns } => (kind::MARK, [takes_ns, 0, 0, 0]),
            Work::Open { context, kind, priority } => {
                (kind::OPEN, [u64::from(context), kind as u64, u64::from(priority.cast_unsigned()), 0])
            }
            Work::Close => (kind::CLOSE, [0; 4]),
        };
        [u64::from(kind) | u64::from(self.stream) << 32, self.sequence, self.at_ns, a, b, c, d, 0]
    }

    /// The command in eight words that anyone may have written; `None` if they are no command. Slots are in
    /// range and times are bounded afterwards; contexts and sequence numbers are for the broker to judge.
    pub fn decode(words: [u64; 8]) -> Option<Self> {
        let [head, sequence, at_ns, a, b, c, d, _] = words;
        let stream = low(head >> 32);
        if stream as usize >= STREAMS {
            return None;
        }
        let event = || ((low(b) as usize) < EVENTS).then_some((low(b), low(c)));
        let work = match low(head) {
            kind::KERNEL => Work::Kernel(Kernel {
                solo_ns: a.min(LONGEST_NS),
                blocks: low(b).max(1),
                bandwidth_permille: low(c).min(1000),
                spins: d == 1,
            }),
            kind::COPY => Work::Copy { direction: Direction::from_number(b)?, bytes: a.min(LARGEST_COPY) },
            kind::MEMSET => Work::Memset { bytes: a.min(LARGEST_COPY) },
            kind::RECORD => {
                event().map(|(slot, record)| Work::Record { slot, record, takes_ns: a.min(LONGEST_NS) })?
            }
            kind::WAIT => event().map(|(slot, record)| Work::Wait { slot, record })?,
            kind::HOLD => Work::Hold { then_ns: a.min(LONGEST_NS) },
            kind::MARK => Work::Mark { takes_ns: a.min(LONGEST_NS) },
            kind::OPEN => Work::Open {
                context: low(a),
                kind: StreamKind::from_number(b)?,
                priority: low(c).cast_signed(),
            },
            kind::CLOSE => Work::Close,
            _ => return None,
        };
        Some(Self { stream, sequence, at_ns, work })
    }
}

impl Direction {
    fn from_number(number: u64) -> Option<Self> {
        use Direction::*;
        [HostToDevice, DeviceToHost, DeviceToDevice, Peer, HostToHost]
            .into_iter()
            .find(|d| *d as u64 == number)
    }
}

impl StreamKind {
    fn from_number(number: u64) -> Option<Self> {
        [Self::Blocking, Self::NonBlocking, Self::Legacy].into_iter().find(|k| *k as u64 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_eight_words_are_a_command_in_range_or_none(words: [u64; 8], kind in 0u64..11, stream in 0u64..5000) {
            let mut words = words;
            words[0] = kind | stream << 32;
            if let Some(command) = Command::decode(words) {
                prop_assert!((command.stream as usize) < STREAMS);
                prop_assert_eq!(Command::decode(command.encode()), Some(command));
            }
        }
    }

    #[test]
    fn an_empty_slot_is_no_command() {
        assert_eq!(Command::decode([0; 8]), None);
    }
}
