//! Why: which sets of services do not fit together on a device, and why a device is taken for a service or not.

use serde::Serialize;

use crate::place::fit::{Candidate, Question, Unfit};
use crate::place::paldia::{ALIKE, Choice, Judged, NotTaken};
use crate::profile::{Inference, Profile};

/// Services that do not fit on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    pub services: Vec<String>,
    /// All that keeps them from it.
    pub why: Vec<Unfit>,
}

impl Refused {
    fn of(question: &Question<'_>, candidates: &[Candidate], members: &[usize]) -> Option<Self> {
        let services = || members.iter().map(|at| candidates[*at].name.clone()).collect();
        let why = question.against(members);
        (!why.is_empty()).then(|| Self { services: services(), why })
    }

    /// In words.
    pub fn line(&self) -> String {
        let why: Vec<_> = self.why.iter().map(ToString::to_string).collect();
        let who = match &self.services[..] {
            [one] => one.clone(),
            [one, other] => format!("{one} and {other}"),
            all => format!("all {} together", all.len()),
        };
        format!("{who}: {}", why.join("; "))
    }
}

/// Services that do not fit alone.
pub fn alone(question: &Question<'_>, candidates: &[Candidate]) -> Vec<Refused> {
    (0..candidates.len()).filter_map(|at| Refused::of(question, candidates, &[at])).collect()
}

/// All of them together, if that is refused, and each pair that is. Pairs of the same names are told once.
pub fn together(question: &Question<'_>, candidates: &[Candidate]) -> Vec<Refused> {
    let count = candidates.len();
    let all = (count > 2).then(|| (0..count).collect());
    let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| vec![one, other]));
    let mut refused = Vec::new();
    for members in all.into_iter().chain(pairs) {
        let found = Refused::of(question, candidates, &members);
        refused.extend(found.filter(|found| !refused.contains(found)));
    }
    refused
}

/// Why a device is taken for a service, or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    pub service: String,
    /// The SLO in words.
    pub slo: String,
    /// Absent where the device is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_taken: Option<NotTaken>,
    /// Where it is: how many batches might run together on each GPU, the rest queueing, and the SLO's quantile with so many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub considered: Vec<Choice>,
}

impl Explained {
    pub fn of(profile: &Profile, inference: &Inference, judged: Judged) -> Self {
        let Judged { hardware, not_taken } = judged;
        let considered = hardware.filter(|_| not_taken.is_none()).map(|hardware| hardware.considered);
        let (service, slo) = (profile.name.clone(), inference.slo.to_string());
        Self { service, slo, not_taken, considered: considered.unwrap_or_default() }
    }

    /// In words.
    pub fn line(&self) -> String {
        let Self { service, slo, not_taken, considered } = self;
        match not_taken {
            Some(why) => format!("{service} ({slo}) not taken: {}", against(why)),
            None => format!("{service} ({slo}) taken: {}", in_favour(considered)),
        }
    }
}

fn against(why: &NotTaken) -> String {
    match why {
        // One wording for what is too large, whether it asks for a place or for requests to be served.
        NotTaken::Memory { needed, had } => Unfit::Memory { needed: *needed, had: *had }.to_string(),
        NotTaken::Slo { gpus, best_ms, bound_ms } => {
            let best = if best_ms.is_finite() {
                format!("{best_ms:.1} ms at best, the bound is {bound_ms} ms")
            } else {
                format!("more comes than {gpus} of them finish")
            };
            format!("no number of GPUs keeps the SLO: {best}")
        }
        NotTaken::Cost { cost_per_hour, predicted_ms, taken, taken_cost_per_hour, taken_predicted_ms } => {
            if cost_per_hour > taken_cost_per_hour {
                format!("{cost_per_hour:.2} an hour are more than the {taken_cost_per_hour:.2} of `{taken}`")
            } else if predicted_ms > taken_predicted_ms {
                let times = format!("{taken_predicted_ms:.1} ms to its {predicted_ms:.1} ms");
                format!("`{taken}` costs as much, and takes {times}")
            } else {
                format!("`{taken}` costs and takes as much, and is named first")
            }
        }
    }
}

fn in_favour(considered: &[Choice]) -> String {
    let time = |choice: &Choice| match choice.quantile_ms {
        late if late.is_infinite() => format!("{}: falls behind", choice.together),
        time_ms => format!("{}: {time_ms:.1} ms", choice.together),
    };
    let times: Vec<_> = considered.iter().map(time).collect();
    let rule = format!("the fewest within {:.0} % of the least", 100.0 * ALIKE);
    format!("the cheapest that keeps it; together {}: {rule}", times.join(", "))
}
