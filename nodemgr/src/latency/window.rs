//! The quantile of the last seconds, and how many requests were late. A histogram counts from the start of its process, so what
//! matters is what its buckets have grown by; a summary says its own quantile, and counts nothing.

use std::collections::VecDeque;

use weir_policy::Counted;
use weir_protocol::units::Nanos;

use super::Promise;
use super::exposition::Figures;

/// How far back it reaches: long enough for a quantile to mean something, short enough to follow a change.
const SPAN: Nanos = Nanos::from_secs(10);

/// Pages are kept this far apart at least, however often one is looked at.
const KEPT_EACH: Nanos = Nanos::from_millis(500);

/// What a page has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The promised quantile of the last seconds; none if there were no requests.
    pub recent: Option<Nanos>,
    /// All requests since the first page, and the late ones among them; none where the page does not count them.
    pub counted: Option<Counted>,
}

/// What the last pages said.
#[derive(Debug, Default)]
pub struct Window {
    pages: VecDeque<(Nanos, Vec<(f64, f64)>)>,
    requests: f64, // of which the newest page kept tells, since the first one
    late: f64,     // of those, as far as buckets tell
}

impl Window {
    /// Takes in a page, and says how the promise stands. The metric's unit is `unit_ns` nanoseconds.
    pub fn push(&mut self, now: Nanos, figures: &Figures, promise: Promise, unit_ns: f64) -> Reading {
        let quantile = f64::from(promise.quantile_permille) / 1000.0;
        let to_ns = |value: f64| Nanos(whole(value * unit_ns));
        if figures.buckets.is_empty() {
            *self = Self::default();
            let recent = summary(&figures.quantiles, quantile).map(to_ns);
            return Reading { recent, counted: None };
        }
        let restarted = self.pages.back().is_some_and(|(_, last)| is_behind(&figures.buckets, last));
        if restarted {
            self.pages.clear();
        }
        if self.pages.back().is_none_or(|(at, _)| now.since(*at) >= KEPT_EACH) {
            self.count(&figures.buckets, promise.target_ns as f64 / unit_ns);
            self.pages.push_back((now, figures.buckets.clone()));
        }
        // The oldest page kept is the newest that lies a whole window back.
        while self.pages.get(1).is_some_and(|(at, _)| now.since(*at) >= SPAN) {
            self.pages.pop_front();
        }
        let oldest = self.pages.front().map(|(_, oldest)| grown(&figures.buckets, oldest));
        let recent = oldest.and_then(|grown| histogram(&grown, quantile)).map(to_ns);
        let counted = Counted { requests: whole(self.requests), late: whole(self.late) };
        Reading { recent, counted: Some(counted) }
    }

    /// Counts the requests since the newest page that was kept; of a first one, none.
    fn count(&mut self, buckets: &[(f64, f64)], target: f64) {
        let Some((_, last)) = self.pages.back() else { return };
        let grown = grown(buckets, last);
        let all = grown.last().map_or(0.0, |(_, all)| *all);
        self.requests += all;
        self.late += all - below(&grown, target);
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "floats cast to integers saturate, and a negative latency is none"
)]
fn whole(value: f64) -> u64 {
    value as u64
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

/// How many requests stayed below a value: linear within a bucket, as the quantile is. Nobody knows of those beyond the last
/// finite bound that they did.
fn below(buckets: &[(f64, f64)], value: f64) -> f64 {
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, upto) in buckets {
        if value < *bound {
            let part = if bound.is_finite() { (value - low) / (bound - low) } else { 0.0 };
            return below + (upto - below) * part;
        }
        (low, below) = (*bound, *upto);
    }
    below
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

    /// A page of a metric in seconds, and the promise of a quantile below 0.15 s.
    fn push(window: &mut Window, second: u64, figures: &Figures, quantile_permille: u16) -> Reading {
        let promise = Promise { quantile_permille, target_ns: 150_000_000 };
        window.push(Nanos::from_secs(second), figures, promise, 1e9)
    }

    /// The quantile, in ms.
    fn recent(reading: Reading) -> Option<u64> {
        reading.recent.map(|ns| (ns.0 + 500_000) / 1_000_000)
    }

    #[test]
    fn only_requests_within_the_window_count() {
        let mut window = Window::default();
        let mut push = |second, counts| recent(push(&mut window, second, &page(counts), 500));
        assert_eq!(push(1, [100.0, 100.0, 100.0]), None, "what went before is not ours to judge");
        assert_eq!(push(2, [110.0, 110.0, 110.0]), Some(50), "ten, all in the first bucket");
        // Ten seconds later those ten are forgotten: only the slow ones are left.
        for second in 3..=11 {
            push(second, [110.0, 110.0, 110.0]);
        }
        assert_eq!(push(12, [110.0, 120.0, 120.0]), Some(150));
        assert_eq!(push(13, [110.0, 120.0, 140.0]), Some(200), "beyond the last bound: at least that");
    }

    #[test]
    fn an_application_that_starts_anew_starts_a_new_window() {
        let mut window = Window::default();
        let mut push = |second, counts| recent(push(&mut window, second, &page(counts), 500));
        push(1, [50.0, 50.0, 50.0]);
        assert_eq!([push(2, [3.0, 3.0, 3.0]), push(3, [4.0, 4.0, 4.0])], [None, Some(50)]);
    }

    #[test]
    fn late_requests_are_counted_from_the_first_page_on_through_all_that_follow() {
        let mut window = Window::default();
        let mut push = |second, counts| {
            let Counted { requests, late } = push(&mut window, second, &page(counts), 950).counted.unwrap();
            (requests, late)
        };
        assert_eq!(push(1, [100.0, 100.0, 900.0]), (0, 0), "what went before is not ours to judge");
        assert_eq!(push(2, [109.0, 110.0, 910.0]), (10, 0), "half of one");
        assert_eq!(push(3, [109.0, 111.0, 912.0]), (12, 2), "another half, and one beyond the last bound");
        assert_eq!(push(60, [109.0, 111.0, 912.0]), (12, 2), "nothing is forgotten");
        assert_eq!(push(61, [1.0, 1.0, 1.0]), (12, 2), "it starts anew");
        assert_eq!(push(62, [1.0, 1.0, 4.0]), (15, 5));
    }

    #[test]
    fn a_summary_gives_its_own_quantile_and_never_a_lower_one() {
        let quantiles = vec![(0.5, 10.0), (0.9, 20.0), (0.99, 40.0)];
        let mut window = Window::default();
        let figures = Figures { buckets: Vec::new(), quantiles };
        let readings = [900, 950, 999].map(|quantile| push(&mut window, 1, &figures, quantile));
        assert_eq!(readings.map(recent), [Some(20_000), Some(40_000), None]);
        assert_eq!(readings.map(|reading| reading.counted), [None; 3], "it counts nothing");
    }
}
