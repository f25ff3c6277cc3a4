//! The table of policies. A new one is one file and one row.

use super::bestfit::BestFit;
use super::clustering::Clustering;
use super::dilu::{self, Dilu};
use super::dotprod::DotProduct;
use super::fgd::Fgd;
use super::packing::Packing;
use super::pwr::Pwr;
use super::random::Random;
use super::score::Score;
use super::sum::{Sum, Weighted};
use super::undisturbed::Undisturbed;
use super::weir::Weir;
use super::workload::Workload;
use crate::fault::{Fault, USAGE};

/// Limits that are no promises: the node manager lends what is left, so that their sum need not be bounded.
const UNBOUND: u32 = u32::MAX;

/// Which of equally rated nodes is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// One of them, drawn.
    Drawn,
    /// The one that was added first: the smallest name, where nodes are added in the order of their names.
    First,
}

/// What a rating counts: ratings in one unit can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// It rates nothing.
    Nothing,
    /// Points, from 0 to 100.
    Points,
    /// What a place costs, in permille of a GPU.
    Permille,
    /// Tiers of GPUs, which nothing beside them may outweigh.
    Tiers,
    /// GPUs.
    Gpus,
}

impl Unit {
    const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Points => "points from 0 to 100",
            Self::Permille => "permille of a GPU",
            Self::Tiers => "tiers of GPUs",
            Self::Gpus => "GPUs",
        }
    }
}

/// A policy's row.
pub struct Row {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Which of equally rated nodes it takes.
    pub ties: Ties,
    /// What its ratings count.
    pub unit: Unit,
    /// Gamma: what limits on one GPU may sum to, in permille.
    pub limits: u32,
    /// Makes its score, for a workload.
    pub score: fn(&Workload) -> Box<dyn Score>,
}

/// Every policy, in the order that `--help` shows them; the default first.
pub const POLICIES: &[Row] = &[
    Row {
        name: "weir",
        about: "least cost in all: fragments, power, GPUs woken, tenants short or slowed, backbones, memory",
        ties: Ties::Drawn,
        unit: Unit::Permille,
        limits: UNBOUND,
        score: |workload| Box::new(Weir::new(workload)),
    },
    Row {
        name: "random",
        about: "anywhere with room",
        ties: Ties::Drawn,
        unit: Unit::Nothing,
        limits: UNBOUND,
        score: |_| Box::new(Random),
    },
    Row {
        name: "dotprod",
        about: "least aligned with what is free",
        ties: Ties::First,
        unit: Unit::Points,
        limits: UNBOUND,
        score: |_| Box::new(DotProduct),
    },
    Row {
        name: "clustering",
        about: "beside demands of the same size",
        ties: Ties::First,
        unit: Unit::Points,
        limits: UNBOUND,
        score: |_| Box::new(Clustering),
    },
    Row {
        name: "packing",
        about: "on used GPUs, then on used nodes",
        ties: Ties::First,
        unit: Unit::Points,
        limits: UNBOUND,
        score: |_| Box::new(Packing),
    },
    Row {
        name: "bestfit",
        about: "where the least is left",
        ties: Ties::First,
        unit: Unit::Points,
        limits: UNBOUND,
        score: |_| Box::new(BestFit),
    },
    Row {
        name: "fgd",
        about: "least fragmentation, as published",
        ties: Ties::First,
        unit: Unit::Points,
        limits: UNBOUND,
        score: |workload| Box::new(Fgd::new(workload)),
    },
    Row {
        name: "pwr",
        about: "least added power",
        ties: Ties::Drawn,
        unit: Unit::Points,
        limits: UNBOUND,
        score: |_| Box::new(Pwr),
    },
    Row {
        name: "dilu",
        about: "best fit of share and memory, training slowed evenly",
        ties: Ties::First,
        unit: Unit::Tiers,
        limits: dilu::LIMITS,
        score: |_| Box::new(Dilu),
    },
    Row {
        name: "interference",
        about: "fewest GPUs on which nobody is slowed beyond a ceiling, predicted from profiles",
        ties: Ties::First,
        unit: Unit::Gpus,
        limits: UNBOUND,
        score: |workload| Box::new(Undisturbed::new(workload)),
    },
];

/// A policy ready for use.
pub struct Policy {
    /// As it was asked for.
    pub name: String,
    /// What it rates.
    pub score: Box<dyn Score>,
    /// Which of equally rated nodes it takes.
    pub ties: Ties,
    /// Gamma: what limits on one GPU may sum to, in permille; of a sum the least of its parts.
    pub limits: u32,
}

impl Policy {
    /// The policy of this name, or the sum of several: `pwr*0.1+fgd*0.9`. Ties of a sum are those of its heaviest part.
    ///
    /// # Errors
    /// When a name is unknown, a weight is no number above 0, or two parts of a sum contradict each other.
    pub fn parse(text: &str, workload: &Workload) -> Result<Self, Fault> {
        let parts =
            text.split('+').map(|part| weighted(part.trim(), workload)).collect::<Result<Vec<_>, _>>()?;
        parts.windows(2).try_for_each(|two| agree(&two[0], &two[1]))?;
        let heaviest = parts.iter().max_by(|one, other| one.1.weight.total_cmp(&other.1.weight));
        let ties = heaviest.map_or(Ties::Drawn, |(row, _)| row.ties);
        let limits = parts.iter().map(|(row, _)| row.limits).min().unwrap_or(UNBOUND);
        let mut parts: Vec<Weighted> = parts.into_iter().map(|(_, part)| part).collect();
        let name = text.to_owned();
        let score = match (parts.pop(), parts.is_empty()) {
            (Some(only), true) => only.score,
            (last, _) => {
                parts.extend(last);
                Box::new(Sum(parts))
            }
        };
        Ok(Self { name, score, ties, limits })
    }

    /// The same, with ties broken otherwise.
    #[must_use]
    pub fn with_ties(self, ties: Ties) -> Self {
        Self { ties, ..self }
    }
}

fn weighted(text: &str, workload: &Workload) -> Result<(&'static Row, Weighted), Fault> {
    let (name, weight) = text.split_once('*').unwrap_or((text, "1"));
    let row = POLICIES.iter().find(|row| row.name == name.trim()).ok_or_else(|| unknown(name))?;
    let weight: f64 = weight.trim().parse().unwrap_or(f64::NAN);
    if !(weight > 0.0 && weight.is_finite()) {
        let message = format!("`{text}` has no weight above 0");
        return Err(Fault::new(message, "write a sum as `pwr*0.1+fgd*0.9`").exit(USAGE));
    }
    Ok((row, Weighted { name: row.name.into(), score: (row.score)(workload), weight }))
}

/// Two parts of a sum count in the same unit, and take a node's GPUs by the same rule.
fn agree((row, one): &(&Row, Weighted), (next, other): &(&Row, Weighted)) -> Result<(), Fault> {
    let (pick, next_pick) = (one.score.pick(), other.score.pick());
    let contradiction = match () {
        () if row.unit != next.unit => {
            let (unit, next_unit) = (row.unit.words(), next.unit.words());
            format!("`{}` counts {unit} and `{}` {next_unit}", row.name, next.name)
        }
        () if pick != next_pick => {
            format!(
                "of a node `{}` takes {} and `{}` {}",
                row.name,
                pick.words(),
                next.name,
                next_pick.words()
            )
        }
        () => return Ok(()),
    };
    let alike = POLICIES.iter().filter(|known| known.name != row.name && known.unit == row.unit);
    let alike = alike.filter(|known| (known.score)(&Workload::default()).pick() == pick);
    let names: Vec<_> = alike.map(|known| format!("`{}`", known.name)).collect();
    let help = match names.is_empty() {
        true => format!("use `{}` alone", row.name),
        false => format!("use one of the two alone, or add to `{}` only {}", row.name, names.join(", ")),
    };
    Err(Fault::new(format!("these cannot be added: {contradiction}"), help).exit(USAGE))
}

fn unknown(name: &str) -> Fault {
    let names: Vec<_> = POLICIES.iter().map(|row| row.name).collect();
    let help = format!("take one of {}, or a sum such as `pwr*0.1+fgd*0.9`", names.join(", "));
    Fault::new(format!("there is no policy `{name}`"), help).exit(USAGE)
}
