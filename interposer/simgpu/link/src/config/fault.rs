//! Injected faults: which call, when, what. Here they are only read; `fault.rs` lets them strike.
//!
//! ```toml
//! [[fault]]
//! call = "cuMemAlloc_v2"   # a symbol of the driver or of NVML; `*` stands for any text
//! process = "weir"         # only in programs of this name (`/proc/PID/comm`); all if it is left out
//! nth = 3                  # only the third call; or: every = 10; or: probability = 0.01, seed = 7
//! action = "error:2"       # answer this code; or "hang", "sigkill", "delay:10000" (ms); of the driver's calls also
//!                          # "sigkill-after" (the call has succeeded, and nobody hears of it) and "sticky:700" (this
//!                          # code, and it breaks the thread's context: all that needs it answers so); of NVML's also
//!                          # "nonsense" (figures that cannot be), "truncate" (half of a list), "linger" (the dead on it)
//! ```

use std::time::Duration;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use weir_protocol::price;

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Row", into = "Row")]
pub struct Fault {
    /// Which symbols.
    pub call: String,
    /// In which programs; all if none is named.
    pub process: Option<String>,
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

    /// Whether this row holds in programs called `name`.
    pub fn is_for(&self, name: &str) -> bool {
        self.process.as_ref().is_none_or(|process| price::matches(process, name))
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
    /// The call answers this `CUresult`, and so does everything that needs the thread's context from then on.
    Sticky(u32),
    /// The call never returns.
    Hang,
    /// The process is killed in the call, before it has done anything.
    Sigkill,
    /// The process is killed in the call, when it has succeeded.
    SigkillAfter,
    /// The call takes so much longer.
    Delay(Duration),
    /// The call answers, and not the truth.
    Lie(Lie),
}

/// What NVML can be made to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Figures that cannot be.
    Nonsense,
    /// The first half of a list.
    Truncate,
    /// Processes that have died are listed still, with all that they ever held.
    Linger,
}

/// Longest delay, ms (1 hour).
const LONGEST_MS: u64 = 3_600_000;

/// A row as it stands in TOML.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    call: String,
    #[serde(default)]
    process: Option<String>,
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
        let number = |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.parse::<u64>().ok());
        let code = |prefix: &str| {
            let code = number(prefix).filter(|code| (1..=999).contains(code))?;
            u32::try_from(code).ok()
        };
        let error = || code("error:").map(FaultAction::Error);
        let sticky = || code("sticky:").map(FaultAction::Sticky);
        let delay = || {
            let ms = number("delay:").filter(|ms| (1..=LONGEST_MS).contains(ms))?;
            Some(FaultAction::Delay(Duration::from_millis(ms)))
        };
        let found = match text.as_str() {
            "hang" => Some(FaultAction::Hang),
            "sigkill" => Some(FaultAction::Sigkill),
            "sigkill-after" => Some(FaultAction::SigkillAfter),
            "nonsense" => Some(FaultAction::Lie(Lie::Nonsense)),
            "truncate" => Some(FaultAction::Lie(Lie::Truncate)),
            "linger" => Some(FaultAction::Lie(Lie::Linger)),
            _ => error().or_else(sticky).or_else(delay),
        };
        found.map(Self).ok_or_else(|| {
            let help = "write error:CODE, sticky:CODE, delay:MS, hang, sigkill, sigkill-after, nonsense, \
                        truncate or linger";
            de::Error::custom(format!("`{text}` is no action: {help}"))
        })
    }
}

impl Serialize for Action {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            FaultAction::Error(code) => to.serialize_str(&format!("error:{code}")),
            FaultAction::Sticky(code) => to.serialize_str(&format!("sticky:{code}")),
            FaultAction::Hang => to.serialize_str("hang"),
            FaultAction::Sigkill => to.serialize_str("sigkill"),
            FaultAction::SigkillAfter => to.serialize_str("sigkill-after"),
            FaultAction::Delay(time) => to.serialize_str(&format!("delay:{}", time.as_millis())),
            FaultAction::Lie(Lie::Nonsense) => to.serialize_str("nonsense"),
            FaultAction::Lie(Lie::Truncate) => to.serialize_str("truncate"),
            FaultAction::Lie(Lie::Linger) => to.serialize_str("linger"),
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
        if matches!(row.action.0, FaultAction::Lie(_)) && !row.call.starts_with("nvml") {
            return Err(format!("`{}`: only NVML's calls lie", row.call));
        }
        if row.action.0 == FaultAction::SigkillAfter && !row.call.starts_with("cu") {
            return Err(format!(
                "`{}`: only the driver's calls are somebody's last when they have succeeded",
                row.call
            ));
        }
        if matches!(row.action.0, FaultAction::Sticky(_)) && !row.call.starts_with("cu") {
            return Err(format!("`{}`: only the driver's calls have a context to break", row.call));
        }
        Ok(Self { call: row.call, process: row.process, when, action: row.action.0 })
    }
}

impl From<Fault> for Row {
    fn from(fault: Fault) -> Self {
        let Fault { call, process, when, action } = fault;
        let row = Row { call, process, action: Action(action), ..Row::default() };
        match when {
            When::Nth(nth) => Row { nth: Some(nth), ..row },
            When::Every(every) => Row { every: Some(every), ..row },
            When::Probability { probability, seed } => Row { probability: Some(probability), seed, ..row },
        }
    }
}
