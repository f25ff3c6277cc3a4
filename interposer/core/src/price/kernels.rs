//! What a graph is made of: its kernels, each with the price that it has by itself.
//!
//! They say what the graph weighs, by the prices of the day: a graph is often made while little is known of them. And
//! where they run one after the other, a launch of the graph that was measured says what they take together.

use super::{Estimate, Parts};
use crate::overlap::{Load, Moments};

/// The kernels of one executable graph.
#[derive(Debug, Default)]
pub struct Kernels {
    parts: Parts,
    in_row: bool,
}

/// What launches take beside a load, and the integrals of their weight over that time, and of the SMs that they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Held {
    pub alone: f64,
    pub beside: f64,
    pub sums: Moments,
    pub sms: f64,
}

impl Held {
    /// Launches of this weight, on this part of the SMs, that take `alone` ns by themselves. Beside others one that holds much takes
    /// longer by more than one that holds little: kernels that want more SMs than there are all run slower.
    pub fn of(alone: f64, weight: Moments, sms: f64, load: Load) -> Self {
        let beside = alone * load.slowed(sms);
        Self { alone, beside, sums: weight.map(|moment| beside * moment), sms: beside * sms }
    }

    /// As much of it as takes `alone` ns by itself.
    pub fn scaled(self, alone: f64) -> Self {
        let by = alone / self.alone;
        Self { alone, beside: self.beside * by, sums: self.sums.map(|sum| sum * by), sms: self.sms * by }
    }

    pub fn add(&mut self, other: Self) {
        self.alone += other.alone;
        self.beside += other.beside;
        self.sums.iter_mut().zip(other.sums).for_each(|(sum, more)| *sum += more);
        self.sms += other.sms;
    }
}

impl Kernels {
    /// None yet.
    pub fn restart(&mut self) {
        self.parts.clear();
        self.in_row = false;
    }

    /// Whether these are all, each waits for the one before, and nothing else of the graph takes time.
    pub fn set_in_row(&mut self, in_row: bool) {
        self.in_row = in_row;
    }

    /// A kernel more.
    pub fn add(&mut self, kernel: &'static Estimate) {
        self.parts.add_one(kernel);
    }

    /// A kernel less.
    pub fn remove(&mut self, kernel: &'static Estimate) {
        self.parts.remove_one(kernel);
    }

    /// What they hold together; `None` if nothing is known of one of them.
    pub(super) fn held(&self, load: Load) -> Option<Held> {
        (!self.parts.is_empty() && self.parts.are_known()).then(|| self.parts.held_by_kernels(load))
    }

    /// The graph takes so long, with this variance: what its kernels come to together. What they were off by is shared out by how
    /// little is known of each, and of the graph.
    pub(super) fn come_to(&self, took: (f64, f64)) {
        if self.in_row && self.parts.are_known() {
            self.parts.come_to(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlap::Weight;
    use crate::price::Took;

    fn teach(estimate: &'static Estimate, ns: u64, times: u32) {
        let mut launch = Parts::with_room();
        launch.add(estimate, 1);
        for _ in 0..times {
            launch.learn(Took::exactly(ns as f64));
        }
    }

    fn learnt(ns: u64, weight: f64) -> &'static Estimate {
        let estimate: &'static Estimate = Box::leak(Box::new(Estimate::guess(ns)));
        estimate.weigh([weight, weight.powi(2), weight.powi(3)], weight);
        teach(estimate, ns, 3);
        estimate
    }

    /// A graph of 40 small kernels and 10 that fill the GPU, of which the small ones are known badly.
    fn graph(small_ns: u64, in_row: bool) -> (&'static Estimate, &'static Estimate) {
        let (small, large) = (learnt(small_ns, 0.2), learnt(100_000, 1.0));
        teach(large, 100_000, 1_000);
        let graph: &'static Estimate = Box::leak(Box::new(Estimate::guess(1_000_000)));
        let mut kernels = graph.kernels().lock();
        kernels.restart();
        kernels.set_in_row(in_row);
        (0..40).for_each(|_| kernels.add(small));
        (0..10).for_each(|_| kernels.add(large));
        (graph, small)
    }

    fn launches(graph: &'static Estimate) -> Parts {
        let mut parts = Parts::with_room();
        parts.add(graph, 2);
        parts
    }

    #[test]
    fn a_graph_weighs_as_its_kernels_do_by_the_prices_of_the_day() {
        let (graph, _) = graph(5_000, true);
        let [mean, square, _] = launches(graph).weight(Load::default()).unwrap();
        assert!((mean - (0.2 * 0.2 + 1.0) / 1.2).abs() < 1e-6, "{mean}");
        assert!((square - (0.2 * 0.04 + 1.0) / 1.2).abs() < 1e-6, "{square}");
        let [mean, ..] =
            launches(graph).weight(Load { always: Weight::steady(1.0), ..Load::default() }).unwrap();
        assert!((mean - (0.24 * 0.2 + 2.0) / 2.24).abs() < 1e-6, "beside one that fills the GPU: {mean}");
    }

    #[test]
    fn a_graph_with_a_kernel_of_which_nothing_is_known_weighs_what_it_was_given() {
        let (graph, _) = graph(5_000, true);
        graph.kernels().lock().add(Box::leak(Box::new(Estimate::guess(5_000))));
        graph.weigh([0.7, 0.49, 0.343], 0.7);
        assert!((launches(graph).weight(Load::default()).unwrap()[0] - 0.7).abs() < 1e-6);
    }

    #[test]
    fn a_list_with_itself_in_it_is_no_trap() {
        let graph = learnt(5_000, 0.2);
        graph.kernels().lock().add(graph);
        assert!(launches(graph).weight(Load::default()).is_some());
    }

    #[test]
    fn a_graph_that_is_measured_corrects_what_is_known_badly_of_its_kernels() {
        for (in_row, right_ns) in [(true, 5_000.0), (false, 6_000.0)] {
            let (graph, small) = graph(6_000, in_row);
            for _ in 0..20 {
                launches(graph).learn(Took::exactly(2.4e6));
            }
            let off = small.mean() / right_ns - 1.0;
            assert!(off.abs() < 0.02, "{off}, kernels in a row: {in_row}");
        }
    }

    #[test]
    fn a_graph_that_is_measured_once_corrects_what_is_known_badly_and_not_what_is_known_well() {
        let (graph, small) = graph(7_800, true);
        launches(graph).learn(Took::exactly(2.4e6));
        assert!((small.mean() / 5_000.0 - 1.0).abs() < 0.2, "{}", small.mean());
        let (graph, small) = self::graph(5_000, true);
        teach(small, 5_000, 1_000);
        launches(graph).learn(Took::exactly(2.6e6));
        assert!((small.mean() / 5_000.0 - 1.0).abs() < 0.05, "{}", small.mean());
    }
}
