//! What the simulated driver (`libcuda.so.1`), the simulated NVML and their broker know of each other.
//!
//! One broker process owns the simulated GPUs. A client process has with it a socket, for what is rare and
//! needs an answer ([`rpc`]), and one shared page ([`page`]), for what is frequent: commands go up a ring,
//! completions come back as words. A launch is one write into the ring; it makes a system call only when the
//! broker is asleep.
//!
//! All a driver needs is a [`Session`]:
//!
//! ```no_run
//! use weir_simgpu_link::{Kernel, Kind, Session, StreamKind, Work};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let session = Session::connect(Kind::Cuda)?;                        // finds or starts the broker
//! let context = session.create_context(0)?;                           // charged its memory overhead
//! let stream = session.open_stream(context, StreamKind::Blocking, 0)?; // a slot of the page
//! let kernel = Kernel { solo_ns: 5_000, blocks: 108, bandwidth_permille: 200, spins: false };
//! let sequence = session.push(stream, Work::Kernel(kernel))?;         // waits only when the queue is full
//! let record = session.push_record(stream, 7, 2_080)?;                // event slot 7, chosen by the driver; ns
//! session.wait_completed(stream, sequence)?;                          // cuStreamSynchronize
//! session.wait_event(7, record)?;                                     // cuEventSynchronize
//! assert!(session.event_stamp(7, record).is_some());                  // ns, for cuEventElapsedTime
//! session.reserve(0, 1 << 20)?;                                       // Err: the GPU has no more memory
//! # Ok(())
//! # }
//! ```
//!
//! Host functions, stream write-values and wait-values: push [`Work::Hold`], wait until the command *before*
//! it is complete, do the effect, then [`Session::resume`]. A kernel that spins for a flag is
//! [`Kernel::spins`] and ends by the same call.
//!
//! Times are nanoseconds of `CLOCK_MONOTONIC`, sizes are bytes, unless a name says otherwise.

pub mod books;
mod calls;
pub mod command;
pub mod config;
pub mod fault;
pub mod page;
pub mod place;
pub mod ring;
pub mod rpc;
mod session;
pub mod socket;
mod spawn;
pub mod wait;

pub use command::{Command, Direction, Kernel, StreamKind, Work};
pub use page::Page;
pub use rpc::{Binding, Device, Kind, Obstacle, ProcessState, Refusal, Step, TeamRequest, Welcome};
pub use session::{Session, SessionError};
pub use spawn::SpawnError;

/// Now, in nanoseconds of `CLOCK_MONOTONIC`: the clock of every time in this crate.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
