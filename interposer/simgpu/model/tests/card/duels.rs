//! Pairs of programs under the driver's own slices: what they got on the card. Their parameters are from what each got
//! alone; none is fitted to a pair.

use crate::assert_near;
use crate::host::{Program, run};
use crate::programs::{backlogged, bigtrain, bursty, decode, flood, replay, server, train, waits};

/// Programs that the GPU bounds, and how far they may be off, percent.
const GPU_BOUND: f64 = 10.0;
/// Programs that their hosts bound: these vary by as much between two runs on the card.
const HOST_BOUND: f64 = 25.0;
/// The median of a few hundred requests, of which there were no more on the card.
const MEDIAN: f64 = 15.0;
/// How long each runs, s.
const SECONDS: f64 = 4.0;
/// And where a hundredth of the requests is looked at, s.
const LONG: f64 = 60.0;

#[track_caller]
fn pair(programs: [Box<dyn Program>; 2], measured: [f64; 2], percent: f64) {
    let got = run(programs, SECONDS).map(|got| got.per_second());
    for (place, measured) in measured.into_iter().enumerate() {
        assert_near(got[place], measured, percent, &format!("the {place}th of {got:?}"));
    }
}

#[track_caller]
fn alone(program: Box<dyn Program>, measured: f64, percent: f64) {
    let [got] = run([program], SECONDS);
    assert_near(got.per_second(), measured, percent, "alone");
}

#[test]
fn each_alone_gets_what_it_got_alone() {
    alone(flood(), 609.0, GPU_BOUND);
    alone(bigtrain(), 34.0, GPU_BOUND);
    alone(replay(), 3_430.0, GPU_BOUND);
    alone(bursty(), 53.6, GPU_BOUND);
    alone(waits(), 3_179.0, GPU_BOUND);
    alone(train(), 57.0, GPU_BOUND);
    alone(decode(), 860.0, HOST_BOUND);
}

#[test]
fn two_that_the_gpu_bounds_share_it_by_slices() {
    pair([flood(), flood()], [282.0, 282.0], GPU_BOUND);
    pair([bigtrain(), bigtrain()], [15.5, 15.5], GPU_BOUND);
    pair([replay(), replay()], [1_556.0, 1_557.0], GPU_BOUND);
    pair([backlogged(), backlogged()], [4_450.0, 4_450.0], GPU_BOUND);
}

#[test]
fn who_waits_for_each_unit_gets_little_beside_the_backlogged() {
    pair([waits(), backlogged()], [376.0, 7_800.0], GPU_BOUND);
    pair([bursty(), flood()], [32.0, 375.0], GPU_BOUND);
}

#[test]
fn those_that_their_hosts_bound_get_what_they_got() {
    pair([train(), train()], [44.0, 44.0], HOST_BOUND);
    pair([decode(), decode()], [870.0, 835.0], HOST_BOUND);
    pair([decode(), flood()], [871.0, 409.0], HOST_BOUND);
}

#[test]
fn a_server_beside_work_is_late_by_slices() {
    for (beside, filler, [p50, p99]) in [(flood(), 527.0, [3.0, 11.5]), (bigtrain(), 28.6, [2.9, 11.8])] {
        let [server, other] = run([server(), beside], LONG);
        assert_near(other.per_second(), filler, GPU_BOUND, "who is beside it");
        let late = server.late_ms();
        assert_near(late[0], p50, MEDIAN, &format!("p50 of {late:?}"));
        assert_near(late[1], p99, HOST_BOUND, &format!("p99 of {late:?}"));
    }
}
