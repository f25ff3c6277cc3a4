//! What a client says to MPS in its environment when it starts, and never again: its part of the SMs, and its priority.
//!
//! Source: NVIDIA, Multi-Process Service, Legacy MPS v2 interface (docs.nvidia.com/deploy/mps). As with the driver, a client
//! that finds no control daemon where it looks runs without MPS, has all SMs, and is not told. The model has no time slices
//! between MPS and others: it runs such a client's kernels beside those of the rest.

use std::path::Path;

use weir_simgpu_link::config::{Config, Mode};

/// Where a client looks if nobody says otherwise.
const STANDARD: &str = "/tmp/nvidia-mps";

/// How a process stands to MPS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Client {
    /// Whether it is a client of it.
    pub connected: bool,
    percentage: f64,
    below_normal: bool,
}

impl Client {
    /// As the environment says.
    pub fn of_environment(config: &Config) -> Self {
        Self::of(config, |name| std::env::var(name).ok())
    }

    fn of(config: &Config, said: impl Fn(&str) -> Option<String>) -> Self {
        let place = said("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| STANDARD.into());
        let served = config.mps_pipe_directory.as_ref().is_none_or(|served| served == Path::new(&place));
        if config.mode != Mode::Mps || !served {
            return Self { connected: false, percentage: 100.0, below_normal: false };
        }
        let percentage = said("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").and_then(|text| text.trim().parse().ok());
        Self {
            connected: true,
            percentage: percentage.filter(|percent| (0.0..=100.0).contains(percent)).unwrap_or(100.0),
            below_normal: said("CUDA_MPS_CLIENT_PRIORITY").is_some_and(|text| text.trim() == "1"),
        }
    }

    /// The multiprocessors that it has of `all`: whole ones, and one at least.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most `all`")]
    pub fn multiprocessors(&self, all: u32) -> u32 {
        ((f64::from(all) * self.percentage / 100.0).ceil() as u32).clamp(1, all.max(1))
    }

    /// A stream's priority among those of all clients: no stream of one below normal goes before any other's.
    pub fn priority(&self, of_stream: i32) -> i32 {
        let (least, most) = crate::context::PRIORITIES;
        if self.below_normal { of_stream + (least - most) + 1 } else { of_stream }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(mode: Mode, said: &[(&str, &str)]) -> Client {
        let config = Config { mode, mps_pipe_directory: Some("/served".into()), ..Config::default() };
        Client::of(&config, |name| {
            said.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const SERVED: (&str, &str) = ("CUDA_MPS_PIPE_DIRECTORY", "/served");

    #[test]
    fn a_percentage_is_so_many_whole_multiprocessors() {
        for (percentage, sms) in
            [("30", 33), ("100", 108), ("0.1", 1), ("12.5", 14), ("101", 108), ("x", 108)]
        {
            let client = client(Mode::Mps, &[SERVED, ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage)]);
            assert_eq!(client.multiprocessors(108), sms, "{percentage}");
        }
    }

    #[test]
    fn the_most_urgent_stream_below_normal_comes_after_the_least_urgent_normal_one() {
        let normal = client(Mode::Mps, &[SERVED]);
        let below = client(Mode::Mps, &[SERVED, ("CUDA_MPS_CLIENT_PRIORITY", "1")]);
        let (least, most) = crate::context::PRIORITIES;
        assert!(normal.priority(least) < below.priority(most));
    }

    #[test]
    fn whoever_finds_no_control_daemon_has_everything_and_is_no_client() {
        let part = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30");
        for lost in [
            client(Mode::Mps, &[("CUDA_MPS_PIPE_DIRECTORY", "/misspelt"), part]),
            client(Mode::Mps, &[part]),
            client(Mode::TimeSlice, &[SERVED, part]),
        ] {
            assert_eq!((lost.connected, lost.multiprocessors(108)), (false, 108));
        }
    }
}
