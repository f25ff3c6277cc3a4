//! The simulated GPU as a library: time is passed in (ns), there is no clock, no thread, no file. The same
//! input gives the same output, so the broker runs it in wall-clock time and the simulator in virtual time.
//!
//! What is modelled (`docs`: gpu-truths 3): a front end that gives each context its time slice in turn, or
//! all contexts at once (MPS); streams in order, with event waits, the legacy default stream and priorities;
//! kernels that share SMs and memory bandwidth; copy engines beside the slices; books that sum exactly.
//!
//! ```
//! use weir_simgpu_model::{Completion, Device, Kernel, Spec, StreamKind, Work};
//! let mut device = Device::new(Spec::default(), 0);
//! let context = device.create_context();
//! let stream = device.open_stream(context, StreamKind::Blocking, 0, 7).unwrap();
//! device.submit(1_000, stream, 1, Work::Kernel(Kernel::full(5_000)));
//! device.advance(1_000_000);
//! let done: Vec<Completion> = device.drain_completions().collect();
//! assert_eq!(done, [Completion::Done { tag: 7, sequence: 1, at: 6_000 }]);
//! ```
//!
//! Timed events and words take their time in their context's turn; a stream that waits for one makes no context runnable.
//!
//! Simplifications, on purpose: untimed events, waits for events and host functions are front-end work that needs no
//! slice; a device's power and clocks are constant; the L2 cache is part of the bandwidth.

mod births;
mod books;
mod channel;
mod concurrency;
mod context;
mod copy;
mod device;
mod noise;
mod run_list;
mod spec;
mod stream;
mod submission;
#[cfg(test)]
mod tests;

pub use books::{ContextBooks, Copied, DeviceBooks};
pub use device::{Completion, ContextId, Device, EventKey, StreamId};
pub use noise::Noise;
pub use spec::{Kernel, Mode, Spec};
pub use stream::{Engine, StreamKind, Work};

/// Moments and durations, ns.
pub type Nanos = u64;
