//! `weir sim`: which services fit together, without a GPU, in a fraction of the time.
//!
//! One process runs the policies, the node manager's registry, the interposer's gate, purse and turns, and the simulated
//! GPU's model, in virtual time. Deterministic: the same scenario with the same seed gives the same run. What it prints is
//! *simulated*, and says so.
//!
//! ```text
//!   scenario      who shares the GPU and what each runs (TOML)
//!   workload      the programs: servers, training loops, offline batches
//!   launcher      a program's launches at the gate
//!   manager       the node manager's registry, in virtual time
//!   seat, engine  one run, from event to event
//!   measure       what is noted, and what follows from it
//!   compare       several rules on one scenario, beside each tenant alone
//!   apart         these runs, at once on all cores
//!   script        the same programs, for a GPU in real time
//!   oracle        what somebody could do who knew all arrivals
//!   report, plot  the table, the document, the pictures
//! ```
//!
//! What is idealised: prices are learnt and right; completions are seen at once; one thread, one stream and one process for
//! each tenant; memory, copies, power and gangs are left out; the bell is, too, because the board closes fillers before it
//! and the tick is its backstop.

mod apart;
mod compare;
mod engine;
mod launcher;
mod manager;
mod measure;
mod oracle;
#[cfg(feature = "plot")]
mod plot;
mod random;
mod report;
pub mod scenario;
mod script;
mod seat;
#[cfg(test)]
mod tests;
mod workload;

pub use compare::{Comparison, Outcome, RULES, Ruler, Spread, TenantOutcome, compare, policies, ruler};
pub use engine::START;
pub use oracle::{Most, Scheduled, most_filler_work};
#[cfg(feature = "plot")]
pub use plot::draw;
pub use report::table;
pub use scenario::Scenario;
pub use script::{Script, Told};
pub use workload::Step;
