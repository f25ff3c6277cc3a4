//! Injected faults: which call, when, what. The driver library evaluates them; here they are only read.
//!
//! ```toml
//! [[fault]]
//! call = "cuMemAlloc_v2"   # a symbol; `*` stands for any text
//! nth = 3                  # only the third call; or: every = 10; or: probability = 0.01, seed = 7
//! action = "error:2"       # answer this CUresult; or "hang"; or "sigkill"
//! ```

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use weir_protocol::price;

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Row", into = "Row")]
pub struct Fault {
    /// Which symbols.
    pub call: String,
    /// At which calls of a process.
    pub when: When,
    /// What happens.
    pub action: FaultAction,
}

impl Fault {
    /// Whether this row is about calls of `symbol`.
    pub fn concerns(&self, symbol: &str) -> bool {
        price::matches(&self.call, symbol)
    }
}

/// At which of a process's calls a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Only at this one, counted from 1.
    Nth(u64),
    /// At each that this number divides.
    Every(u64),
    /// At random, the same way for the same seed.
    Probability {
        /// 0 to 1.
        probability: f64,
        /// Of the random numbers.
        seed: u64,
    },
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The call answers this `CUresult`.
    Error(u32),
    /// The call never returns.
    Hang,
    /// The process is killed in the call.
    Sigkill,
}

/// A row as it stands in TOML.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    call: String,
    #[serde(default)]
    nth: Option<u64>,
    #[serde(default)]
    every: Option<u64>,
    #[serde(default)]
    probability: Option<f64>,
    #[serde(default)]
    seed: u64,
    action: Action,
}

/// The action's text, so that an error points at its line.
#[derive(Clone)]
struct Action(FaultAction);

impl Default for Action {
    fn default() -> Self {
        Self(FaultAction::Hang)
    }
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let refuse =
            || de::Error::custom(format!("`{text}` is no action: write error:CODE, hang or sigkill"));
        Ok(Self(match text.as_str() {
            "hang" => FaultAction::Hang,
            "sigkill" => FaultAction::Sigkill,
            _ => {
                let code = text.strip_prefix("error:").and_then(|code| code.parse().ok());
                FaultAction::Error(code.filter(|code| (1..=999).contains(code)).ok_or_else(refuse)?)
            }
        }))
    }
}

impl Serialize for Action {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            FaultAction::Error(code) => to.serialize_str(&format!("error:{code}")),
            FaultAction::Hang => to.serialize_str("hang"),
            FaultAction::Sigkill => to.serialize_str("sigkill"),
        }
    }
}

impl TryFrom<Row> for Fault {
    type Error = String;

    fn try_from(row: Row) -> Result<Self, String> {
        let when = match (row.nth, row.every, row.probability) {
            (Some(nth @ 1..), None, None) => When::Nth(nth),
            (None, Some(every @ 1..), None) => When::Every(every),
            (None, None, Some(probability)) if (0.0..=1.0).contains(&probability) => {
                When::Probability { probability, seed: row.seed }
            }
            _ => {
                return Err(
                    "a fault needs one of: nth (1 or more), every (1 or more), probability (0 to 1)".into()
                );
            }
        };
        Ok(Self { call: row.call, when, action: row.action.0 })
    }
}

impl From<Fault> for Row {
    fn from(fault: Fault) -> Self {
        let row = Row { call: fault.call, action: Action(fault.action), ..Row::default() };
        match fault.when {
            When::Nth(nth) => Row { nth: Some(nth), ..row },
            When::Every(every) => Row { every: Some(every), ..row },
            When::Probability { probability, seed } => Row { probability: Some(probability), seed, ..row },
        }
    }
}
