//! What there is: sites, a training over them, best-effort work, and each hour's signals.

/// A place with GPUs of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// GPUs that the training may have there, and best-effort work what is left of them.
    pub gpus: u32,
    /// Samples a second of one of them.
    pub samples_per_s: f64,
    /// Samples that lie there.
    pub samples: u64,
    /// Bits a second to the site that gathers the gradients.
    pub wan_bits_per_s: f64,
    /// What a GPU costs for an hour.
    pub gpu_hour_cost: f64,
    /// Power of a busy GPU, in watts.
    pub busy_watts: f64,
    /// Power of one that is idle, in watts.
    pub idle_watts: f64,
    /// The signals, hour by hour from now.
    pub hours: Vec<Hour>,
}

impl Site {
    /// A site for best-effort work alone: no training has samples there.
    pub fn for_work(name: &str, gpus: u32, [idle_watts, busy_watts]: [f64; 2], hours: Vec<Hour>) -> Self {
        Self {
            name: name.to_owned(),
            gpus,
            samples_per_s: 0.0,
            samples: 0,
            wan_bits_per_s: 0.0,
            gpu_hour_cost: 0.0,
            busy_watts,
            idle_watts,
            hours,
        }
    }
}

/// What holds at a site for an hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hour {
    /// Carbon intensity, in grams of CO2 per kilowatt-hour.
    pub grams_per_kwh: f64,
    /// Most power of the site's GPUs together, in watts; nothing: no cap.
    pub cap_watts: Option<f64>,
}

/// A training whose sites agree after each round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// Bytes that each site sends, and receives, at the end of a round.
    pub sync_bytes: f64,
    /// Whether samples may be moved between sites beforehand: then only speed counts; else each site works on its own.
    pub data_moves: bool,
    /// Samples of a round, of all sites together.
    pub round_samples: u64,
}

/// Best-effort work that is to be done by a deadline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batch {
    /// In hours of one GPU.
    pub gpu_hours: f64,
    /// When it is to be done: so many hours after the beginning of the first.
    pub deadline_h: usize,
    /// Part of the first hour that has gone.
    pub gone: f64,
    /// GPUs that it can use at once, at all sites together.
    pub most_gpus: f64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The sites, at least one.
    pub sites: Vec<Site>,
    /// The training, if there is one.
    pub training: Option<Training>,
    /// The best-effort work, if there is any.
    pub batch: Option<Batch>,
}
