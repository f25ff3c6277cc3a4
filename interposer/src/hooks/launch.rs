//! Launches: kernels, cooperative kernels, graphs, and the calls of CUDA 2.
//!
//! The hot path is [`launch`]: loads of the thread's own memory, of the price, of whether the GPU's work flows, of the grant's
//! generation, for a filler of one word of each tenant that it gives way to; and one subtraction. It takes no lock, allocates
//! nothing, makes no system call and writes no log. Everything else is in [`admit`].

mod admit;
mod multi_device;
mod queue;

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::price::{Estimate, Signature};

use self::admit::Entered;
pub(super) use self::admit::{Admission, owe};
pub use self::multi_device::multi_device;
use super::copy_pieces::list;
use super::graph::copies;
use super::{graph_memory, graph_split, names};
use crate::driver::Stream;
use crate::guard;
use crate::link::{CAPTURES, Client};
use crate::thread::{self, Current, Inside, Pair, Thread};

/// What a kernel launch costs by.
#[inline]
pub fn shape(function: CUfunction, grid: [c_uint; 3], block: [c_uint; 3], shared: c_uint) -> Signature {
    Signature::of_kernel(function.addr() as u64, grid, block, shared)
}

/// What one launch of a kernel is charged now, if one like it was ever charged.
pub fn launch_price(function: CUfunction, blocks: c_uint, threads: c_uint, shared: c_uint) -> Option<u64> {
    Client::get()?.book.price(&shape(function, [blocks, 1, 1], [threads, 1, 1], shared))
}

/// What a launch of CUDA 2 costs by: its block shape was set on the function before.
pub fn old_shape(function: CUfunction, width: c_int, height: c_int) -> Signature {
    let positive = |n: c_int| c_uint::try_from(n).unwrap_or(0);
    shape(function, [positive(width), positive(height), 1], [1, 1, 1], 0)
}

/// A kernel launch.
#[inline]
pub fn kernel(counted: usize, stream: Stream, shape: Signature, call: impl FnOnce() -> CUresult) -> CUresult {
    launch(counted, stream, Work::Kernel(shape), Pair::default, call)
}

/// A kernel launch by configuration.
#[inline]
pub fn kernel_ex(
    counted: usize,
    stream: impl FnOnce(CUstream) -> Stream,
    config: *const CUlaunchConfig,
    function: CUfunction,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: the caller passes a configuration or null; the driver reads the same fields.
    let Some(config) = (unsafe { config.as_ref() }) else { return call() };
    let grid = [config.grid_dim_x, config.grid_dim_y, config.grid_dim_z];
    let block = [config.block_dim_x, config.block_dim_y, config.block_dim_z];
    let shape = shape(function, grid, block, config.shared_mem_bytes);
    launch(counted, stream(config.stream), Work::Kernel(shape), || pair(config), call)
}

/// What a configuration says of the launches before and behind this one.
fn pair(config: &CUlaunchConfig) -> Pair {
    let mut pair = Pair::default();
    for attribute in list(config.attrs.cast_const(), config.num_attrs as usize) {
        match attribute.id {
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION => {
                // SAFETY: the identifier says which member of the union the caller has set.
                pair.follows |= unsafe { attribute.value.programmatic_stream_serialization_allowed } != 0;
            }
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT => pair.leads = true,
            _ => {}
        }
    }
    pair
}

/// A graph launch.
pub fn graph(counted: usize, stream: Stream, exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = if graph_split::any() {
        graph_split::launch(counted, stream, exec, call)
    } else {
        whole(counted, stream, exec, call)
    };
    if result == CUDA_SUCCESS {
        copies::launched(stream, exec);
    }
    result
}

/// A graph launch as it is.
pub fn whole(counted: usize, stream: Stream, exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    let work = Work::Graph(Signature::of_graph(exec.addr() as u64));
    let launch = || launch(counted, stream, work, Pair::default, call);
    if graph_memory::may_need(exec) { graph_memory::charge(stream, exec, launch) } else { launch() }
}

/// The position of a launch that is no call of the program's: it is charged and not counted.
pub const UNCOUNTED: usize = usize::MAX;

/// What is launched.
#[derive(Clone, Copy)]
enum Work {
    Kernel(Signature),
    Graph(Signature),
}

impl Work {
    #[inline]
    fn signature(&self) -> &Signature {
        match self {
            Self::Kernel(signature) | Self::Graph(signature) => signature,
        }
    }

    /// The estimate in the process's book; learns the kernel's name on the way.
    #[cold]
    fn look_up(&self, client: &Client) -> &'static Estimate {
        match self {
            Self::Graph(exec) => client.book.graph(exec.handle),
            Self::Kernel(signature) => {
                names::ensure(client, signature.handle);
                client.book.kernel(signature)
            }
        }
    }
}

#[inline]
fn launch(
    counted: usize,
    stream: Stream,
    work: Work,
    pair: impl FnOnce() -> Pair, // asked on the long way only
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let paid = thread::with(|thread| pay_from_purse(thread, counted, stream, work));
    let entered = if paid.is_some() { None } else { Entered::admit(counted, stream, work, pair()) };
    // Called in this one place, and handed to nobody: else each launch would write its arguments to memory for that.
    let result = call();
    match (paid, entered) {
        (_, Some(entered)) => entered.settle(stream, result),
        (Some(price), None) if result != CUDA_SUCCESS => refused(price, result),
        _ => {}
    }
    result
}

/// The hot path: the price that was paid. Says no to anything out of the ordinary, and then has changed nothing.
///
/// A part of each hook, and `work` by value on all ways out of it: so the signature never leaves the registers, and a launch
/// saves none of them twice.
#[inline(always)]
#[allow(clippy::inline_always, reason = "it is the launch path: the compiler would rather have it once")]
fn pay_from_purse(thread: &Thread, counted: usize, stream: Stream, work: Work) -> Option<i64> {
    let current = thread.current()?;
    // Relaxed: a capture that this thread began is in its own past; another thread's stream is not this one.
    if CAPTURES.load(Ordering::Relaxed) != 0 || !current.gpu.flows() {
        return None;
    }
    if thread.runs_on(stream) {
        return pay(thread, &current, counted, &work, |_| {});
    }
    pay_elsewhere(thread, counted, stream, work)
}

/// The same for a launch that goes to another stream than the thread's last one.
#[inline(never)]
fn pay_elsewhere(thread: &Thread, counted: usize, stream: Stream, work: Work) -> Option<i64> {
    let current = thread.current()?;
    if !current.context.flight.is_busy(stream.key()) {
        return None; // onto an idle stream, perhaps: the meter wants to know
    }
    pay(thread, &current, counted, &work, |price| thread.add_to_run(&current, stream, price))
}

/// Pays, and counts the launch once it has been `booked`.
#[inline(always)]
#[allow(clippy::inline_always, reason = "as above")]
fn pay(
    thread: &Thread,
    current: &Current,
    counted: usize,
    work: &Work,
    booked: impl FnOnce(u64),
) -> Option<i64> {
    let known = thread.cache.get(work.signature())?;
    let price = known.estimate.learnt_price()?;
    if !thread.purse(current.gpu)?.pay(price, current.gpu.grant.generation()) {
        return None;
    }
    booked(price.unsigned_abs());
    known.count();
    current.counters.launched(counted, price.unsigned_abs());
    Some(price)
}

/// The driver refused a launch that was paid from the purse.
#[cold]
#[inline(never)]
fn refused(price: i64, result: CUresult) {
    thread::with(|thread| thread.current().inspect(|current| take_back(thread, current, price)));
    if let (Some(_inside), Some(client)) = (Inside::enter(), Client::get()) {
        guard::refused(client, result);
    }
}

/// The driver refused the launch: nothing ran, nothing is charged.
#[cold]
fn take_back(thread: &Thread, current: &Current, price: i64) {
    if let Some(purse) = thread.purse(current.gpu) {
        purse.refund(price);
    }
    current.counters.uncharge(price.unsigned_abs());
    thread.cache.disturb();
}
