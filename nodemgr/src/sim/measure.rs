//! What is noted while a scenario runs, and what follows from it.

use std::collections::VecDeque;

use weir_simgpu_model::Nanos;

use super::scenario::Metric;

/// The part of a run that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its beginning.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
}

impl Window {
    /// How long it is.
    pub fn length(&self) -> Nanos {
        self.to.saturating_sub(self.from)
    }

    fn has(&self, at: Nanos) -> bool {
        (self.from..self.to).contains(&at)
    }

    /// What of a stretch of time lies in it.
    pub fn part(&self, from: Nanos, to: Nanos) -> Nanos {
        to.min(self.to).saturating_sub(from.max(self.from))
    }
}

/// A request that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// When it came.
    pub arrived: Nanos,
    /// When it had its first token.
    pub first_token: Nanos,
    /// When it had its last one.
    pub done: Nanos,
    /// How many.
    pub tokens: u32,
}

impl Served {
    /// One of its latencies; none between tokens where there is only one.
    pub fn latency(&self, of: Metric) -> Option<Nanos> {
        match of {
            Metric::Request => Some(self.done - self.arrived),
            Metric::FirstToken => Some(self.first_token - self.arrived),
            Metric::PerToken => (self.done - self.first_token).checked_div(u64::from(self.tokens - 1)),
        }
    }
}

/// After the window, so that requests which came in it can be served.
const GRACE: Nanos = 2_000_000_000;

/// What one program tells.
#[derive(Debug)]
pub struct Log {
    window: Window,
    served: Vec<Served>,
    open: u64,    // came in the window and are not served yet
    belated: u64, // came in it and were served after the grace
    iterations: u64,
    heard: usize, // of those served
}

impl Log {
    /// Nothing yet.
    pub fn new(window: Window) -> Self {
        Self { window, served: Vec::new(), open: 0, belated: 0, iterations: 0, heard: 0 }
    }

    /// A request has come.
    pub fn arrived(&mut self, at: Nanos) {
        self.open += u64::from(self.window.has(at));
    }

    /// A request is done.
    pub fn served(&mut self, served: Served) {
        if self.window.has(served.arrived) {
            self.open = self.open.saturating_sub(1);
            self.belated += u64::from(served.done.saturating_sub(self.window.to) > GRACE);
        }
        self.served.push(served);
    }

    /// An iteration of training or a batch is done.
    pub fn iterated(&mut self, at: Nanos) {
        self.iterations += u64::from(self.window.has(at));
    }

    /// Iterations or batches done in the window.
    pub fn iterations(&self) -> u64 {
        self.iterations
    }

    /// All requests that were served, whenever they came.
    pub fn all(&self) -> &[Served] {
        &self.served
    }

    /// One latency of all who were served since this was asked last: what a server tells whoever watches its promise.
    pub fn news(&mut self, of: Metric) -> Vec<Nanos> {
        let news = self.served.iter().skip(std::mem::replace(&mut self.heard, self.served.len()));
        news.filter_map(|served| served.latency(of)).collect()
    }

    /// Requests that came in the window and were served, also after it.
    pub fn counted(&self) -> impl Iterator<Item = &Served> {
        self.served.iter().filter(|served| self.window.has(served.arrived))
    }

    /// Requests that came in the window and were not served within [`GRACE`] after it: what a server has not kept up with.
    pub fn unserved(&self) -> u64 {
        self.open + self.belated
    }

    /// Requests that came in the window and are not served: nobody knows how long they take.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// One of the latencies of all requests that came in the window, in order.
    pub fn latencies(&self, of: Metric) -> Vec<Nanos> {
        let mut latencies: Vec<_> = self.counted().filter_map(|served| served.latency(of)).collect();
        latencies.sort_unstable();
        latencies
    }
}

/// A latency tenant's request is a guarantee over this long (design 5).
pub const LONG_RUN: Nanos = 10_000_000_000;

/// The least that a tenant had of a long run in which it had work throughout: looked at once a tick.
#[derive(Debug, Default)]
pub struct LongRuns {
    had: VecDeque<Nanos>, // at each look since it last rested
    least: Option<Nanos>,
}

impl LongRuns {
    /// Its time on the GPU so far; `looks` of these are as far apart as a long run lasts.
    pub fn note(&mut self, had: Nanos, looks: usize) {
        self.had.push_back(had);
        if self.had.len() > looks {
            let before = self.had.pop_front().unwrap_or(had);
            let now = had.saturating_sub(before);
            self.least = Some(self.least.map_or(now, |least| least.min(now)));
        }
    }

    /// It has no work.
    pub fn rests(&mut self) {
        self.had.clear();
    }

    /// The least; none if it never had work for so long.
    pub fn least(&self) -> Option<Nanos> {
        self.least
    }
}

/// The smallest value that at least so many thousandths of all do not exceed; of none: none.
pub fn quantile(sorted: &[Nanos], permille: u16) -> Option<Nanos> {
    let rank = (sorted.len() as u64 * u64::from(permille)).div_ceil(1_000).max(1);
    sorted.get(usize::try_from(rank - 1).ok()?).copied()
}

/// A gap in the work of all who are no fillers, and what fillers did in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// How long it was.
    pub length: Nanos,
    /// How much of it fillers had.
    pub filled: Nanos,
}

/// What all gaps come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gaps {
    /// Their sum.
    pub idle: Nanos,
    /// What fillers had of it.
    pub filled: Nanos,
    /// What could have been filled: of each gap what is left after the cost of entering and leaving it.
    pub fillable: Nanos,
    /// What fillers had of that; more in one gap does not make up for less in another.
    pub filled_of_fillable: Nanos,
}

impl Gaps {
    /// Of all gaps, where so much of each is lost.
    pub fn of(gaps: &[Gap], cost: Nanos) -> Self {
        gaps.iter().fold(Self::default(), |sum, gap| {
            let fillable = gap.length.saturating_sub(cost);
            Self {
                idle: sum.idle + gap.length,
                filled: sum.filled + gap.filled,
                fillable: sum.fillable + fillable,
                filled_of_fillable: sum.filled_of_fillable + gap.filled.min(fillable),
            }
        })
    }

    /// Filled of idle time, percent; none without idle time.
    pub fn raw_percent(&self) -> Option<f64> {
        percent(self.filled, self.idle)
    }

    /// Filled of fillable time, percent; none where nothing was fillable.
    pub fn fillable_percent(&self) -> Option<f64> {
        percent(self.filled_of_fillable, self.fillable)
    }
}

/// A part in percent.
pub fn percent(part: Nanos, whole: Nanos) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_that_was_measured() {
        let values: Vec<Nanos> = (1..=200).collect();
        assert_eq!(
            [500, 950, 990, 1].map(|q| quantile(&values, q)),
            [Some(100), Some(190), Some(198), Some(1)]
        );
        assert_eq!((quantile(&[7], 990), quantile(&[], 990)), (Some(7), None));
    }

    #[test]
    fn a_long_gap_does_not_make_up_for_a_short_one_that_was_not_filled() {
        let gaps =
            [Gap { length: 100, filled: 100 }, Gap { length: 100, filled: 0 }, Gap { length: 5, filled: 0 }];
        let sum = Gaps::of(&gaps, 20);
        assert_eq!((sum.idle, sum.fillable, sum.filled_of_fillable), (205, 160, 80));
        assert_eq!(sum.fillable_percent(), Some(50.0));
    }

    #[test]
    fn a_long_run_in_which_a_tenant_rested_says_nothing_of_its_request() {
        let mut runs = LongRuns::default();
        (0..4).for_each(|at| runs.note(at * 10, 3));
        assert_eq!(runs.least(), Some(30));
        runs.rests();
        (0..3).for_each(|_| runs.note(30, 3));
        assert_eq!(runs.least(), Some(30), "two steps of nothing");
        runs.note(35, 3);
        assert_eq!(runs.least(), Some(5));
    }

    #[test]
    fn requests_count_by_when_they_came() {
        let mut log = Log::new(Window { from: 10, to: 20 });
        for arrived in [5, 12, 15] {
            log.arrived(arrived);
        }
        for arrived in [5, 12] {
            log.served(Served { arrived, first_token: arrived + 30, done: arrived + 70, tokens: 5 });
        }
        assert_eq!(log.latencies(Metric::FirstToken), [30]);
        assert_eq!((log.latencies(Metric::Request), log.latencies(Metric::PerToken)), (vec![70], vec![10]));
        assert_eq!((log.unserved(), log.open()), (1, 1));
    }

    #[test]
    fn who_is_served_long_after_the_window_is_late_by_his_latency_and_not_because_the_run_ended() {
        let to = 10 * GRACE;
        let mut log = Log::new(Window { from: 0, to });
        for (arrived, done) in [(to - 9, to + GRACE), (to - 5, to + 2 * GRACE)] {
            log.arrived(arrived);
            log.served(Served { arrived, first_token: arrived + 1, done, tokens: 3 });
        }
        assert_eq!((log.unserved(), log.open()), (1, 0));
        assert_eq!(log.latencies(Metric::Request), [GRACE + 9, 2 * GRACE + 5]);
    }
}
