//! Kernels per second that the model runs: one stream, kernels of 5 us. `cargo run --release --example rate`

use std::io::Write;
use std::time::Instant;

use weir_simgpu_model::{Device, Kernel, Spec, StreamKind, Work};

/// Kernels in all.
const KERNELS: u64 = 10_000_000;
/// Submitted before each advance, as a broker's tick would find them.
const BATCH: u64 = 200;

fn main() -> std::io::Result<()> {
    let mut device = Device::new(Spec::default(), 0);
    let context = device.create_context();
    let Some(stream) = device.open_stream(context, StreamKind::Blocking, 0, 0) else { return Ok(()) };
    let start = Instant::now();
    for batch in 0..KERNELS / BATCH {
        let now = batch * BATCH * 5_000;
        for n in 1..=BATCH {
            device.submit(now, stream, batch * BATCH + n, Work::Kernel(Kernel::full(5_000)));
        }
        device.advance(now + BATCH * 5_000);
        device.drain_completions().for_each(drop);
    }
    let rate = KERNELS as f64 / start.elapsed().as_secs_f64();
    writeln!(std::io::stdout(), "{:.1} million kernels per second", rate / 1e6)
}
