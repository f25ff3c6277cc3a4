//! Dilu's mix of serverless deep learning, generated from a seed: instances that come and go.
//!
//! From the description of its large-scale simulation (arXiv 2503.05130; `docs/interference.md` has the sources): 60 % small
//! inference, 20 % LLM inference, 20 % training on 2 or 4 GPUs; one arrival a second; inference leaves after 1 to 3 minutes,
//! training after 10 to 15. The published event files are not copied; two things that follow from the published figures and
//! are not stated there:
//!
//! * A third of the instances stay to the end: with all of them leaving the number of GPUs could not grow from 1,600 to 3,200
//!   instances as published (1,112 to 1,879 under one task a GPU); with a third staying it does, within 15 % at every size.
//! * Memory of training jobs: with what stands in [`MODELS`], fragmentation under one task a GPU is near the published 0.4.

pub mod file;
pub mod replay;
#[cfg(test)]
mod tests;

use std::fmt;

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use weir_protocol::units::{Bytes, SmShare};

/// What an instance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Answers requests with a small model.
    Inference,
    /// Generates tokens.
    Llm,
    /// Trains on several GPUs of one node at once.
    Training,
}

impl Work {
    /// All of them, as they are written.
    pub const ALL: [(&'static str, Self); 3] =
        [("inference", Self::Inference), ("llm", Self::Llm), ("training", Self::Training)];
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(_, work)| work == self).map_or("", |(name, _)| name))
    }
}

/// What a model needs on each of its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// What is done with it.
    pub work: Work,
    /// Guaranteed share.
    pub request: SmShare,
    /// Share that it may reach.
    pub limit: SmShare,
    /// Device memory.
    pub memory: Bytes,
}

const fn model(name: &'static str, work: Work, request: u16, limit: u16, memory_gib: u64) -> Model {
    Model {
        name,
        work,
        request: SmShare::percent(request),
        limit: SmShare::percent(limit),
        memory: Bytes::gib(memory_gib),
    }
}

/// The models. Published: the whole of BERT-base, RoBERTa-large and LLaMA2-7B as deployed for inference, the requests of
/// ResNet152 and GPT2-large (their profiles), the range of training's requests (30-50 %) and limits (60-90 %). Assumed: all else.
pub const MODELS: [Model; 10] = [
    model("BERT-base", Work::Inference, 10, 20, 5),
    model("RoBERTa-large", Work::Inference, 30, 60, 6),
    model("ResNet152", Work::Inference, 30, 60, 5),
    model("GPT2-large", Work::Inference, 30, 60, 6),
    model("VGG19", Work::Inference, 30, 60, 6),
    model("LLaMA2-7B", Work::Llm, 50, 60, 28),
    model("ChatGLM3-6B", Work::Llm, 50, 60, 24),
    model("BERT-base", Work::Training, 40, 75, 24),
    model("RoBERTa-large", Work::Training, 50, 90, 32),
    model("LLaMA2-7B", Work::Training, 50, 90, 36),
];

/// Memory of one GPU in the published simulation.
pub const GPU_MEMORY: Bytes = Bytes::gib(40);
/// GPUs of one node in the published testbed.
pub const NODE_GPUS: usize = 4;

/// One instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// What it does.
    pub work: Work,
    /// Its model's name: instances of one model and work are one function.
    pub model: String,
    /// GPUs.
    pub gpus: usize,
    /// Guaranteed share of each.
    pub request: SmShare,
    /// Share of each that it may reach.
    pub limit: SmShare,
    /// Device memory on each.
    pub memory: Bytes,
}

/// An instance comes or goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Milliseconds from the start.
    pub at_ms: u64,
    /// Which instance, by its place in [`Mix::instances`].
    pub instance: usize,
    /// Whether it comes.
    pub arrives: bool,
}

/// Instances, and when they come and go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mix {
    /// The instances, in the order in which they come.
    pub instances: Vec<Instance>,
    /// In order of time; at one time departures first. Ends with the last arrival.
    pub events: Vec<Event>,
}

/// Part of the instances that stay to the end.
pub const STAYS: f64 = 1.0 / 3.0;

impl Mix {
    /// `count` instances.
    pub fn generate(count: usize, random: &mut impl Rng) -> Self {
        let mut mix = Self::default();
        let mut last_ms = 0;
        for at_ms in (0..).step_by(1_000).take(count) {
            let instance = mix.instances.len();
            let drawn = draw(random);
            mix.events.push(Event { at_ms, instance, arrives: true });
            let minutes = if drawn.work == Work::Training { 10.0..15.0 } else { 1.0..3.0 };
            let lives_ms = 60_000.0 * random.random_range(minutes);
            if random.random_bool(1.0 - STAYS) {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "at most 15 minutes"
                )]
                mix.events.push(Event { at_ms: at_ms + lives_ms as u64, instance, arrives: false });
            }
            mix.instances.push(drawn);
            last_ms = at_ms;
        }
        mix.events.retain(|event| event.at_ms <= last_ms);
        mix.events.sort_by_key(|event| (event.at_ms, event.arrives));
        mix
    }
}

fn draw(random: &mut impl Rng) -> Instance {
    let work = match random.random_range(0..10) {
        0..6 => Work::Inference,
        6..8 => Work::Llm,
        _ => Work::Training,
    };
    let models: Vec<_> = MODELS.iter().filter(|model| model.work == work).collect();
    // Every kind of work has a model.
    let model = models.choose(random).copied().unwrap_or(&MODELS[0]);
    let gpus = if work == Work::Training { *[2, 4].choose(random).unwrap_or(&2) } else { 1 };
    let (request, limit, memory) = (model.request, model.limit, model.memory);
    Instance { work, model: model.name.into(), gpus, request, limit, memory }
}
