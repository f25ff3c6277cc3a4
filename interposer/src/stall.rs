//! Where this process's time goes: what hooks know of it is kept per GPU, and dealt out by whoever is in a hook.

use weir_protocol::units::Nanos;

use crate::clock;
use crate::hooks::Hands;
use crate::link::Gpu;
use crate::thread;

/// A context is there: from now on time counts.
pub fn begin(gpu: &Gpu) {
    gpu.stalls.lock().begin(clock::now());
}

/// A thread begins to wait at the gate.
pub fn wait(gpu: &Gpu, now: Nanos) {
    gpu.stalls.lock().wait(now);
}

/// It waits no longer.
pub fn waited(gpu: &Gpu, now: Nanos) {
    gpu.stalls.lock().waited(now);
}

/// The thread is about to leave its context, perhaps for ever: what is known of its time is dealt out before.
pub fn leave() {
    thread::with(|thread| {
        if let Some(current) = thread.current() {
            settle(&mut Hands::new(thread, &current, thread.last_stream()));
        }
    });
}

/// Deals out the time of which all is known by now.
pub fn settle(hands: &mut Hands<'_>) {
    let gpu = hands.gpu();
    gpu.book_runs();
    let now = clock::now();
    let mut horizon = now;
    gpu.for_each_context(|context| horizon = horizon.min(context.flight.horizon(now, hands)));
    gpu.stalls.lock().settle(horizon, &gpu.slot().stalls);
}
