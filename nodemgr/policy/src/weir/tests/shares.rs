//! How fillers share, and what scales all of them.

use weir_protocol::pages::Rate;
use weir_protocol::units::{Nanos, SmShare, Tokens};

use super::{BETTER, FILLER};
use crate::Sample;
use crate::story::{Story, filler, latency, primary, slo};

#[test]
fn an_online_filler_that_is_late_fills_before_the_others() {
    // papers 2: online and offline fillers; a filler with an SLO is online.
    let online = Sample { slo: slo(200, Some(250)), limit: SmShare::percent(80), ..filler() };
    let mut story = Story::new("weir", &[primary(50), filler(), online]);
    story.run(50, &[FILLER, 2]);
    assert_eq!((story.percent(FILLER), story.percent(2)), (20, 80));
    story.samples[2].slo = slo(200, Some(100));
    story.run(1, &[FILLER, 2]);
    assert_eq!((story.percent(FILLER), story.percent(2)), (50, 50));
}

#[test]
fn debt_never_delays_a_latency_tenant_in_favour_of_a_filler() {
    // gpu-truths, rule 4.
    let mut story = Story::new("weir", &[latency(30), filler()]);
    story.run(100, &[BETTER, FILLER]);
    assert_eq!(story.decision(BETTER).grant.rate, Rate::FULL, "not metered at all");
    let half = Sample { request: SmShare::percent(20), ..filler() };
    let mut story = Story::new("weir", &[latency(30), half]);
    story.run(100, &[BETTER, FILLER]);
    let grant = story.decision(BETTER).grant;
    assert_eq!(grant.rate, Rate::ppm(800_000), "the filler's own guarantee");
    assert_eq!(grant.capacity, Tokens(8_000_000_000), "ten seconds of it may be used at once");
}

#[test]
fn outside_signals_scale_what_all_fillers_have_together() {
    // design 8: power, carbon, price.
    let mut story = Story::new("weir", &[primary(50), filler(), filler()]);
    story.signals.best_effort_permille = 300;
    story.run(50, &[1, 2]);
    assert_eq!((story.percent(1), story.percent(2)), (15, 15));
    story.signals.best_effort_permille = 0;
    story.run(1, &[1, 2]);
    assert_eq!((story.percent(1), story.percent(2)), (1, 1), "the floor stays");
}

#[test]
fn without_betters_fillers_share_the_gpu_as_static_does() {
    // design 8: unused share is lent in proportion to requests.
    let twenty = Sample { request: SmShare::percent(20), ..filler() };
    let mut story = Story::new("weir", &[twenty, filler()]);
    story.run(10, &[0, 1]);
    assert_eq!((story.percent(0), story.percent(1)), (95, 5));
    assert_eq!((story.state(0), story.decision(0).grant.in_flight_cap), ("OPEN", Nanos::from_micros(12_800)));
}
