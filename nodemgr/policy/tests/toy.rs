//! The policy that docs/writing-a-policy.md writes, as it stands there.

// the toy begins here
use weir_policy::{Beside, Class, Decision, Observation, Policy, Sample, grant};
use weir_protocol::pages::{Gate, Rate};
use weir_protocol::units::{Nanos, SmShare};

/// Fillers run when nobody else has moved for 10 ms.
#[derive(Default)]
struct Toy {
    decisions: Vec<Decision>,
}

/// Longer than any gap between two launches.
const AWAY: Nanos = Nanos::from_millis(10);

impl Policy for Toy {
    fn decide(&mut self, seen: &Observation<'_>) -> &[Decision] {
        let away = |sample: &Sample| sample.class == Class::Filler || sample.idle_for >= AWAY;
        let alone = seen.samples.iter().all(away);
        self.decisions.clear();
        self.decisions.extend(seen.samples.iter().map(|sample| {
            let filler = sample.class == Class::Filler;
            let share = if filler && alone { sample.limit } else { sample.request.max(SmShare::percent(1)) };
            let (tenants, switch) = (seen.samples.len(), seen.switch());
            let beside = Beside { tenants, gives_way: filler, switch };
            let gate = if filler && !alone { Gate::Closed } else { Gate::Open };
            let rate = Rate::from(share.min(sample.limit));
            let grant = grant(rate, sample.request, sample.memory_limit, beside);
            let state = if alone { "OPEN" } else { "BUSY" };
            Decision { grant: weir_protocol::pages::Grant { gate, ..grant }, state }
        }));
        &self.decisions
    }
}
// the toy ends here

use weir_policy::{Mode, Signals, Work};
use weir_protocol::units::Bytes;

fn sample(class: Class, request: u16, idle_ms: u64) -> Sample {
    Sample {
        tenant: 0,
        class,
        request: SmShare::percent(request),
        limit: SmShare::FULL,
        memory_limit: Bytes::gib(1),
        memory_held: Bytes(0),
        outstanding: Nanos(0),
        idle_for: Nanos::from_millis(idle_ms),
        work: Work::default(),
        slo: None,
    }
}

/// State and rate of a filler beside a primary that has been idle for so long.
fn filler_beside(idle_ms: u64) -> (&'static str, Gate, Rate) {
    let samples = [sample(Class::Primary, 60, idle_ms), sample(Class::Filler, 0, 0)];
    let (now, mode, signals) = (Nanos(0), Mode::default(), Signals::default());
    let mut toy = Toy::default();
    let decision = toy.decide(&Observation { now, mode, signals, samples: &samples })[1];
    (decision.state, decision.grant.gate, decision.grant.rate)
}

#[test]
fn the_toy_does_what_the_page_says() {
    assert_eq!(filler_beside(9), ("BUSY", Gate::Closed, Rate::ppm(10_000)));
    assert_eq!(filler_beside(10), ("OPEN", Gate::Open, Rate::FULL));
}

#[test]
fn the_page_shows_the_toy() {
    let (page, code) = (include_str!("../../../docs/writing-a-policy.md"), include_str!("toy.rs"));
    let (begin, end) = ("// the toy begins here\n", "// the toy ends here\n");
    let toy = code.split(begin).nth(1).and_then(|rest| rest.split(end).next()).expect("the marks");
    assert!(page.contains(toy), "the code in docs/writing-a-policy.md is not that of tests/toy.rs");
}
