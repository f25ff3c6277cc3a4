//! cluster-lite: profiles tenants, places together what complements, and scales in two dimensions.
//!
//! ```text
//! cluster/   what there is: device classes, nodes, GPUs and who sits on them; what a tenant demands
//! place/     where a demand goes: pure scores over a cluster, one file and one row each
//! profile/   what a tenant needs: searches over shares and batches, and the file they are written to
//! scale/     how many instances run: pure rules over requests, queues and forecasts
//! sim/       experiments in simulated time over recorded clusters
//! sites/     training over several sites, and signals from outside
//! trace/     recorded clusters, requests and measurements, read with file and line in every error
//! control/   the embedded controller: instances, gateway, state that survives a SIGKILL
//! cli/       the commands
//! ```
//!
//! `cluster`, `place`, `scale` and `sites` are pure: no clock, no files, no threads; time and randomness are passed in.

pub mod cli;
pub mod cluster;
pub mod control;
pub mod data;
pub mod fault;
pub mod nearest;
pub mod place;
pub mod profile;
pub mod scale;
pub mod sim;
pub mod sites;
mod toml_lines;
pub mod trace;
