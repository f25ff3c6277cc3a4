//! Launches: kernels, cooperative kernels, graphs, and the calls of CUDA 2.
//!
//! The hot path is [`launch`]: loads of the thread's own memory, of the price, of whether the GPU's work flows, of the grant's
//! generation, for a filler of one word of each tenant that it gives way to; and one subtraction. It takes no lock, allocates
//! nothing, makes no system call and writes no log. Everything else is in [`admit`].

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::flight::Due;
use weir_core::gate::{Gate, Patience, Request};
use weir_core::price::{Estimate, Hit, Signature};
use weir_core::purse::Purse;
use weir_core::turn::MEASURING;
use weir_protocol::pages::{Grant, Rate};
use weir_protocol::units::{Nanos, Tokens};

use super::graph::copies;
use super::meter::{BRACKET, Hands, STRETCH, wants_bracket};
use super::{capture, graph_memory, graph_split, names};
use crate::clock;
use crate::driver::Stream;
use crate::gang;
use crate::guard::caught;
use crate::joins;
use crate::link::{CAPTURES, Client};
use crate::thread::{self, Current, Inside, Thread};
use crate::wait;

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
    let launch = || launch(counted, stream, work, call);
    if graph_memory::may_need(exec) { graph_memory::charge(stream, exec, launch) } else { launch() }
}

/// The position of a launch that is no call of the program's: it is charged and not counted.
pub const UNCOUNTED: usize = usize::MAX;

/// One kernel on several devices. Its parts wait for each other on the GPU, so nothing may be held back between
/// them: all are charged, as debt where need be, and the call goes out at once.
pub fn multi_device(
    counted: usize,
    list: *mut CUDA_LAUNCH_PARAMS,
    devices: c_uint,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(client) = Client::get() else { return call() };
    client.knock();
    let charged = caught(client, || {
        let charged = charge_parts(client, list, devices as usize);
        thread::with(|thread| {
            if let Some(current) = thread.find_current(client) {
                current.counters.launched(counted, 0);
            }
        });
        charged
    });
    let result = call();
    if let (true, Some(charged)) = (result != CUDA_SUCCESS, charged) {
        let parts = client.gpus.iter().zip(charged);
        parts.for_each(|(gpu, price)| gpu.bucket.charge(Tokens(-price))); // nothing ran
    }
    result
}

/// Devices of one such launch that are charged: a server has 8 or 16.
const PARTS: usize = 16;

/// What each of the tenant's GPUs was charged. Without a current context of its own each part is booked on the tenant's GPU
/// of the same position.
fn charge_parts(client: &Client, list: *const CUDA_LAUNCH_PARAMS, devices: usize) -> [i64; PARTS] {
    let mut charged = [0; PARTS];
    if list.is_null() {
        return charged; // the driver says what is wrong with that
    }
    for (at, (gpu, charged)) in client.gpus.iter().zip(&mut charged).enumerate().take(devices) {
        // SAFETY: the caller passes `devices` launches; the driver reads the same ones.
        let part = unsafe { &*list.add(at) };
        let grid = [part.grid_dim_x, part.grid_dim_y, part.grid_dim_z];
        let block = [part.block_dim_x, part.block_dim_y, part.block_dim_z];
        let signature = shape(part.function, grid, block, part.shared_mem_bytes);
        *charged = client.book.kernel(&signature).price();
        gpu.bucket.charge(Tokens(*charged));
    }
    charged
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
    let entered = if paid.is_some() { None } else { Entered::admit(counted, stream, &work) };
    // Called in this one place, and handed to nobody: else each launch would write its arguments to memory for that.
    let result = call();
    match (paid, entered) {
        (_, Some(entered)) => entered.settle(stream, result),
        (Some(price), None) if result != CUDA_SUCCESS => refused(price),
        _ => {}
    }
    result
}

/// The hot path: the price that was paid. Says no to anything out of the ordinary, and then has changed nothing.
#[inline]
fn pay_from_purse(thread: &Thread, counted: usize, stream: Stream, work: &Work) -> Option<i64> {
    let current = thread.current()?;
    // Relaxed: a capture that this thread began is in its own past; another thread's stream is not this one.
    if CAPTURES.load(Ordering::Relaxed) != 0 || !current.gpu.flows() {
        return None;
    }
    if thread.runs_on(stream) {
        return pay(thread, &current, counted, work, |_| {});
    }
    pay_elsewhere(thread, counted, stream, work)
}

/// The same for a launch that goes to another stream than the thread's last one.
#[inline(never)]
fn pay_elsewhere(thread: &Thread, counted: usize, stream: Stream, work: &Work) -> Option<i64> {
    let current = thread.current()?;
    if !current.context.flight.is_busy(stream.key()) {
        return None; // onto an idle stream, perhaps: the meter wants to know
    }
    pay(thread, &current, counted, work, |price| thread.add_to_run(&current, stream, price))
}

/// Pays, and counts the launch once it has been `booked`.
#[inline]
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
fn refused(price: i64) {
    thread::with(|thread| thread.current().inspect(|current| take_back(thread, current, price)));
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

/// A launch on its long way.
struct Entered {
    _inside: Inside,
    client: &'static Client,
    admission: Option<Admission>,
}

impl Entered {
    #[cold]
    #[inline(never)]
    fn admit(counted: usize, stream: Stream, work: &Work) -> Option<Self> {
        let inside = Inside::enter()?;
        let client = Client::get()?;
        client.knock();
        let admit = || thread::with(|thread| admit(client, thread, counted, stream, work));
        Some(Self { _inside: inside, client, admission: caught(client, admit).flatten() })
    }

    #[cold]
    #[inline(never)]
    fn settle(self, stream: Stream, result: CUresult) {
        if let Some(admission) = self.admission {
            caught(self.client, || thread::with(|thread| admission.settle(thread, stream, result)));
        }
    }
}

/// A launch that may go.
pub(super) struct Admission {
    current: Current,
    price: i64,
    bracketed: bool, // a mark stands before it, one shall stand behind it
    collective: bool,
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
    let current = thread.find_for(client, stream)?;
    if CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing() {
        current.counters.launched(counted, 0);
        current.counters.add(&current.counters.lane().captured, 1);
        return None;
    }
    let signature = work.signature();
    if thread.cache.get(signature).is_none() {
        thread.cache.put(signature, work.look_up(client));
    }
    let known = thread.cache.get(signature)?;
    let price = known.estimate.price();
    draw(client, thread, &current, stream, known.estimate, price);
    let bracketed = begin(thread, &current, stream, &known);
    thread.add_wherever(&current, stream, price.unsigned_abs());
    current.counters.launched(counted, price.unsigned_abs());
    current.gpu.has_begun();
    let collective = known.estimate.is_collective();
    if collective {
        current.context.flight.communicates(stream.key(), price.unsigned_abs());
    }
    Some(Admission { current, price, bracketed, collective })
}

/// A paid launch is about to go out: counts it for the meter, puts a mark before it where one is due.
fn begin(thread: &Thread, current: &Current, stream: Stream, known: &Hit<'_>) -> bool {
    current.gpu.begin();
    if !known.estimate.is_learnt() {
        thread.note_guess();
        current.gpu.activity.turn.ask_for(MEASURING);
    }
    let bracketed = start_stretch(thread, current, stream, known.estimate);
    known.count();
    bracketed || !joins::is_apart(stream)
}

/// Work of the driver's own on the SMs: a memset, a copy within the device. It is charged as a launch is, but nothing waits
/// for it: what the purse lacks is a debt that the next launch pays.
pub(super) fn owe(
    client: &Client,
    thread: &Thread,
    current: &Current,
    stream: Stream,
    signature: Signature,
) -> Admission {
    if thread.cache.get(&signature).is_none() {
        thread.cache.put(&signature, client.book.fill(&signature));
    }
    let Some(known) = thread.cache.get(&signature) else {
        return Admission { current: *current, price: 0, bracketed: false, collective: false }; // cannot be: it was just put there
    };
    let price = known.estimate.price();
    if let Some(purse) = thread.purse(current.gpu) {
        let grant = current.gpu.grant.read();
        if !purse.pay(price, grant.generation) {
            go_into_debt(current, purse, price, &grant);
        }
    }
    let bracketed = begin(thread, current, stream, &known);
    thread.add_wherever(current, stream, price.unsigned_abs());
    current.counters.add(&current.counters.lane().charged_ns, price.unsigned_abs());
    current.gpu.has_begun();
    Admission { current: *current, price, bracketed, collective: false }
}

/// Pays for what may not wait.
fn go_into_debt(current: &Current, purse: &Purse, price: i64, grant: &Grant) {
    if purse.generation() != grant.generation {
        current.gpu.bucket.charge(Tokens(-purse.empty()));
    }
    let lacks = purse.lacks(price);
    if grant.rate != Rate::FULL {
        current.gpu.bucket.charge(Tokens(lacks));
    }
    purse.fill(lacks, price, grant.generation);
}

/// Puts a mark before a launch of which nothing is known, or before the first one on an idle stream if a stretch is due.
/// Says whether one belongs behind it, too: if nothing is known, or if no later call may put it.
fn start_stretch(thread: &Thread, current: &Current, stream: Stream, estimate: &Estimate) -> bool {
    let flight = &current.context.flight;
    thread.book_run();
    let idle = !flight.is_busy(stream.key());
    let bracketed = wants_bracket(current.context, estimate, idle);
    let due = if bracketed { BRACKET } else { Due { work: Nanos(0), ..STRETCH } };
    if !(bracketed || idle) || !Hands::new(thread, current, stream).put(due) {
        return false;
    }
    if idle {
        let now = clock::now();
        flight.launches(stream.key(), now);
        if current.gpu.overlaps() {
            current.gpu.look_around(now);
        }
    }
    current.counters.add(&current.counters.lane().bracketed, u64::from(bracketed));
    bracketed
}

/// Pays for one launch, from the purse if it suffices, else at the gate.
fn draw(
    client: &Client,
    thread: &Thread,
    current: &Current,
    stream: Stream,
    estimate: &Estimate,
    price: i64,
) {
    let Some(purse) = thread.purse(current.gpu) else { return };
    let gpu = current.gpu;
    let captures = capture::by_this_thread();
    if estimate.runs_ahead() && !captures && !estimate.is_collective() {
        wait::for_news(thread, current, stream, estimate);
    }
    if !gpu.betters.are_calm() && gpu.gives_way_to().is_some() {
        gpu.bucket.charge(Tokens(-purse.empty())); // drawn in better times; behind a closed gate nobody draws ahead
    }
    if purse.pay(price, gpu.grant.generation()) {
        if !captures && !gpu.has_turn() {
            wait::at_gate(client, thread, current, stream, None);
        }
        return;
    }
    let grant = gpu.grant.read();
    if purse.generation() != grant.generation {
        gpu.bucket.charge(Tokens(-purse.empty())); // drawn under another grant: too much, perhaps
    }
    if captures {
        return go_into_debt(current, purse, price, &grant);
    }
    if thread.take_debt() {
        wait::for_copies(thread, current, stream); // of a call that could not
    }
    // A price that is still a guess buys one launch at a time.
    let ceiling = if estimate.is_learnt() { Gate::slice_ceiling(&grant, gpu.threads()) } else { price };
    let wanted = Request {
        price: Tokens(purse.lacks(price)),
        tokens: Tokens(purse.ask(price, ceiling)),
        patience: Patience::Fresh,
        closed: false,
    };
    let (generation, drawn) = wait::at_gate(client, thread, current, stream, Some(wanted));
    purse.fill(drawn.0, price, generation);
    current.counters.add(&current.counters.lane().slices, 1);
    gpu.acknowledge(generation);
}

impl Admission {
    /// What it was charged.
    pub(super) fn price(&self) -> i64 {
        self.price
    }

    /// Puts a mark behind the launch if one is due; takes everything back if the driver refused.
    pub(super) fn settle(&self, thread: &Thread, stream: Stream, result: CUresult) {
        if result != CUDA_SUCCESS {
            return take_back(thread, &self.current, self.price);
        }
        if self.collective {
            gang::launched(self.current.gpu);
        }
        let mut hands = Hands::new(thread, &self.current, stream);
        let cap = self.current.gpu.grant.read().in_flight_cap;
        let marked = if self.bracketed { hands.put(Due { spare: 0, ..BRACKET }) } else { hands.keep_up(cap) };
        if marked {
            hands.look();
        }
    }
}
