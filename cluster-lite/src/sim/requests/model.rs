//! How long a request takes, by model.
//!
//! Published: the latencies against MPS share on an A100-40GB, at one batch size a model, and the QoS, share and memory
//! that it was deployed with (Dilu, papers.md 1.3). *Assumed*, since nothing is published: how a batch's size tells
//! (`slope`), what a prompt's token costs (14 GFLOP at 140 TFLOP/s), all of `diffusion` but its times, which the trace
//! has (its curve is that of the most compute-bound of the others), and QoS beyond the published ones.

use weir_protocol::units::{Bytes, Nanos, SmShare, Tokens};

use crate::scale::{Service, Speed};
use crate::trace::requests::Size;

/// One model.
#[derive(Debug, PartialEq)]
pub struct Model {
    /// What it is called.
    pub name: &'static str,
    /// Latency in milliseconds at percent of a GPU, with a full batch.
    pub latencies: &'static [(u16, f64)],
    /// Requests in a full batch.
    pub batch: u32,
    /// How much each further request of a batch slows it, against one alone.
    pub slope: f64,
    /// A prompt's token, in milliseconds alone on a whole GPU; nothing: it reads no tokens.
    pub prompt_token_ms: f64,
    /// Answer tokens of a mean request: how often the latency above passes. 1: at once.
    pub steps: f64,
    /// Its share as deployed: what keeps its QoS with a full batch.
    pub request: SmShare,
    /// Device memory of an instance.
    pub memory: Bytes,
    /// How long a request may wait beyond its own time.
    pub patience: Nanos,
}

const fn percent(share: u16) -> SmShare {
    SmShare::percent(share)
}

/// Every model.
pub const MODELS: &[Model] = &[
    Model {
        name: "bert-base",
        latencies: &[(10, 36.7), (20, 33.8), (30, 34.6), (50, 32.7), (100, 34.6)],
        batch: 4,
        slope: 0.1,
        prompt_token_ms: 0.0,
        steps: 1.0,
        request: percent(10),
        memory: Bytes::gib(5),
        patience: Nanos::from_micros(23_300), // QoS 60 ms less 36.7
    },
    Model {
        name: "roberta-large",
        latencies: &[(10, 103.2), (20, 57.7), (30, 34.2), (50, 26.8), (100, 26.2)],
        batch: 4,
        slope: 0.1,
        prompt_token_ms: 0.0,
        steps: 1.0,
        request: percent(30),
        memory: Bytes::gib(6),
        patience: Nanos::from_micros(25_800), // QoS 60 ms less 34.2
    },
    Model {
        name: "gpt2-large",
        latencies: &[(10, 119.5), (20, 65.7), (30, 49.7), (50, 49.0), (100, 32.9)],
        batch: 4,
        slope: 0.1,
        prompt_token_ms: 0.0,
        steps: 1.0,
        request: percent(30),
        memory: Bytes::gib(6),
        patience: Nanos::from_micros(10_300), // QoS 60 ms less 49.7
    },
    Model {
        name: "resnet152",
        latencies: &[(10, 104.2), (20, 55.5), (30, 40.0), (50, 27.1), (100, 25.8)],
        batch: 16,
        slope: 0.1,
        prompt_token_ms: 0.0,
        steps: 1.0,
        request: percent(50), // at 30 % it takes all of its QoS of 40 ms, and nothing might ever wait
        memory: Bytes::gib(5),
        patience: Nanos::from_micros(12_900), // QoS 40 ms less 27.1
    },
    Model {
        name: "llama2-7b",
        latencies: &[(10, 159.2), (20, 78.3), (30, 52.3), (50, 41.7), (100, 35.3)],
        batch: 8,
        slope: 0.04,
        prompt_token_ms: 0.1,
        steps: 200.0,
        request: percent(50),
        memory: Bytes::gib(28),
        patience: Nanos::from_secs(2),
    },
    Model {
        name: "diffusion",
        latencies: &[(10, 104.2), (20, 55.5), (30, 40.0), (50, 27.1), (100, 25.8)],
        batch: 1,
        slope: 1.0,
        prompt_token_ms: 0.0,
        steps: 1000.0, // a mean request of a drawn trace takes 25.8 s; recorded ones say theirs
        request: percent(50),
        memory: Bytes::gib(24),
        patience: Nanos::from_secs(30),
    },
];

/// The model of that name.
pub fn model(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.name == name)
}

impl Model {
    /// Its speed against share. The latencies are constants, and a test holds each of them: what stands in for those that
    /// are none is never seen.
    pub fn speed(&self) -> Speed {
        Speed::from_latencies(&self.points()).unwrap_or_else(|_| Speed::proportional())
    }

    fn points(&self) -> Vec<(SmShare, f64)> {
        self.latencies.iter().map(|&(share, ms)| (percent(share), ms)).collect()
    }

    /// How much slower a full batch is than one request alone.
    pub fn full_stretch(&self) -> f64 {
        1.0 + self.slope * f64::from(self.batch - 1)
    }

    /// One step of one request alone on a whole GPU, in milliseconds.
    fn step_ms(&self) -> f64 {
        let fastest = self.latencies.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        fastest / self.full_stretch()
    }

    /// Time of a request alone on a whole GPU, in milliseconds; at least a microsecond.
    pub fn alone_ms(&self, size: Size) -> f64 {
        let time = match size {
            Size::Tokens { prompt, answer } => {
                f64::from(prompt) * self.prompt_token_ms + f64::from(answer) * self.step_ms()
            }
            Size::Time(time) => super::float(time) / 1e6,
            Size::Relative(mean) => mean * self.steps * self.step_ms(),
        };
        time.max(1e-3)
    }

    /// Time of a whole GPU that a request costs in a full batch, of its time alone.
    pub fn cost_of_alone(&self) -> f64 {
        self.full_stretch() / f64::from(self.batch)
    }

    /// The service as a policy knows it, with the work of its mean request.
    pub fn service(&self, mean_work: Tokens) -> Service {
        Service {
            floor: 0,
            ceiling: u32::MAX,
            shares: [percent(10), SmShare::FULL],
            request: self.request,
            speed: self.speed(),
            batch: self.batch,
            batch_slope: self.slope,
            mean_work,
            patience: self.patience,
            cold_start: Nanos(0),
            unpark: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_is_as_fast_at_each_share_as_was_published_papers_1_3() {
        for model in MODELS {
            let speed = Speed::from_latencies(&model.points()).unwrap();
            for &(share, ms) in model.latencies {
                let one = model.step_ms() * model.full_stretch() / speed.at(percent(share));
                // A latency that rises with the share is taken for noise: those of BERT differ by 6 % in no order.
                assert!((one / ms - 1.0).abs() < 0.06, "{} at {share} %: {one} ms", model.name);
            }
        }
    }

    #[test]
    fn a_full_batch_at_the_deployed_share_keeps_the_qos() {
        let qos = |name: &str| {
            let model = model(name).unwrap();
            let own =
                model.alone_ms(Size::Relative(1.0)) * model.full_stretch() / model.speed().at(model.request);
            own + super::super::float(model.patience) / 1e6
        };
        for (name, ms) in [("roberta-large", 60.0), ("gpt2-large", 60.0), ("resnet152", 40.0)] {
            assert!((qos(name) - ms).abs() < 0.1, "{name}: {}", qos(name));
        }
    }
}
