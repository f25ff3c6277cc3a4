//! The simulated machine: its GPUs, each with its model, its memory and what departed clients left in the books.

use std::collections::VecDeque;

use weir_simgpu_link::config::{BANDWIDTH_KNEE, Config, Mode};
use weir_simgpu_link::{books, rpc};
use weir_simgpu_model as model;

/// Between two samples of the busy time, ns.
const SAMPLE_EVERY: u64 = 100_000_000;
/// What counts as recent, ns.
const RECENT: u64 = 1_000_000_000;
/// Departed clients that stay in the books, per GPU; beyond it the oldest go.
const DEPARTED: usize = 4_096;

/// One GPU.
pub struct Gpu {
    /// Its time.
    pub device: model::Device,
    /// What clients are told of it.
    pub about: rpc::Device,
    /// Memory held by all clients, bytes.
    pub used: u64,
    departed: VecDeque<books::Client>,
    samples: VecDeque<(u64, u64)>,
}

impl Gpu {
    /// The GPUs that a configuration describes.
    pub fn all(config: &Config, now: u64) -> Vec<Self> {
        (0..u8::try_from(config.gpus).unwrap_or(u8::MAX))
            .map(|number| Self::new(config, number, now))
            .collect()
    }

    fn new(config: &Config, number: u8, now: u64) -> Self {
        let mut uuid = *b"weir-simulated\0\0";
        uuid[15] = number;
        let about = rpc::Device { uuid, memory_bytes: config.memory.0, sms: config.sms, pci_bus: number + 1 };
        let device = model::Device::new(spec(config), now);
        Self { device, about, used: 0, departed: VecDeque::new(), samples: VecDeque::from([(now, 0)]) }
    }

    /// Takes memory; `false` if there is not enough.
    pub fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.about.memory_bytes - self.used;
        if fits {
            self.used += bytes;
        }
        fits
    }

    /// Notes the busy time once in a while.
    pub fn sample(&mut self) {
        let now = self.device.now();
        if self.samples.back().is_none_or(|last| now >= last.0 + SAMPLE_EVERY) {
            self.samples.push_back((now, self.device.books().busy));
            // Of what nobody looked at for long only the last sample before this second counts.
            while self.samples.get(1).is_some_and(|sample| sample.0 + RECENT <= now) {
                self.samples.pop_front();
            }
        }
    }

    /// Keeps what a client that has gone did here.
    pub fn depart(&mut self, client: books::Client) {
        self.departed.push_back(client);
        if self.departed.len() > DEPARTED {
            self.departed.pop_front();
        }
    }

    /// This GPU's page of the books.
    pub fn books(&self, mode: Mode, clients: impl Iterator<Item = books::Client>) -> books::Gpu {
        let time = self.device.books();
        books::Gpu {
            uuid: self.about.uuid_text(),
            mode: mode.name().to_owned(),
            memory_total: self.about.memory_bytes,
            memory_used: self.used,
            busy_ns: time.busy,
            switch_ns: time.switch,
            idle_ns: time.idle,
            recent_busy_percent: self.recent_busy_percent(),
            clients: self.departed.iter().cloned().chain(clients).collect(),
        }
    }

    fn recent_busy_percent(&self) -> u32 {
        let Some((since, busy)) = self.samples.front() else { return 0 };
        let wall = (self.device.now() - since).max(1);
        u32::try_from((self.device.books().busy - busy) * 100 / wall).unwrap_or(100)
    }
}

fn spec(config: &Config) -> model::Spec {
    model::Spec {
        sms: config.sms,
        mode: match config.mode {
            Mode::TimeSlice => model::Mode::TimeSlice,
            Mode::Mps => model::Mode::Mps,
        },
        slice: config.slice_us * 1000,
        switch: config.switch_us * 1000,
        cut: [config.cut_least_us, config.cut_most_us].map(|us| us * 1000),
        yields_drained: config.yields_drained,
        births: config.context_stalls,
        channel_streams: config.channel_streams,
        noise: model::Noise { independent_ppm: config.spread_ppm, correlated_ppm: config.drift_ppm },
        submit_to_start: config.submit_to_start_us * 1000,
        // GB/s are thousands of bytes per us.
        copy_bytes_per_us: [config.host_to_device_gb_s, config.device_to_host_gb_s, config.peer_gb_s]
            .map(|rate| rate * 1000),
        device_bytes_per_us: config.device_gb_s * 1000,
        knee_permille: BANDWIDTH_KNEE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_simgpu_link::config::SMS;
    use weir_simgpu_model::{Kernel, StreamKind, Work};

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_default_profile_is_the_model_s_card_but_for_its_sms() {
        let card = model::Spec::h200();
        assert_eq!(spec(&Config::default()), model::Spec { sms: SMS, ..card });
    }

    #[test]
    fn recent_is_a_second_also_when_nobody_has_looked_for_long() {
        let config = Config { spread_ppm: 0, ..Config::default() };
        let mut gpu = Gpu::new(&config, 0, 0);
        let context = gpu.device.create_context();
        let stream = gpu.device.open_stream(context, StreamKind::Blocking, 0, 0).unwrap();
        gpu.device.submit(0, stream, 1, Work::Kernel(Kernel::full(2 * S)));
        let mut look = |at: u64| {
            gpu.device.advance(at);
            gpu.sample();
            gpu.recent_busy_percent()
        };
        assert_eq!((1..=20).map(|tenth| look(tenth * S / 10)).last(), Some(100));
        assert_eq!(look(9 * S), 0);
    }
}
