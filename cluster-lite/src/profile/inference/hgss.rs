//! Dilu's hybrid growth search as its authors' code has it (papers 1.3), to compare with.
//!
//! From the least batch and share, raise the share until the SLO is kept. Then double the batch; if it is late, raise the share
//! by one step; stop if it is still late, or if the throughput efficiency fell by more than the tolerance.

use weir_protocol::units::SmShare;

use super::{Answer, Grid, Probe};

/// By how much the efficiency may fall from one batch to the next.
#[derive(Clone, Copy, Debug)]
pub enum Tolerance {
    /// In requests a second for each percent, as published: 0.2. Where the efficiency is about 0.1 it never stops.
    Absolute(f64),
    /// As a part of the efficiency before.
    Relative(f64),
}

/// Searches; the best that kept the bound, and how many places were probed.
pub fn search(
    grid: &Grid,
    bound_ms: f64,
    tolerance: Tolerance,
    mut probe: impl FnMut(u32, SmShare) -> Answer,
) -> (Option<Probe>, usize) {
    let (mut at, mut probes) = ((0, 0), 0);
    let mut make = |(batch, share): (usize, usize)| {
        probes += 1;
        let (batch, share) = (grid.batches[batch], grid.shares[share]);
        Probe { batch, share, answer: probe(batch, share) }
    };
    let mut last = make(at);
    while last.answer.latency_ms > bound_ms {
        at.1 += 1;
        if at.1 == grid.shares.len() {
            return (None, probes);
        }
        last = make(at);
    }
    let mut best = last;
    while at.0 + 1 < grid.batches.len() {
        at.0 += 1;
        let mut next = make(at);
        if next.answer.latency_ms > bound_ms && at.1 + 1 < grid.shares.len() {
            at.1 += 1;
            next = make(at);
        }
        let least = match tolerance {
            Tolerance::Absolute(most) => last.efficiency() - most,
            Tolerance::Relative(part) => last.efficiency() * (1.0 - part),
        };
        if next.answer.latency_ms > bound_ms || next.efficiency() < least {
            break;
        }
        if next.efficiency() > best.efficiency() {
            best = next;
        }
        last = next;
    }
    (Some(best), probes)
}
