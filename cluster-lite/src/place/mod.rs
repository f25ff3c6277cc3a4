//! Where a demand goes: pure scores over a cluster, one file and one row each.
//!
//! ```text
//! placer      decides: the best node, the best GPUs of it, ties by the policy's rule
//! policies    the table of policies          score       what they have in common
//! candidates  the ways to sit on a node      index       an order of nodes that is kept up, not made anew
//! workload    what is expected to come       fragments   what of the free share it cannot use
//! interference  what tenants on one GPU cost each other     paldia  how many requests run together, on which class
//! fit         the fewest GPUs for a handful of services
//! shortage    how often a latency tenant gets less than it wants
//! random, dotprod, clustering, packing, bestfit, fgd, pwr, dilu, undisturbed, sum, weir: the scores
//! ```
//!
//! A score sees one node state and one demand, and nothing else. Nodes in equal states are therefore rated once, and a rating
//! holds until the node changes. Randomness is passed in; the same seed makes the same decisions.

mod bestfit;
mod candidates;
mod clustering;
mod dilu;
mod dotprod;
mod explain;
mod fgd;
pub mod fit;
mod fragments;
mod index;
pub mod interference;
mod packing;
pub mod paldia;
mod placer;
mod policies;
pub mod pwr;
mod random;
mod score;
pub mod shortage;
mod sum;
#[cfg(test)]
mod tests;
mod undisturbed;
mod weir;
mod workload;

pub use self::candidates::{Offer, best};
pub use self::explain::{Candidate, Explanation, Hearer, Why};
pub use self::fragments::{Fragments, Free};
pub use self::index::FINEST;
pub use self::placer::{Placer, Refusal};
pub use self::policies::{POLICIES, Policy, Row, Ties};
pub use self::score::{Part, Pick, Score, Seen};
pub use self::undisturbed::{CEILING, Neighbours, Solo};
pub use self::workload::{Expected, Workload};
