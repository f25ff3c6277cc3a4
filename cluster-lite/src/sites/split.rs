//! Each site's part of a training, so that rounds end together (Cloudless-Training, papers.md 3.1).
//!
//! A round of a site: its samples at the speed of its GPUs, then its gradients over its link, there and back. It ends for
//! all when the slowest has ended.
//!
//! ```text
//! even      all GPUs of every site; samples in equal parts, or as they lie where they cannot be moved
//! matched   samples may move: parts x_i with x_i / speed_i + sync_i = T for every site that takes part, their sum the
//!           round's; a site whose sync alone takes longer than T takes no part
//!           samples stay: parts as they lie; each site keeps as few GPUs as end with the slowest
//! ```
//!
//! What a site waits is a bubble that comes each round at the same place: it is announced, for fillers.

use serde::Serialize;

use super::model::{Site, Training};

/// A site's part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// The site.
    pub site: String,
    /// GPUs that it keeps for the training.
    pub gpus: u32,
    /// Samples of a round.
    pub samples: f64,
    /// Time to work on them, in seconds.
    pub compute_s: f64,
    /// Time to send and receive, in seconds.
    pub sync_s: f64,
    /// Gap without GPU work in each round: the sync and the wait for the others.
    pub bubble: Bubble,
}

/// A gap that comes each round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bubble {
    /// Seconds after the round's begin.
    pub begins_s: f64,
    /// Seconds.
    pub lasts_s: f64,
}

/// How a round goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Split {
    /// Sites that take part.
    pub parts: Vec<Part>,
    /// Length of a round, in seconds.
    pub round_s: f64,
    /// GPU-seconds held without work, a round: bubbles times GPUs.
    pub idle_gpu_s: f64,
    /// What a round costs.
    pub cost: f64,
}

/// Every GPU of every site, samples in equal parts or as they lie.
pub fn even(sites: &[Site], training: &Training) -> Split {
    let parts = if training.data_moves {
        sites.iter().map(|_| count(training.round_samples) / ratio_of(sites.len())).collect()
    } else {
        as_they_lie(sites, training)
    };
    let shares: Vec<_> = sites.iter().zip(parts).map(|(site, samples)| (site, site.gpus, samples)).collect();
    round(&shares, training)
}

/// As rounds end together.
pub fn matched(sites: &[Site], training: &Training) -> Split {
    if training.data_moves { matched_data(sites, training) } else { matched_gpus(sites, training) }
}

/// Samples go where they end at the same time. The sites in order of their sync: the first few whose common end lies
/// after the sync of each of them.
fn matched_data(sites: &[Site], training: &Training) -> Split {
    let mut order: Vec<_> = sites.iter().collect();
    order.sort_by(|a, b| sync_s(a, training).total_cmp(&sync_s(b, training)));
    let (mut speeds, mut ahead, mut end) = (0.0, 0.0, f64::INFINITY);
    let mut taking = 0;
    for site in &order {
        let sync = sync_s(site, training);
        if sync >= end {
            break;
        }
        speeds += speed(site, site.gpus);
        ahead += speed(site, site.gpus) * sync;
        end = (count(training.round_samples) + ahead) / speeds;
        taking += 1;
    }
    let share = |site: &&Site| sites.iter().position(|other| std::ptr::eq(other, *site));
    let mut chosen: Vec<_> = order.into_iter().take(taking).collect();
    chosen.sort_by_key(share);
    let shares: Vec<_> = chosen
        .into_iter()
        .map(|site| (site, site.gpus, speed(site, site.gpus) * (end - sync_s(site, training))))
        .collect();
    round(&shares, training)
}

/// GPUs go where samples lie: as many as end with the slowest site.
fn matched_gpus(sites: &[Site], training: &Training) -> Split {
    let all = even(sites, training);
    let fewest = |(site, samples): (&Site, f64)| {
        let left = all.round_s - sync_s(site, training);
        (1..=site.gpus).find(|gpus| samples / speed(site, *gpus) <= left * (1.0 + 1e-9)).unwrap_or(site.gpus)
    };
    let parts = as_they_lie(sites, training);
    let shares: Vec<_> =
        sites.iter().zip(parts).map(|(site, samples)| (site, fewest((site, samples)), samples)).collect();
    round(&shares, training)
}

fn round(shares: &[(&Site, u32, f64)], training: &Training) -> Split {
    let ends: Vec<_> = shares
        .iter()
        .map(|&(site, gpus, samples)| {
            (site, gpus, samples, samples / speed(site, gpus), sync_s(site, training))
        })
        .collect();
    let round_s = ends.iter().map(|(.., compute, sync)| compute + sync).fold(0.0, f64::max);
    let held = |(site, gpus, ..): &(&Site, u32, f64, f64, f64)| {
        f64::from(*gpus) * site.gpu_hour_cost * round_s / 3600.0
    };
    let cost = ends.iter().map(held).sum();
    let idle_gpu_s = ends.iter().map(|(_, gpus, _, compute, _)| f64::from(*gpus) * (round_s - compute)).sum();
    let parts = ends.into_iter().map(|(site, gpus, samples, compute_s, sync_s)| Part {
        site: site.name.clone(),
        gpus,
        samples,
        compute_s,
        sync_s,
        bubble: Bubble { begins_s: compute_s, lasts_s: round_s - compute_s },
    });
    Split { parts: parts.collect(), round_s, idle_gpu_s, cost }
}

fn as_they_lie(sites: &[Site], training: &Training) -> Vec<f64> {
    let all: f64 = sites.iter().map(|site| count(site.samples)).sum();
    sites.iter().map(|site| count(training.round_samples) * count(site.samples) / all.max(1.0)).collect()
}

fn speed(site: &Site, gpus: u32) -> f64 {
    site.samples_per_s * f64::from(gpus)
}

/// Gradients there and the mean back.
fn sync_s(site: &Site, training: &Training) -> f64 {
    2.0 * 8.0 * training.sync_bytes / site.wan_bits_per_s
}

#[allow(clippy::cast_precision_loss, reason = "samples, far below 2^53")]
const fn count(samples: u64) -> f64 {
    samples as f64
}

#[allow(clippy::cast_precision_loss, reason = "a handful of sites")]
const fn ratio_of(sites: usize) -> f64 {
    sites as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str, gpus: u32, samples_per_s: f64, samples: u64, wan_bits_per_s: f64) -> Site {
        Site {
            name: name.into(),
            gpus,
            samples_per_s,
            samples,
            wan_bits_per_s,
            gpu_hour_cost: 3.6,
            busy_watts: 400.0,
            idle_watts: 50.0,
            hours: Vec::new(),
        }
    }

    fn training(data_moves: bool) -> Training {
        Training { sync_bytes: 1e9, data_moves, round_samples: 9000 }
    }

    /// Syncs of 16 s and 8 s: 16 Gbit over 1 and 2 Gbit/s.
    fn two() -> Vec<Site> {
        vec![site("a", 4, 25.0, 6000, 1e9), site("b", 2, 25.0, 3000, 2e9)]
    }

    #[test]
    fn rounds_end_together_where_samples_may_move() {
        // x/100 + 16 = y/50 + 8 = T, x + y = 9000: T = (9000 + 1600 + 400) / 150.
        let split = matched(&two(), &training(true));
        let end = 11_000.0 / 150.0;
        assert!((split.round_s - end).abs() < 1e-9);
        assert!((split.parts[0].samples - 100.0 * (end - 16.0)).abs() < 1e-6);
        for part in &split.parts {
            assert!((part.compute_s + part.sync_s - end).abs() < 1e-9, "{part:?}");
            assert!((part.bubble.lasts_s - part.sync_s).abs() < 1e-9, "the only gap is the sync");
        }
    }

    #[test]
    fn a_site_behind_a_link_slower_than_the_round_takes_no_part() {
        let mut sites = two();
        sites.push(site("far", 8, 100.0, 0, 1e7));
        let split = matched(&sites, &training(true));
        assert_eq!(split.parts.len(), 2);
        assert!((split.round_s - 11_000.0 / 150.0).abs() < 1e-9);
    }

    #[test]
    fn no_other_division_of_samples_ends_sooner() {
        let sites = two();
        let best = matched(&sites, &training(true)).round_s;
        for samples in (0..=9000).step_by(50) {
            let x = f64::from(samples);
            let other = round(&[(&sites[0], 4, x), (&sites[1], 2, 9000.0 - x)], &training(true)).round_s;
            assert!(other >= best - 1e-9, "{x} samples at a: {other}");
        }
    }

    #[test]
    fn where_samples_stay_each_site_keeps_as_few_gpus_as_end_with_the_slowest() {
        // The slow one: 3000 samples at 25/s and 16 s. The fast one needs 1 of its 8 GPUs for 3000 at 40/s.
        let sites = [site("slow", 1, 25.0, 1, 1e9), site("fast", 8, 40.0, 1, 1e9)];
        let training = Training { round_samples: 6000, ..training(false) };
        let (even, matched) = (even(&sites, &training), matched(&sites, &training));
        assert_eq!(matched.parts.iter().map(|part| part.gpus).collect::<Vec<_>>(), [1, 1]);
        assert!((matched.round_s - even.round_s).abs() < 1e-9, "as fast");
        assert!(matched.cost < even.cost / 4.0, "for less");
        assert!(matched.idle_gpu_s < even.idle_gpu_s);
    }
}
