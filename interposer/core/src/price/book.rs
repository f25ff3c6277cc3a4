//! The process's price book: every signature seen so far, and where first prices come from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weir_protocol::price::{self, PriceRow};

use super::{Estimate, Signature};
use crate::gang::is_collective;
use crate::lock::Lock;
use crate::overlap::Moments;

/// Signatures that a process keeps. A program with more (a grid that follows its input) has one price for the others.
const CAPACITY: usize = 1 << 16;

/// A guess: so many blocks run at once ...
const BLOCKS_AT_ONCE: u64 = 864; // 108 SMs (A100) with 8 blocks each

/// ... for so long, in nanoseconds. Both are round numbers that the first measurement replaces.
const WAVE_NS: u64 = 5_000;

/// A guess at a memset: it starts up for so long ...
const FILL_NS: u64 = 1_500;

/// ... and sets so many bytes in a nanosecond (A100: 1,555 GB/s).
const FILL_BYTES_PER_NS: u64 = 1_500;

/// Every signature of the process.
#[derive(Debug, Default)]
pub struct Book {
    rows: Vec<PriceRow>,
    sms: AtomicU32,
    collectives: AtomicBool, // some function's name is a collective's
    pages: Lock<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    names: HashMap<u64, Box<str>>,
    estimates: HashMap<Signature, &'static Estimate>,
}

impl Book {
    /// An empty book over the operator's price table.
    pub fn new(rows: Vec<PriceRow>) -> Self {
        Self { rows, ..Self::default() }
    }

    /// The GPU has so many SMs: a kernel with fewer blocks leaves room for others.
    pub fn set_sms(&self, sms: u32) {
        self.sms.store(sms, Ordering::Relaxed);
    }

    /// What a kernel of so many blocks holds of the GPU, and of its SMs: blocks spread breadth-first, one on each SM, and if it takes more
    /// of the memory's bandwidth than of the SMs, it holds that (gpu-truths, rule 12). Bandwidth is what the operator says, or none.
    fn holds(&self, name: Option<&str>, blocks: u64) -> (Moments, f64) {
        let sms = self.sms.load(Ordering::Relaxed);
        if sms == 0 {
            return ([1.0; 3], 1.0);
        }
        let on_sms = (blocks as f64 / f64::from(sms)).clamp(0.001, 1.0);
        let part = on_sms.max(self.row(name).map_or(0.0, PriceRow::bandwidth));
        ([part, part * part, part * part * part], on_sms)
    }

    fn row(&self, name: Option<&str>) -> Option<&PriceRow> {
        price::find(&self.rows, name?)
    }

    /// Remembers what a function is called. A handle that was used before (its module is gone) starts afresh, in
    /// place: threads hold its estimates in their caches.
    pub fn name(&self, function: u64, name: &str) {
        if is_collective(name) {
            self.collectives.store(true, Ordering::Relaxed);
        }
        let mut pages = self.pages.lock();
        let before = pages.names.insert(function, name.into());
        if before.is_none_or(|before| &*before == name) {
            return;
        }
        for (signature, estimate) in
            pages.estimates.iter().filter(|(signature, _)| signature.handle == function)
        {
            let (price, told) = self.first_price(Some(name), signature.blocks);
            estimate.restart(price, told);
            let (weight, sms) = self.holds(Some(name), signature.blocks);
            estimate.weigh(weight, sms);
            estimate.set_collective(is_collective(name));
        }
    }

    /// Whether a function is known to be a collective.
    pub fn is_collective(&self, function: u64) -> bool {
        self.pages.lock().is_collective(function)
    }

    /// What a function is called, if it was looked up by name.
    pub fn knows_name(&self, function: u64) -> bool {
        self.pages.lock().names.contains_key(&function)
    }

    /// Whether the process has ever looked up a collective: whether it may be a rank.
    pub fn knows_collectives(&self) -> bool {
        self.collectives.load(Ordering::Relaxed)
    }

    /// The estimate of a kernel launch.
    pub fn kernel(&self, signature: &Signature) -> &'static Estimate {
        let mut pages = self.pages.lock();
        if let Some(known) = pages.estimates.get(signature) {
            return known;
        }
        let name = pages.names.get(&signature.handle).map(|name| &**name);
        let (price, told) = self.first_price(name, signature.blocks);
        let (weight, sms) = self.holds(name, signature.blocks);
        let collective = pages.is_collective(signature.handle);
        let estimate = pages.keep(signature, price, told, collective);
        estimate.weigh(weight, sms);
        estimate
    }

    /// What a launch costs now, if one like it was ever priced.
    pub fn price(&self, signature: &Signature) -> Option<u64> {
        self.pages.lock().estimates.get(signature).map(|estimate| estimate.price().unsigned_abs())
    }

    /// The operator's price, or a guess from the grid; and which of the two.
    fn first_price(&self, name: Option<&str>, blocks: u64) -> (u64, bool) {
        match self.row(name).and_then(|row| row.price(blocks)) {
            Some(price) => (price, true),
            None => (blocks.div_ceil(BLOCKS_AT_ONCE).saturating_mul(WAVE_NS), false),
        }
    }

    /// The estimate of a memset or a copy within the device, of so many bytes as the signature has blocks. Its first price
    /// is that of device memory at work.
    pub fn fill(&self, signature: &Signature) -> &'static Estimate {
        let mut pages = self.pages.lock();
        match pages.estimates.get(signature) {
            Some(known) => known,
            None => {
                let first = FILL_NS.saturating_add(signature.blocks / FILL_BYTES_PER_NS);
                pages.keep(signature, first, false, false)
            }
        }
    }

    /// Sets the first price of a graph: the sum of its nodes, until the graph itself is measured. Branches that run side
    /// by side take less. A graph with a collective in it is one.
    pub fn set_graph(&self, exec: u64, nodes_ns: u64, collective: bool) {
        let signature = Signature::of_graph(exec);
        let mut pages = self.pages.lock();
        match pages.estimates.get(&signature) {
            Some(known) => {
                known.restart(nodes_ns, false);
                known.set_collective(collective);
            }
            None => {
                pages.keep(&signature, nodes_ns, false, collective);
            }
        }
    }

    /// An executable graph was changed, and its nodes cost `after_ns` instead of `before_ns`: what was known of it holds in
    /// proportion, until it is measured anew.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time is never negative; beyond the range of u64 it saturates"
    )]
    pub fn change_graph(&self, exec: u64, before_ns: u64, after_ns: u64) {
        let known = self.graph(exec);
        let part = if before_ns == 0 { 1.0 } else { known.mean() / before_ns as f64 };
        known.change((after_ns as f64 * part) as u64);
    }

    /// Whether an estimate is that of many signatures, beyond those that are told apart.
    pub fn is_beyond(estimate: &Estimate) -> bool {
        std::ptr::eq(estimate, &raw const BEYOND)
    }

    /// The estimate of a graph launch; a graph of which nothing is known costs one wave.
    pub fn graph(&self, exec: u64) -> &'static Estimate {
        let signature = Signature::of_graph(exec);
        let mut pages = self.pages.lock();
        match pages.estimates.get(&signature) {
            Some(known) => known,
            None => pages.keep(&signature, WAVE_NS, false, false),
        }
    }
}

/// The mean of many kernels.
static BEYOND: Estimate = Estimate::guess(WAVE_NS);

impl Pages {
    fn is_collective(&self, function: u64) -> bool {
        self.names.get(&function).is_some_and(|name| is_collective(name))
    }

    /// Estimates are leaked on purpose: threads hold them in their caches without counting, and a signature
    /// stays true for the life of its handle. `CAPACITY` bounds what a process can leak, to a few MiB.
    fn keep(
        &mut self,
        signature: &Signature,
        price_ns: u64,
        told: bool,
        collective: bool,
    ) -> &'static Estimate {
        if self.estimates.len() >= CAPACITY {
            return &BEYOND;
        }
        let first = if told { Estimate::told(price_ns) } else { Estimate::guess(price_ns) };
        first.set_collective(collective);
        let estimate: &'static Estimate = Box::leak(Box::new(first));
        self.estimates.insert(*signature, estimate);
        estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, ns_per_block: f64) -> PriceRow {
        PriceRow { name: name.into(), ns_per_block: Some(ns_per_block), ..PriceRow::default() }
    }

    fn signature(handle: u64, grid: u32) -> Signature {
        Signature::of_kernel(handle, [grid, 1, 1], [128, 1, 1], 0)
    }

    #[test]
    fn a_named_kernel_costs_what_the_operator_says() {
        let book = Book::new(vec![row("add*", 10.0)]);
        book.name(1, "add_f32");
        assert_eq!(book.kernel(&signature(1, 50)).price(), 500);
        assert!(book.kernel(&signature(1, 50)).is_learnt());
    }

    #[test]
    fn a_kernel_holds_the_gpu_by_its_blocks_or_by_the_bandwidth_that_the_operator_tells_of() {
        let told = PriceRow { name: "copy*".into(), bandwidth_percent: Some(80.0), ..PriceRow::default() };
        let book = Book::new(vec![told]);
        book.set_sms(100);
        book.name(1, "copy_f32");
        book.name(2, "add");
        let weight = |handle, grid| book.kernel(&signature(handle, grid)).weight()[0];
        assert_eq!([weight(1, 10), weight(1, 90), weight(2, 10)], [0.8, 0.9, 0.1]);
        assert!(!book.kernel(&signature(1, 10)).is_learnt(), "what it costs nobody told");
        book.name(2, "copy");
        assert_eq!(weight(2, 10), 0.8, "the handle is another kernel's now");
    }

    #[test]
    fn a_collective_is_one_by_its_name_and_no_longer_when_its_handle_is_another_kernels() {
        let book = Book::default();
        book.name(1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
        let estimate = book.kernel(&signature(1, 1));
        assert!(estimate.is_collective() && book.is_collective(1) && book.knows_collectives());
        book.name(1, "add");
        assert!(!estimate.is_collective());
    }

    #[test]
    fn an_unknown_kernel_costs_a_guess_that_grows_with_its_grid() {
        let book = Book::default();
        assert_eq!(book.kernel(&signature(1, 1)).price(), 5_000);
        assert_eq!(book.kernel(&signature(1, 8_640)).price(), 50_000);
    }

    #[test]
    fn a_handle_that_is_reused_for_another_kernel_is_priced_anew() {
        let book = Book::new(vec![row("add", 10.0), row("mul", 20.0)]);
        book.name(1, "add");
        assert_eq!(book.kernel(&signature(1, 1)).price(), 10);
        book.name(1, "mul");
        assert_eq!(book.kernel(&signature(1, 1)).price(), 20);
    }

    #[test]
    fn a_graph_costs_the_sum_of_its_nodes_until_it_is_measured() {
        let book = Book::default();
        book.set_graph(9, 123_000, false);
        assert_eq!(book.graph(9).price(), 123_000);
        book.set_graph(9, 1_000, true);
        assert_eq!(book.graph(9).price(), 1_000, "an updated graph gets a new first price");
        assert!(book.graph(9).is_collective(), "and is a collective once it contains one");
    }

    #[test]
    fn an_updated_graph_costs_what_was_measured_in_proportion_to_its_nodes() {
        let book = Book::default();
        book.set_graph(9, 1_000, false);
        let mut stretch = crate::price::Parts::with_room();
        assert!(stretch.add(book.graph(9), 1));
        stretch.learn(crate::price::Took::exactly(50_000.0));
        let learnt = book.graph(9).price();
        assert!((49_000..=50_000).contains(&learnt), "{learnt}");
        book.change_graph(9, 1_000, 1_500);
        assert!((book.graph(9).price() - learnt * 3 / 2).abs() <= 2);
        assert!(!book.graph(9).is_learnt(), "and it is measured anew");
        book.change_graph(8, 0, 700);
        assert_eq!(book.graph(8).price(), 700);
    }

    #[test]
    fn a_grid_beyond_32_bits_does_not_wrap_to_a_small_price() {
        let huge = Signature::of_kernel(1, [u32::MAX, 65_535, 1], [1, 1, 1], 0);
        assert_eq!(huge.blocks, u64::from(u32::MAX) * 65_535);
    }
}
