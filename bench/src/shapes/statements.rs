//! What was published, one row for each statement, and what stands for it in the simulator.

use serde::Serialize;
use weir_nodemgr::sim::Outcome;

use super::measures::{fillers, missed, others, p95, p99, served};
use super::verdict::Published::{self, About, AtLeast, Between, UpTo};

/// A scenario as it is run here.
pub struct Case {
    /// The file's name, without its ending.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
    /// Whether its promises are told to the policies.
    pub promised: bool,
}

macro_rules! case {
    ($name:literal) => {
        Case { name: $name, text: include_str!(concat!("../../scenarios/", $name, ".toml")), promised: true }
    };
}

/// All scenarios that a statement names.
pub const CASES: [Case; 10] = [
    case!("dilu-training-large"),
    case!("dilu-training-small"),
    case!("dilu-inference"),
    case!("dilu-inference-full"),
    case!("data-parallel-fillers"),
    case!("training-fillers"),
    case!("model-parallel-fillers"),
    case!("model-parallel-online"),
    Case { promised: false, ..case!("inference-filler") }, // those papers promise nothing
    case!("fast-gshare"),
];

const DILU_TRAINING: &[&str] = &["dilu-training-large", "dilu-training-small"];
const DILU: &[&str] = &["dilu-training-large", "dilu-training-small", "dilu-inference"];
const BUBBLES: &[&str] = &["data-parallel-fillers", "training-fillers", "model-parallel-fillers"];
const ONLINE: &[&str] = &["model-parallel-online"];
const SERVER: &[&str] = &["inference-filler"];

/// Dilu's rivals (papers 1.2): MPS by request, by limit and without, FaST-GShare, TGS.
const RIVALS: &[&str] = &["mps-request", "mps-limit", "mps", "static", "tgs"];

/// A published ratio, and the same one of simulated runs.
#[derive(Debug, Serialize)]
pub struct Statement {
    /// Its name.
    pub name: &'static str,
    /// What is stated.
    pub says: &'static str,
    /// Where.
    pub source: &'static str,
    /// The ratio.
    pub published: Published,
    /// What is divided.
    pub measure: &'static str,
    /// The same, of a run.
    #[serde(skip)]
    pub of: fn(&Outcome) -> Option<f64>,
    /// The rule that stands for the system.
    pub rule: &'static str,
    /// Those that stand for what it is compared with.
    pub against: &'static [&'static str],
    /// The scenarios.
    pub cases: &'static [&'static str],
}

/// What the papers state. Where a system is not simulated, `weir` is in its place, and the row says so.
pub const STATEMENTS: [Statement; 17] = [
    Statement {
        name: "dilu.inference",
        says: "Dilu serves up to 1.8 times as many requests as the best known",
        source: "Dilu, abstract",
        published: UpTo { ratio: 1.8 },
        measure: "requests served",
        of: served,
        rule: "dilu",
        against: RIVALS,
        cases: &["dilu-inference-full"],
    },
    Statement {
        name: "dilu.training",
        says: "Dilu trains up to 1.1 times as fast as the best known",
        source: "Dilu, abstract",
        published: UpTo { ratio: 1.1 },
        measure: "fillers' work",
        of: fillers,
        rule: "dilu",
        against: RIVALS,
        cases: DILU_TRAINING,
    },
    Statement {
        name: "dilu.violations",
        says: "11-71 % fewer requests miss their bound under Dilu",
        source: "Dilu, abstract",
        published: Between { low: 0.29, high: 0.89 },
        measure: "requests that missed their bound",
        of: missed,
        rule: "dilu",
        against: RIVALS,
        cases: DILU,
    },
    Statement {
        name: "specinf.offline",
        says: "SpecInF has up to 14 times the offline inference of TGS",
        source: "SpecInF, abstract",
        published: UpTo { ratio: 14.0 },
        measure: "fillers' work",
        of: fillers,
        rule: "specinf",
        against: &["tgs"],
        cases: BUBBLES,
    },
    Statement {
        name: "specinf.training",
        says: "training is preserved (here: 97 %) beside offline inference",
        source: "SpecInF, abstract; the 97 % are ours",
        published: AtLeast { ratio: 0.97 },
        measure: "primaries' work",
        of: others,
        rule: "specinf",
        against: &["alone"],
        cases: BUBBLES,
    },
    Statement {
        name: "specinf.online",
        says: "SpecInF's p95 of online inference is 67 % below that of MPS",
        source: "SpecInF, abstract",
        published: UpTo { ratio: 0.33 },
        measure: "p95 of requests",
        of: p95,
        rule: "specinf",
        against: &["mps", "mps-request"],
        cases: ONLINE,
    },
    Statement {
        name: "specinf.online-training",
        says: "training is preserved (here: 97 %) beside online inference",
        source: "SpecInF, abstract; the 97 % are ours",
        published: AtLeast { ratio: 0.97 },
        measure: "primaries' work",
        of: others,
        rule: "specinf",
        against: &["alone"],
        cases: ONLINE,
    },
    Statement {
        name: "tgs.training",
        says: "TGS has little impact (here: 3 %, its own bound) on production training",
        source: "TGS, abstract; papers 4 for the bound",
        published: AtLeast { ratio: 0.97 },
        measure: "primaries' work",
        of: others,
        rule: "tgs",
        against: &["alone"],
        cases: BUBBLES,
    },
    Statement {
        name: "tgs.mps",
        says: "TGS's opportunistic jobs do up to 15 times the work that they do under MPS",
        source: "TGS, abstract",
        published: UpTo { ratio: 15.0 },
        measure: "fillers' work",
        of: fillers,
        rule: "tgs",
        against: &["mps", "mps-request"],
        cases: BUBBLES,
    },
    Statement {
        name: "tgs.harvest",
        says: "TGS's fillers do 7.3 % of what they do alone, beside training",
        source: "XSched, figures of the paper (papers 4)",
        published: About { ratio: 0.073 },
        measure: "fillers' work",
        of: fillers,
        rule: "tgs",
        against: &["alone"],
        cases: BUBBLES,
    },
    Statement {
        name: "xsched.harvest",
        says: "XSched's (here: weir's) fillers do 2.74 times the work of TGS's, beside training",
        source: "XSched, figures of the paper (papers 4)",
        published: About { ratio: 2.74 },
        measure: "fillers' work",
        of: fillers,
        rule: "weir",
        against: &["tgs"],
        cases: BUBBLES,
    },
    Statement {
        name: "xsched.native",
        says: "a server's p99 beside another program, by time slices: 1.6-2.19 of alone",
        source: "XSched, figures of the paper (papers 4)",
        published: Between { low: 1.6, high: 2.19 },
        measure: "p99 of requests",
        of: p99,
        rule: "slicing",
        against: &["alone"],
        cases: SERVER,
    },
    Statement {
        name: "xsched.p99",
        says: "a server's p99 beside another program under XSched (here: weir): 1.02-1.3 of alone",
        source: "XSched, figures of the paper (papers 4)",
        published: Between { low: 1.02, high: 1.3 },
        measure: "p99 of requests",
        of: p99,
        rule: "weir",
        against: &["alone"],
        cases: SERVER,
    },
    Statement {
        name: "tgs.p99",
        says: "a server's p99 under TGS is 188.9 % longer than alone",
        source: "Tally, abstract and figures (papers 4)",
        published: About { ratio: 2.889 },
        measure: "p99 of requests",
        of: p99,
        rule: "tgs",
        against: &["alone"],
        cases: SERVER,
    },
    Statement {
        name: "tally.p99",
        says: "a server's p99 under Tally (here: weir) is 7.2 % longer than alone",
        source: "Tally, abstract (papers 4)",
        published: About { ratio: 1.072 },
        measure: "p99 of requests",
        of: p99,
        rule: "weir",
        against: &["alone"],
        cases: SERVER,
    },
    Statement {
        name: "tally.fillers",
        says: "Tally's (here: weir's) fillers do more than 80 % of the work of TGS's",
        source: "Tally, abstract (papers 4)",
        published: AtLeast { ratio: 0.8 },
        measure: "fillers' work",
        of: fillers,
        rule: "weir",
        against: &["tgs"],
        cases: SERVER,
    },
    Statement {
        name: "fast-gshare.throughput",
        says: "FaST-GShare serves 3.15 times what time sharing does",
        source: "FaST-GShare, abstract",
        published: About { ratio: 3.15 },
        measure: "primaries' work",
        of: others,
        rule: "static",
        against: &["slicing"],
        cases: &["fast-gshare"],
    },
];

#[cfg(test)]
mod tests {
    use weir_nodemgr::sim;

    use super::{CASES, STATEMENTS};

    #[test]
    fn what_a_statement_names_is_there_and_what_is_there_is_named() {
        for statement in &STATEMENTS {
            for rule in statement.against.iter().chain([&statement.rule]) {
                assert!(sim::ruler(rule).is_ok(), "{}: {rule}", statement.name);
            }
            for case in statement.cases {
                assert!(CASES.iter().any(|known| known.name == *case), "{}: {case}", statement.name);
            }
        }
        for case in &CASES {
            assert!(STATEMENTS.iter().any(|statement| statement.cases.contains(&case.name)), "{}", case.name);
        }
    }
}
