//! Slices, switches, words: each as it was measured on the card.

use weir_simgpu_model::{
    Completion, ContextId, Device, EventKey, Kernel, Nanos, Noise, Spec, StreamId, StreamKind, Work,
};

use crate::assert_near;

const US: Nanos = 1_000;
const MS: Nanos = 1_000_000;
const SLICE: Nanos = 2_060 * US;
const SWITCH: Nanos = 140 * US;
/// What a word that is as it should be takes of the GPU.
const OPEN: Nanos = 2_270;
/// What a timed event takes of it.
const TIMED: Nanos = 2_080;

/// The card, with kernels that all take exactly their time, and contexts that are made in secret.
pub fn exact() -> Spec {
    Spec { noise: Noise::NONE, births: 0, submit_to_start: 0, ..Spec::h200() }
}

pub fn tenant(device: &mut Device, tag: u64) -> (ContextId, StreamId) {
    let context = device.create_context();
    (context, device.open_stream(context, StreamKind::NonBlocking, 0, tag).unwrap())
}

pub fn full(solo: Nanos) -> Work {
    Work::Kernel(Kernel::full(solo))
}

fn warp(solo: Nanos) -> Work {
    Work::Kernel(Kernel { blocks: 1, ..Kernel::full(solo) })
}

/// When each command of a stream ended.
pub fn ends(device: &mut Device, wanted: u64) -> Vec<Nanos> {
    let done = |completion| match completion {
        Completion::Done { tag, at, .. } if tag == wanted => Some(at),
        _ => None,
    };
    device.drain_completions().filter_map(done).collect()
}

/// A neighbour's long kernel is cut for a guest: until the guest's end.
fn cut(work: Work) -> Nanos {
    let mut device = Device::new(exact(), 0);
    let ((_, long), (_, guest)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, long, 1, work);
    device.submit(MS, guest, 1, full(US));
    device.advance(20 * MS);
    ends(&mut device, 1)[0] - SLICE - US
}

#[test]
fn a_switch_in_mid_kernel_takes_longer_the_more_of_the_card_is_full() {
    assert_eq!(cut(full(10 * MS)), 195 * US);
    assert_near(cut(warp(10 * MS)) as f64, 153.0 * 1e3, 1.0, "one warp");
}

#[test]
fn a_drained_context_yields_at_once_and_its_end_in_a_closed_wait_counts_as_a_drain() {
    for wait in [None, Some(Work::Hold(OPEN))] {
        let mut device = Device::new(exact(), 0);
        let ((_, first), (_, second)) = (tenant(&mut device, 0), tenant(&mut device, 1));
        device.submit(0, first, 1, full(500 * US));
        if let Some(wait) = wait {
            device.submit(0, first, 2, wait);
            device.submit(0, first, 3, full(500 * US));
        }
        device.submit(0, second, 1, full(50 * US));
        device.advance(20 * MS);
        assert_eq!(ends(&mut device, 1), [500 * US + SWITCH + 50 * US]);
    }
}

#[test]
fn a_guest_takes_itself_and_two_switches_from_its_neighbour() {
    let mut device = Device::new(exact(), 0);
    let ((_, first), (_, guest)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, first, 1, warp(10 * MS));
    device.submit(MS, guest, 1, warp(50 * US));
    device.advance(20 * MS);
    let taken = ends(&mut device, 0)[0] - 10 * MS;
    assert_near(taken as f64, 346.0 * 1e3, 2.0, "a guest of 50 us");
}

#[test]
fn a_context_that_rests_while_nobody_wants_the_card_goes_on_with_its_slice() {
    let mut device = Device::new(exact(), 0);
    let ((_, first), (_, second)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, first, 1, full(MS));
    device.submit(1_500 * US, first, 2, full(10 * MS));
    device.submit(1_600 * US, second, 1, full(US));
    device.advance(20 * MS);
    assert_eq!(ends(&mut device, 1), [SLICE + 195 * US + US], "the slice began at 0, not at 1.5 ms");
}

#[test]
fn streams_that_wait_for_words_cost_their_neighbour_nothing_and_start_after_a_bare_switch() {
    let mut device = Device::new(exact(), 0);
    let (_, busy) = tenant(&mut device, 0);
    let (context, waiting) = tenant(&mut device, 1);
    let others = [2, 3].map(|tag| device.open_stream(context, StreamKind::NonBlocking, 0, tag).unwrap());
    for stream in [waiting, others[0], others[1]] {
        device.submit(0, stream, 1, Work::Hold(OPEN));
        device.submit(0, stream, 2, full(10 * US));
    }
    (1..=100).for_each(|nth| assert!(device.submit(0, busy, nth, full(100 * US))));
    device.advance(10 * MS);
    assert_eq!(ends(&mut device, 0).last(), Some(&(10 * MS)), "not a nanosecond is lost");
    device.resume(waiting, 1);
    device.advance(20 * MS);
    assert_eq!(ends(&mut device, 1), [10 * MS + SWITCH + OPEN, 10 * MS + SWITCH + OPEN + 10 * US]);
}

#[test]
fn a_word_that_is_let_go_before_its_stream_comes_there_takes_its_time_in_passing() {
    let mut device = Device::new(exact(), 0);
    let (_, stream) = tenant(&mut device, 0);
    device.submit(0, stream, 1, full(MS));
    device.submit(0, stream, 2, Work::Hold(OPEN));
    device.submit(0, stream, 3, full(MS));
    device.advance(MS / 2);
    device.resume(stream, 2);
    device.advance(9 * MS);
    assert_eq!(ends(&mut device, 0), [MS, MS + OPEN, 2 * MS + OPEN]);
}

#[test]
fn a_timed_event_behind_each_tiny_kernel_slows_their_row_and_an_untimed_one_does_not() {
    let row = |takes| {
        let mut device = Device::new(exact(), 0);
        let (_, stream) = tenant(&mut device, 0);
        for nth in 0..1_000 {
            let event = EventKey { owner: 0, slot: 0 };
            device.submit(0, stream, 2 * nth + 1, full(1_250));
            device.submit(
                0,
                stream,
                2 * nth + 2,
                Work::Record(event, u32::try_from(nth).unwrap() + 1, takes),
            );
        }
        device.advance(10 * MS);
        *ends(&mut device, 0).last().unwrap() as f64 / 1e6
    };
    assert_near(row(TIMED), 3.35, 1.0, "timed");
    assert_near(row(0), 1.25, 1.0, "untimed");
}

#[test]
fn an_event_s_stamp_is_taken_when_its_context_has_the_card() {
    let mut device = Device::new(exact(), 0);
    let ((_, busy), (_, timed)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, busy, 1, full(10 * MS));
    device.submit(MS, timed, 1, Work::Record(EventKey { owner: 0, slot: 0 }, 1, TIMED));
    device.advance(20 * MS);
    let stamp = device.drain_completions().find_map(|completion| match completion {
        Completion::Stamp { at, .. } => Some(at),
        Completion::Done { .. } => None,
    });
    assert_eq!(stamp, Some(SLICE + 195 * US + TIMED), "the wait for a slice does not show between two");
}

#[test]
fn the_making_of_a_context_stalls_a_neighbour_that_runs_and_nobody_else() {
    let spec = Spec { births: 30, ..exact() };
    let mut device = Device::new(spec, 0);
    let (_, busy) = tenant(&mut device, 0);
    device.advance(200 * MS);
    assert_eq!(device.books().busy, 0, "alone it is not felt");
    (1..=4_000).for_each(|nth| assert!(device.submit(200 * MS, busy, nth, full(100 * US))));
    device.create_context();
    device.advance(700 * MS);
    let ends = ends(&mut device, 0);
    let stalls: Vec<_> =
        ends.windows(2).map(|two| two[1] - two[0] - 100 * US).filter(|gap| *gap > 0).collect();
    assert_eq!(stalls.len(), 30);
    assert!(stalls.iter().all(|stall| (300 * US..=1_401 * US).contains(stall)), "{stalls:?}");
    assert_near(stalls.iter().sum::<u64>() as f64, 11.0 * 1e6, 10.0, "in sum");
}
