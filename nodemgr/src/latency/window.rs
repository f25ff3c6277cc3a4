//! The quantile of the last seconds. A histogram counts from the start of its process, so what matters is what its buckets
//! have grown by; a summary says its own.

use std::collections::VecDeque;

use weir_protocol::units::Nanos;

use super::exposition::Figures;

/// How far back it reaches: long enough for a quantile to mean something, short enough to follow a change.
const SPAN: Nanos = Nanos::from_secs(10);

/// Pages are kept this far apart at least, however often one is looked at.
const KEPT_EACH: Nanos = Nanos::from_millis(500);

/// What the last pages said.
#[derive(Debug, Default)]
pub struct Window {
    pages: VecDeque<(Nanos, Vec<(f64, f64)>)>,
}

impl Window {
    /// Takes in a page, and says the quantile of the requests since the beginning of the window, in the metric's unit;
    /// nothing if there were none.
    pub fn push(&mut self, now: Nanos, figures: &Figures, quantile: f64) -> Option<f64> {
        if figures.buckets.is_empty() {
            self.pages.clear();
            return summary(&figures.quantiles, quantile);
        }
        let restarted = self.pages.back().is_some_and(|(_, last)| is_behind(&figures.buckets, last));
        if restarted {
            self.pages.clear();
        }
        if self.pages.back().is_none_or(|(at, _)| now.since(*at) >= KEPT_EACH) {
            self.pages.push_back((now, figures.buckets.clone()));
        }
        // The oldest page kept is the newest that lies a whole window back.
        while self.pages.get(1).is_some_and(|(at, _)| now.since(*at) >= SPAN) {
            self.pages.pop_front();
        }
        let (_, oldest) = self.pages.front()?;
        let grown = grown(&figures.buckets, oldest);
        histogram(&grown, quantile)
    }
}

/// Whether the process behind the page began anew: its buckets are others, or have shrunk.
fn is_behind(now: &[(f64, f64)], last: &[(f64, f64)]) -> bool {
    now.len() != last.len()
        || now.iter().zip(last).any(|(now, last)| now.0.total_cmp(&last.0).is_ne() || now.1 < last.1)
}

fn grown(now: &[(f64, f64)], before: &[(f64, f64)]) -> Vec<(f64, f64)> {
    now.iter().zip(before).map(|(now, before)| (now.0, now.1 - before.1)).collect()
}

/// As Prometheus' `histogram_quantile`: linear within a bucket; beyond the last finite bound, that bound.
fn histogram(buckets: &[(f64, f64)], quantile: f64) -> Option<f64> {
    let (_, all) = *buckets.last()?;
    let rank = quantile * all;
    if all <= 0.0 {
        return None;
    }
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, upto) in buckets {
        if *upto >= rank && bound.is_finite() {
            let inside = upto - below;
            let part = if inside > 0.0 { (rank - below) / inside } else { 1.0 };
            return Some(low + (bound - low) * part);
        }
        if bound.is_finite() {
            (low, below) = (*bound, *upto);
        }
    }
    Some(low)
}

/// The quantile that the application exports, or the next higher one: a promise is not kept by a lower one.
fn summary(quantiles: &[(f64, f64)], quantile: f64) -> Option<f64> {
    let near = |known: f64| known >= quantile - 1e-9;
    quantiles.iter().find(|(known, _)| near(*known)).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(counts: [f64; 3]) -> Figures {
        let bounds = [0.1, 0.2, f64::INFINITY];
        Figures { buckets: bounds.into_iter().zip(counts).collect(), quantiles: Vec::new() }
    }

    fn near(value: Option<f64>, wanted: f64) -> bool {
        value.is_some_and(|value| (value - wanted).abs() < 1e-9)
    }

    #[test]
    fn only_requests_within_the_window_count() {
        let mut window = Window::default();
        let mut push = |second, counts| window.push(Nanos::from_secs(second), &page(counts), 0.5);
        assert_eq!(push(1, [100.0, 100.0, 100.0]), None, "what went before is not ours to judge");
        assert!(near(push(2, [110.0, 110.0, 110.0]), 0.05), "ten, all in the first bucket");
        // Ten seconds later those ten are forgotten: only the slow ones are left.
        for second in 3..=11 {
            push(second, [110.0, 110.0, 110.0]);
        }
        assert!(near(push(12, [110.0, 120.0, 120.0]), 0.15));
        assert!(near(push(13, [110.0, 120.0, 140.0]), 0.2), "beyond the last bound: at least that");
    }

    #[test]
    fn an_application_that_starts_anew_starts_a_new_window() {
        let mut window = Window::default();
        window.push(Nanos::from_secs(1), &page([50.0, 50.0, 50.0]), 0.5);
        assert_eq!(window.push(Nanos::from_secs(2), &page([3.0, 3.0, 3.0]), 0.5), None);
        assert!(near(window.push(Nanos::from_secs(3), &page([4.0, 4.0, 4.0]), 0.5), 0.05));
    }

    #[test]
    fn a_summary_gives_its_own_quantile_and_never_a_lower_one() {
        let quantiles = vec![(0.5, 10.0), (0.9, 20.0), (0.99, 40.0)];
        let mut window = Window::default();
        let mut at = |quantile| {
            let figures = Figures { buckets: Vec::new(), quantiles: quantiles.clone() };
            window.push(Nanos(1), &figures, quantile)
        };
        assert_eq!((at(0.9), at(0.95), at(0.999)), (Some(20.0), Some(40.0), None));
    }
}
