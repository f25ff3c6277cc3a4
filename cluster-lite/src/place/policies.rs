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
use super::together::{self, Together};
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

/// A policy's row.
pub struct Row {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Which of equally rated nodes it takes.
    pub ties: Ties,
    /// Gamma: what limits on one GPU may sum to, in permille.
    pub limits: u32,
    /// Makes its score, for a workload.
    pub score: fn(&Workload) -> Box<dyn Score>,
}

/// Every policy, in the order that `--help` shows them; the default first.
pub const POLICIES: &[Row] = &[
    Row {
        name: "weir",
        about: "least fragmentation against all that is expected, and power",
        ties: Ties::Drawn,
        limits: UNBOUND,
        score: |workload| Box::new(Weir::new(workload)),
    },
    Row {
        name: "random",
        about: "anywhere with room",
        ties: Ties::Drawn,
        limits: UNBOUND,
        score: |_| Box::new(Random),
    },
    Row {
        name: "dotprod",
        about: "least aligned with what is free",
        ties: Ties::First,
        limits: UNBOUND,
        score: |_| Box::new(DotProduct),
    },
    Row {
        name: "clustering",
        about: "beside demands of the same size",
        ties: Ties::First,
        limits: UNBOUND,
        score: |_| Box::new(Clustering),
    },
    Row {
        name: "packing",
        about: "on used GPUs, then on used nodes",
        ties: Ties::First,
        limits: UNBOUND,
        score: |_| Box::new(Packing),
    },
    Row {
        name: "bestfit",
        about: "where the least is left",
        ties: Ties::First,
        limits: UNBOUND,
        score: |_| Box::new(BestFit),
    },
    Row {
        name: "fgd",
        about: "least fragmentation, as published",
        ties: Ties::First,
        limits: UNBOUND,
        score: |workload| Box::new(Fgd::new(workload)),
    },
    Row {
        name: "pwr",
        about: "least added power",
        ties: Ties::Drawn,
        limits: UNBOUND,
        score: |_| Box::new(Pwr),
    },
    Row {
        name: "dilu",
        about: "best fit of share and memory, training slowed evenly",
        ties: Ties::First,
        limits: dilu::LIMITS,
        score: |_| Box::new(Dilu),
    },
    Row {
        name: "together",
        about: "fewest GPUs, counting latency tenants that would be short",
        ties: Ties::First,
        limits: together::LIMITS,
        score: |_| Box::new(Together),
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
    /// When a name is unknown, or a weight is no number above 0.
    pub fn parse(text: &str, workload: &Workload) -> Result<Self, Fault> {
        let parts =
            text.split('+').map(|part| weighted(part.trim(), workload)).collect::<Result<Vec<_>, _>>()?;
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

fn unknown(name: &str) -> Fault {
    let names: Vec<_> = POLICIES.iter().map(|row| row.name).collect();
    let help = format!("take one of {}, or a sum such as `pwr*0.1+fgd*0.9`", names.join(", "));
    Fault::new(format!("there is no policy `{name}`"), help).exit(USAGE)
}
