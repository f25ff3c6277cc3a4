//! A tick allocates nothing while the number of tenants stands still: 64 tenants on 8 GPUs are 512,000 rows a second.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use weir_policy::{Class, Counted, Mode, Observation, POLICIES, Sample, Signals, Slo, Work};
use weir_protocol::units::{Bytes, Nanos, SmShare, Tokens};

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: `System` does the work; a thread counts in a word of its own, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Eight tenants of all classes that work, pause and tell latencies, each in its own way.
fn samples(at_ms: u64) -> Vec<Sample> {
    let class = |n| [Class::Latency, Class::Primary, Class::Filler, Class::Filler][n % 4];
    let sample = |n: usize| {
        let phase = (at_ms + 7 * n as u64) % 40;
        let idle = phase.saturating_sub(25);
        let target = Nanos::from_millis(200);
        let recent = Some(Nanos::from_millis(150 + at_ms / 10 % 70));
        let counted = Some(Counted { requests: at_ms, late: at_ms / 20 });
        Sample {
            tenant: n as u64,
            class: class(n),
            request: SmShare::percent(10),
            limit: SmShare::FULL,
            memory_limit: Bytes::gib(1),
            memory_held: Bytes(0),
            outstanding: Nanos(u64::from(phase < 25) * 1_000_000),
            idle_for: Nanos::from_millis(idle),
            work: Work { charged: Tokens(at_ms.cast_signed() * 100_000), ..Work::default() },
            slo: (n.is_multiple_of(2)).then_some(Slo { quantile_permille: 950, target, recent, counted }),
        }
    };
    (0..8).map(sample).collect()
}

#[test]
fn no_policy_allocates_while_the_number_of_tenants_stands_still() {
    let ticks: Vec<_> = (0..2_000).map(samples).collect();
    for row in POLICIES {
        let mut policy = (row.build)();
        let mut before = 0;
        for (at, samples) in ticks.iter().enumerate() {
            before = if at == 1 { ALLOCATED.get() } else { before };
            let now = Nanos::from_millis(at as u64);
            let (mode, signals) = (Mode::default(), Signals::default());
            let decisions = policy.decide(&Observation { now, mode, signals, samples });
            assert_eq!(decisions.len(), samples.len());
        }
        assert_eq!(ALLOCATED.get() - before, 0, "{}", row.name);
    }
    assert!(ALLOCATED.get() > 2_000, "the test's own were counted");
}
