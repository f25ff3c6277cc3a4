//! Which class of devices serves a rate of requests, how many GPUs of it, and why no other: the cheapest that keeps the promise.

use serde::Serialize;
use weir_protocol::units::Bytes;

use super::{Choice, Curve, Load, choices, choose, concurrency};

/// What is promised: this part of the requests within this time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// Part of the requests, such as 0.95.
    pub part: f64,
    /// Milliseconds.
    pub within_ms: f64,
}

/// A class of devices as a kind of request sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// What one GPU costs an hour.
    pub cost_per_h: f64,
    /// GPUs that are free.
    pub free: usize,
    /// Memory of one GPU.
    pub memory: Bytes,
    /// Memory that one instance of the service needs.
    pub needs: Bytes,
    /// Milliseconds of one request with the GPU to itself.
    pub service_ms: f64,
    /// Standard deviation of that time over its mean.
    pub variation: f64,
    /// What others beside it cost there.
    pub curve: Curve,
}

/// GPUs of one class that may be taken, where nobody says how many are free.
pub const MOST_GPUS: usize = 1_000;

/// The class to use, how many of its GPUs, and how many requests together on each.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// Index of the class.
    pub class: usize,
    /// GPUs of it, the load spread evenly.
    pub gpus: usize,
    /// On each of them.
    pub choice: Choice,
    /// All concurrencies among which it was chosen.
    pub considered: Vec<Choice>,
    /// Cost of all of them an hour.
    pub cost_per_h: f64,
}

/// Why a class is not taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "condition", rename_all = "snake_case")]
pub enum NotTaken {
    /// Not one instance fits into the memory of a GPU.
    Memory {
        /// What it needs.
        #[serde(rename = "needed_bytes")]
        needed: Bytes,
        /// What there is.
        #[serde(rename = "had_bytes")]
        had: Bytes,
    },
    /// Not even all GPUs that are free keep the promise.
    Slo {
        /// How many these are.
        gpus: usize,
        /// The promised part's time on so many, in milliseconds; infinite if more comes than they finish.
        best_ms: f64,
        /// What is promised.
        bound_ms: f64,
    },
    /// It keeps the promise, and so does another that costs less; or as much, and is quicker or was named first.
    Cost {
        /// What it costs an hour.
        cost_per_hour: f64,
        /// The promised part's time.
        predicted_ms: f64,
        /// The class that is taken.
        taken: String,
        /// What that costs an hour.
        taken_cost_per_hour: f64,
        /// The promised part's time there.
        taken_predicted_ms: f64,
    },
}

/// What a class is to a rate of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// What would be needed of it; nothing if it does not suffice.
    pub hardware: Option<Hardware>,
    /// Why it is not taken; nothing for the one that is.
    pub not_taken: Option<NotTaken>,
}

/// Each class for `rate` requests a second. At most one is taken: the cheapest that keeps the promise with what is free, of two
/// at one cost the quicker.
pub fn judge(classes: &[Class], rate: f64, promise: Promise) -> Vec<Judged> {
    let found = |(index, class)| sufficient(index, class, rate, promise);
    let each: Vec<_> = classes.iter().enumerate().map(found).collect();
    let taken = each.iter().flatten().min_by(|one, other| {
        let quicker = || one.choice.quantile_ms.total_cmp(&other.choice.quantile_ms);
        one.cost_per_h.total_cmp(&other.cost_per_h).then_with(quicker)
    });
    let taken = taken.cloned();
    let dearer = |own: &Hardware| {
        let taken = taken.as_ref().filter(|taken| taken.class != own.class)?;
        Some(NotTaken::Cost {
            cost_per_hour: own.cost_per_h,
            predicted_ms: own.choice.quantile_ms,
            taken: classes[taken.class].name.clone(),
            taken_cost_per_hour: taken.cost_per_h,
            taken_predicted_ms: taken.choice.quantile_ms,
        })
    };
    let judged = |found| match found {
        Ok(hardware) => Judged { not_taken: dearer(&hardware), hardware: Some(hardware) },
        Err(why) => Judged { hardware: None, not_taken: Some(why) },
    };
    each.into_iter().map(judged).collect()
}

/// The one that [`judge`] takes; nothing if no class keeps the promise with what is free.
pub fn cheapest(classes: &[Class], rate: f64, promise: Promise) -> Option<Hardware> {
    let taken = judge(classes, rate, promise).into_iter().find(|judged| judged.not_taken.is_none());
    taken.and_then(|judged| judged.hardware)
}

/// The fewest GPUs of a class that keep the promise: more never hurt, so they are found by halving.
fn sufficient(index: usize, class: &Class, rate: f64, promise: Promise) -> Result<Hardware, NotTaken> {
    if class.needs > class.memory {
        return Err(NotTaken::Memory { needed: class.needs, had: class.memory });
    }
    let load = |gpus: usize| Load {
        #[allow(clippy::cast_precision_loss, reason = "a count of GPUs")]
        rate: rate / gpus as f64,
        service_ms: class.service_ms,
        variation: class.variation,
        curve: class.curve.clone(),
    };
    let time_ms = |gpus: usize| match gpus {
        0 => f64::INFINITY,
        some => concurrency(&load(some), promise.part).quantile_ms,
    };
    let (best_ms, bound_ms) = (time_ms(class.free), promise.within_ms);
    if best_ms > bound_ms {
        return Err(NotTaken::Slo { gpus: class.free, best_ms, bound_ms });
    }
    let (mut too_few, mut enough) = (0, class.free);
    while enough - too_few > 1 {
        let middle = usize::midpoint(too_few, enough);
        if time_ms(middle) <= bound_ms { enough = middle } else { too_few = middle }
    }
    #[allow(clippy::cast_precision_loss, reason = "a count of GPUs")]
    let cost_per_h = class.cost_per_h * enough as f64;
    let load = load(enough);
    let considered = choices(&load, promise.part);
    let choice = choose(&load, &considered);
    Ok(Hardware { class: index, gpus: enough, choice, considered, cost_per_h })
}
