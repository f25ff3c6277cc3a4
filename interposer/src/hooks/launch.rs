//! Launches: kernels, cooperative kernels, graphs, and the calls of CUDA 2.
//!
//! The hot path is [`launch`]: five loads of the thread's own memory, one of the grant's generation, one subtraction.
//! It takes no lock, allocates nothing, makes no system call and writes no log. Everything else is in [`admit`].

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::flight::Place;
use weir_core::gate::{Gate, Patience, Request};
use weir_core::price::{Estimate, Signature};
use weir_protocol::units::{Nanos, Tokens};

use super::names;
use crate::clock;
use crate::driver::{self, NullStream, Stream};
use crate::guard::caught;
use crate::link::{CAPTURES, Client};
use crate::thread::{self, Current, Inside, Thread};
use crate::wait;

/// What a kernel launch costs by.
#[inline]
pub fn shape(function: CUfunction, grid: [c_uint; 3], block: [c_uint; 3], shared: c_uint) -> Signature {
    Signature::of_kernel(function.addr() as u64, grid, block, shared)
}

/// What a launch of CUDA 2 costs by: its block shape was set on the function before.
pub fn old_shape(function: CUfunction, width: c_int, height: c_int) -> Signature {
    let positive = |n: c_int| c_uint::try_from(n).unwrap_or(0);
    shape(function, [positive(width), positive(height), 1], [1, 1, 1], 0)
}

/// A kernel launch.
#[inline]
pub fn kernel(counted: usize, stream: Stream, shape: Signature, call: impl FnOnce() -> CUresult) -> CUresult {
    launch(counted, stream, Work::Kernel(shape), call)
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
    launch(counted, stream(config.stream), Work::Kernel(shape), call)
}

/// A graph launch.
pub fn graph(counted: usize, stream: Stream, exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    launch(counted, stream, Work::Graph(Signature::of_graph(exec.addr() as u64)), call)
}

/// One kernel on several devices. Its parts wait for each other on the GPU, so nothing may be held back between
/// them: all are charged, as debt where need be, and the call goes out at once.
pub fn multi_device(
    counted: usize,
    list: *mut CUDA_LAUNCH_PARAMS,
    devices: c_uint,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(client) = Client::get() else { return call() };
    caught(client, || {
        for at in 0..devices as usize {
            // SAFETY: the caller passes `devices` launches; the driver reads the same ones.
            let part = unsafe { &*list.add(at) };
            let grid = [part.grid_dim_x, part.grid_dim_y, part.grid_dim_z];
            let block = [part.block_dim_x, part.block_dim_y, part.block_dim_z];
            let signature = shape(part.function, grid, block, part.shared_mem_bytes);
            let price = client.book.kernel(&signature).price();
            // Without a current context of its own each part is booked on the tenant's GPU of the same position.
            if let Some(gpu) = client.gpus.get(at) {
                gpu.bucket.charge(Tokens(price));
            }
        }
        thread::with(|thread| {
            if let Some(current) = thread.find_current(client) {
                current.counters.launched(counted, 0);
            }
        });
    });
    call()
}

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
fn launch(counted: usize, stream: Stream, work: Work, call: impl FnOnce() -> CUresult) -> CUresult {
    let paid = thread::with(|thread| pay_from_purse(thread, counted, stream, &work));
    if paid {
        return call();
    }
    launch_slowly(counted, stream, &work, call)
}

/// The hot path. Says no to anything out of the ordinary, and then has changed nothing.
#[inline]
fn pay_from_purse(thread: &Thread, counted: usize, stream: Stream, work: &Work) -> bool {
    let Some(current) = thread.current() else { return false };
    // Relaxed: a capture that this thread began is in its own past; another thread's stream is not this one.
    if CAPTURES.load(Ordering::Relaxed) != 0 {
        return false;
    }
    let Some(estimate) = thread.cache.get(work.signature()) else { return false };
    let Some(purse) = thread.purse(current.gpu) else { return false };
    let price = estimate.price();
    if !purse.pay(price, current.gpu.grant.generation()) {
        return false;
    }
    current.counters.launched(counted, price.unsigned_abs());
    if let Some(run) = thread.add_to_run(stream.key(), price.unsigned_abs()) {
        book_run(&current, run, stream.null);
    }
    true
}

#[cold]
#[inline(never)]
fn launch_slowly(counted: usize, stream: Stream, work: &Work, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(_inside) = Inside::enter() else { return call() };
    let Some(client) = Client::get() else { return call() };
    let admission = caught(client, || thread::with(|thread| admit(client, thread, counted, stream, work)));
    let Some(Some(admission)) = admission else { return call() };
    let started = caught(client, || admission.start_sample(stream)).flatten();
    let result = call();
    caught(client, || thread::with(|thread| admission.settle(thread, stream, started, result)));
    result
}

/// A launch that may go.
struct Admission {
    current: Current,
    estimate: &'static Estimate,
    sampled: bool,
}

/// Everything that a launch can need besides tokens in the purse: the thread's GPU, the capture rules, the price, the
/// gate. `None`: the launch passes without charge (no granted GPU; or captured, and paid by the graph's launch).
fn admit(
    client: &'static Client,
    thread: &Thread,
    counted: usize,
    stream: Stream,
    work: &Work,
) -> Option<Admission> {
    let current = thread.find_current(client)?;
    if CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing() {
        current.counters.launched(counted, 0);
        current.counters.add(&current.counters.lane().captured, 1);
        return None;
    }
    let estimate = thread.cache.get(work.signature()).unwrap_or_else(|| {
        let estimate = work.look_up(client);
        thread.cache.put(work.signature(), estimate);
        estimate
    });
    draw(thread, &current, estimate);
    let price = estimate.price().unsigned_abs();
    current.counters.launched(counted, price);
    if let Some(run) = thread.add_to_run(stream.key(), price) {
        book_run(&current, run, stream.null);
    }
    let sampled =
        CAPTURES.load(Ordering::Relaxed) == 0 && !estimate.is_fixed() && current.is_sampled(estimate);
    Some(Admission { current, estimate, sampled })
}

/// Pays for one launch, from the purse if it suffices, else at the gate.
fn draw(thread: &Thread, current: &Current, estimate: &Estimate) {
    let Some(purse) = thread.purse(current.gpu) else { return };
    let gpu = current.gpu;
    let price = estimate.price();
    if purse.pay(price, gpu.grant.generation()) {
        return;
    }
    let grant = gpu.grant.read();
    if purse.generation() != grant.generation {
        gpu.bucket.charge(Tokens(-purse.empty())); // drawn under another grant: too much, perhaps
    }
    // A price that is still a guess buys one launch at a time.
    let ceiling = if estimate.is_learnt() { Gate::slice_ceiling(&grant, gpu.threads()) } else { price };
    let wanted = Request {
        price: Tokens(purse.lacks(price)),
        tokens: Tokens(purse.ask(price, ceiling)),
        patience: Patience::Fresh,
    };
    let (generation, drawn) = wait::at_gate(current, wanted);
    purse.fill(drawn.0, price, generation);
    current.counters.add(&current.counters.lane().slices, 1);
    gpu.acknowledge(generation);
}

impl Admission {
    /// Puts the first of a sample's two events before the launch.
    fn start_sample(&self, stream: Stream) -> Option<(CUevent, CUevent)> {
        if !self.sampled {
            return None;
        }
        self.current.context.collect_samples();
        let pair = self.current.context.samples.try_lock()?.spare.pop()?;
        if stream.record(pair.0) {
            return Some(pair);
        }
        self.current.context.samples.lock().spare.push(pair);
        None
    }

    /// Books what was launched, puts a mark behind it if one is due, and the sample's second event.
    fn settle(&self, thread: &Thread, stream: Stream, started: Option<(CUevent, CUevent)>, result: CUresult) {
        if let Some((start, end)) = started {
            let timed = result == CUDA_SUCCESS && stream.record(end);
            let mut samples = self.current.context.samples.lock();
            if timed {
                samples.under_way.push((start, end, self.estimate));
                self.current.counters.add(&self.current.counters.lane().sampled, 1);
            } else {
                samples.spare.push((start, end));
            }
        }
        let grant = self.current.gpu.grant.read();
        if grant.in_flight_cap == Nanos(0) {
            return;
        }
        book_run(&self.current, thread.end_run(), stream.null);
        if CAPTURES.load(Ordering::Relaxed) == 0 {
            let interval = Nanos(grant.in_flight_cap.0 / 8);
            self.current
                .context
                .flight
                .mark(stream.key(), interval, |event| stream.record(driver::handle(event)));
        }
    }
}

/// Books what this thread has launched and not booked yet, before the application waits for it.
pub fn book_own_run(current: &Current, null: NullStream) {
    let run = thread::with(Thread::end_run);
    if run.1 > 0 {
        book_run(current, run, null);
    }
}

/// Books a run of launches on one stream as in flight.
fn book_run(current: &Current, (stream, ns): (u64, u64), null: NullStream) {
    let own_default = null == NullStream::PerThread && stream == thread::address();
    let place = if own_default { Place::NOWHERE } else { Place(stream) };
    current.context.flight.submitted(stream, place, ns, current.gpu.slot());
}

impl Current {
    /// Whether this launch should be timed: a new signature until it is learnt, the others one in a while and all
    /// together at most once in [`SAMPLE_EVERY`].
    fn is_sampled(&self, estimate: &Estimate) -> bool {
        let now = clock::now();
        let due = &self.context.sample_at_ns;
        if estimate.is_learnt() && now.0 < due.load(Ordering::Relaxed) {
            return false;
        }
        let sampled = estimate.wants_sample(now);
        if sampled {
            due.store(now.0 + SAMPLE_EVERY.0, Ordering::Relaxed);
        }
        sampled
    }
}

/// A sample costs three calls of the driver, about 3 us: so often they cost at most a thousandth of the time.
const SAMPLE_EVERY: Nanos = Nanos::from_millis(3);

impl crate::link::Context {
    /// Takes in the samples whose second event was reached.
    fn collect_samples(&self) {
        let Some(mut samples) = self.samples.try_lock() else { return };
        let now = clock::now();
        let mut at = 0;
        while let Some(&(start, end, estimate)) = samples.under_way.get(at) {
            if driver::event_query(end) != CUDA_SUCCESS {
                at += 1;
                continue;
            }
            let mut milliseconds = 0.0;
            if driver::event_elapsed(&raw mut milliseconds, start, end) == CUDA_SUCCESS {
                estimate.sample(nanos(milliseconds), now);
            }
            samples.under_way.swap_remove(at);
            samples.spare.push((start, end));
        }
    }
}

/// Milliseconds as the driver counts them.
#[allow(
    clippy::cast_possible_truncation,
    reason = "a float beyond the range of u64 saturates, NaN becomes 0"
)]
fn nanos(milliseconds: f32) -> Nanos {
    Nanos((f64::from(milliseconds) * 1e6) as u64)
}
