//! What will arrive, from what has arrived (SMore's prewarmer, papers.md 3.5, with standard methods in place of its
//! network): exponential smoothing (ETS), with the seasons taken out first where there are some (MSTL).

use std::collections::VecDeque;

use augurs_core::{Fit, Predict};
use augurs_ets::AutoETS;
use augurs_mstl::MSTLModel;
use augurs_seasons::{Detector, PeriodogramDetector};
use serde::{Deserialize, Serialize};
use weir_protocol::units::{Nanos, Tokens};

use super::{Rules, gpus};

/// Bins without which nothing is said.
const FEWEST: usize = 12;
/// How often a season must have been seen.
const CYCLES: usize = 3;
/// How much of the variance it must explain.
const EXPLAINED: f64 = 0.3;

/// Work expected at some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// The mean, in GPUs.
    pub mean: f64,
    /// Upper end of the interval, in GPUs.
    pub upper: f64,
}

/// A memory of work in bins, and what it says of the next ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Forecaster {
    bin: Nanos,
    bins: usize,
    refit_bins: u64,
    level: f64,
    history: VecDeque<f64>,
    open: Tokens,
    opened: Option<Nanos>,
    fitted: Vec<Forecast>,
    since_fit: u64,
}

impl Forecaster {
    /// An empty memory.
    pub fn new(rules: &Rules) -> Self {
        Self {
            bin: Nanos::from_secs(rules.bin_s.max(1)),
            bins: rules.bins.max(FEWEST),
            refit_bins: rules.refit_bins.max(1),
            level: rules.forecast_level,
            history: VecDeque::new(),
            open: Tokens(0),
            opened: None,
            fitted: Vec::new(),
            since_fit: 0,
        }
    }

    /// Work that has arrived since the last look.
    pub fn see(&mut self, now: Nanos, arrived: Tokens) {
        let opened = *self.opened.get_or_insert(now);
        self.open.0 = self.open.0.saturating_add(arrived.0);
        let passed = now.since(opened);
        if passed < self.bin {
            return;
        }
        // While nobody looked it came as it may: as evenly as not.
        let bins = usize::try_from(passed.0 / self.bin.0).unwrap_or(usize::MAX).min(self.bins);
        self.history.extend(std::iter::repeat_n(gpus(self.open, passed), bins));
        self.history.drain(..self.history.len().saturating_sub(self.bins));
        (self.open, self.opened) = (Tokens(0), Some(now));
        self.since_fit += bins as u64;
        if self.since_fit >= self.refit_bins || self.fitted.is_empty() {
            self.fit();
        }
    }

    /// The most that is expected between now and so long after; nothing if too little was seen.
    pub fn until(&self, after: Nanos) -> Option<Forecast> {
        let first = usize::try_from(self.since_fit).ok()?;
        let last = first + usize::try_from(after.0.div_ceil(self.bin.0)).ok()?;
        let coming = self.fitted.get(first..=last.min(self.fitted.len().checked_sub(1)?))?;
        coming
            .iter()
            .copied()
            .reduce(|a, b| Forecast { mean: a.mean.max(b.mean), upper: a.upper.max(b.upper) })
    }

    /// Fits the next bins: as many as lie between two fits, and a cold start of some minutes more.
    fn fit(&mut self) {
        self.since_fit = 0;
        self.fitted.clear();
        if self.history.len() < FEWEST {
            return;
        }
        let seen: Vec<f64> = self.history.iter().copied().collect();
        let horizon = usize::try_from(self.refit_bins).unwrap_or(1) + 30;
        let fitted = predict(&seen, horizon, self.level);
        self.fitted = fitted.unwrap_or_default();
    }
}

/// The next `horizon` values; nothing where no model fits.
fn predict(seen: &[f64], horizon: usize, level: f64) -> Option<Vec<Forecast>> {
    let first = *seen.first()?;
    if seen.iter().all(|value| (value - first).abs() < 1e-12) {
        return Some(vec![Forecast { mean: first, upper: first }; horizon]);
    }
    let forecast = match season(seen) {
        Some(period) => {
            let trend = AutoETS::non_seasonal().into_trend_model();
            MSTLModel::new(vec![period], trend).fit(seen).ok()?.predict(horizon, level).ok()?
        }
        None => AutoETS::non_seasonal().fit(seen).ok()?.predict(horizon, level).ok()?,
    };
    let uppers = forecast.intervals.map_or_else(|| forecast.point.clone(), |intervals| intervals.upper);
    let most = seen.iter().copied().fold(0.0, f64::max);
    // A trend runs on for ever; what was never seen is not prepared for.
    let sane = |value: f64| if value.is_finite() { value.clamp(0.0, most) } else { 0.0 };
    Some(
        forecast
            .point
            .iter()
            .zip(uppers)
            .map(|(mean, upper)| Forecast { mean: sane(*mean), upper: sane(upper) })
            .collect(),
    )
}

/// The period, in bins, that the past repeats with, if it does.
fn season(seen: &[f64]) -> Option<usize> {
    let longest = seen.len() / CYCLES;
    if longest < 4 {
        return None;
    }
    let detector =
        PeriodogramDetector::builder().min_period(3).max_period(u32::try_from(longest).ok()?).build();
    let periods = detector.detect(seen).into_iter().filter_map(|period| usize::try_from(period).ok());
    // The periodogram's bins are coarse: the best lag around each peak is the period.
    let lags = periods
        .flat_map(|period| period.saturating_sub(period / 4).max(3)..=(period + period / 4).min(longest));
    let best = lags.map(|lag| (correlation(seen, lag), lag)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= EXPLAINED).then_some(best.1)
}

/// Correlation of a series with itself so much later.
fn correlation(seen: &[f64], lag: usize) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "some hundred bins")]
    let mean = seen.iter().sum::<f64>() / seen.len() as f64;
    let product = |(a, b): (&f64, &f64)| (a - mean) * (b - mean);
    let variance: f64 = seen.iter().map(|value| product((value, value))).sum();
    let shared: f64 = seen.iter().zip(seen.iter().skip(lag)).map(product).sum();
    if variance > 0.0 { shared / variance } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64, gpus: impl Fn(u64) -> f64) -> Forecaster {
        let mut forecaster = Forecaster::new(&Rules::default());
        for second in 0..=seconds {
            #[allow(clippy::cast_possible_truncation, reason = "a second of work fits")]
            forecaster.see(Nanos::from_secs(second), Tokens((gpus(second) * 1e9) as i64));
        }
        forecaster
    }

    #[test]
    fn a_steady_load_is_expected_to_go_on() {
        let expected = after(600, |_| 0.4).until(Nanos::from_secs(60)).unwrap();
        assert!((expected.mean - 0.4).abs() < 0.05, "{expected:?}");
    }

    #[test]
    fn the_next_peak_of_a_season_is_seen_before_it_comes() {
        // Six minutes: one of peak, five of calm. At 1,790 s calm reigns, and the next peak is at 1,800 s.
        let peaks = |second: u64| if second % 360 < 60 { 1.0 } else { 0.05 };
        let expected = after(1790, peaks).until(Nanos::from_secs(40)).unwrap();
        assert!(expected.mean > 0.4, "{expected:?}");
    }

    #[test]
    fn nothing_is_said_of_what_was_hardly_seen() {
        assert_eq!(after(60, |_| 1.0).until(Nanos::from_secs(30)), None);
    }

    #[test]
    fn a_rise_is_not_believed_beyond_what_was_ever_seen() {
        #[allow(clippy::cast_precision_loss, reason = "600 at most")]
        let expected = after(600, |second| second as f64 / 600.0).until(Nanos::from_secs(300)).unwrap();
        assert!(expected.upper <= 1.0 && expected.mean > 0.8, "{expected:?}");
    }
}
