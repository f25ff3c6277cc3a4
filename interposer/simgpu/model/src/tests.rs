//! Stories of the device, in virtual time.

use proptest::prelude::*;

use crate::{
    Completion, ContextId, Device, Engine, EventKey, Kernel, Mode, Nanos, Spec, StreamId, StreamKind, Work,
};

const MS: Nanos = 1_000_000;
const EVENT: EventKey = EventKey { owner: 1, slot: 2 };

fn sliced() -> Device {
    Device::new(Spec::default(), 0)
}

fn mps() -> Device {
    Device::new(Spec { mode: Mode::Mps, ..Spec::default() }, 0)
}

/// A context with one stream of this tag.
fn tenant(device: &mut Device, tag: u64) -> (ContextId, StreamId) {
    let context = device.create_context();
    (context, device.open_stream(context, StreamKind::Blocking, 0, tag).unwrap())
}

fn full(solo: Nanos) -> Work {
    Work::Kernel(Kernel::full(solo))
}

fn spinner() -> Work {
    Work::Kernel(Kernel { spins: true, ..Kernel::full(0) })
}

/// When each command of a tag ended.
fn ends(device: &mut Device, wanted: u64) -> Vec<Nanos> {
    let done = |completion| match completion {
        Completion::Done { tag, at, .. } if tag == wanted => Some(at),
        _ => None,
    };
    device.drain_completions().filter_map(done).collect()
}

#[test]
fn two_contexts_of_equal_backlog_get_half_each_less_the_switches() {
    let mut device = sliced();
    let tenants = [tenant(&mut device, 0), tenant(&mut device, 1)];
    for sequence in 1..=1_000 {
        for (_, stream) in tenants {
            device.submit(0, stream, sequence, full(MS));
        }
    }
    device.advance(1_050 * MS);
    let used = tenants.map(|(context, _)| device.context_books(context).unwrap().true_use);
    assert_eq!(used, [500 * MS, 500 * MS]);
    // A switch of 0.1 ms follows each slice of 2 ms: 0.1 / 2.1 of the time is lost.
    assert_eq!(device.books().switch, 50 * MS);
    assert_eq!(device.books().idle, 0);
}

#[test]
fn a_kernel_runs_once_also_when_another_arrives_at_the_moment_it_ends() {
    let mut device = sliced();
    let (context, stream) = tenant(&mut device, 0);
    const KERNEL: Nanos = 5_000;
    let kernels = 1_000;
    for sequence in 1..=kernels {
        device.submit(sequence * KERNEL / 2, stream, sequence, full(KERNEL)); // every other one at an end
    }
    device.advance(kernels * 2 * KERNEL);
    assert_eq!(device.context_books(context).unwrap().true_use, kernels * KERNEL);
    assert_eq!(device.context_books(context).unwrap().launches, kernels);
}

#[test]
fn a_drained_context_yields_early() {
    let mut device = sliced();
    let ((_, first), (_, second)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, first, 1, full(MS / 2));
    device.submit(0, second, 1, full(MS));
    device.advance(10 * MS);
    assert_eq!(ends(&mut device, 1), [MS / 2 + MS / 10 + MS], "after half a slice and one switch");
}

#[test]
fn a_context_whose_last_kernel_ends_with_its_slice_has_no_further_one() {
    let mut device = sliced();
    let ((_, first), (_, second)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, first, 1, full(2 * MS));
    device.submit(0, second, 1, full(5 * MS));
    device.advance(10 * MS);
    assert_eq!(ends(&mut device, 1), [2 * MS + MS / 10 + 5 * MS], "nothing lies in between");
    assert_eq!(device.books().switch, MS / 10);
}

/// What a filler has queued when a better one begins: 300 us and a unit (gpu-truths, rule 10; docs/time.md, silence).
#[test]
fn what_is_queued_at_an_arrival_runs_to_its_end_or_is_cut_by_a_slice_and_two_switches() {
    const UNIT: Nanos = MS / 10;
    const QUEUED: Nanos = 4 * UNIT;
    let silent = |arrival: Nanos| {
        let mut device = sliced();
        let ((_, filler), (_, better)) = (tenant(&mut device, 0), tenant(&mut device, 1));
        for sequence in 1..=(arrival + QUEUED) / UNIT {
            device.submit(0, filler, sequence, full(UNIT));
        }
        device.submit(arrival, better, 1, full(3 * MS));
        device.advance(20 * MS);
        ends(&mut device, 0).last().unwrap() - arrival
    };
    assert_eq!(silent(MS), QUEUED, "the slice outlasts the queue");
    assert_eq!(silent(2 * MS - QUEUED / 2), QUEUED + 2 * MS + 2 * MS / 10, "it ends first");
}

#[test]
fn a_new_arrival_waits_for_the_rest_of_the_slice() {
    let mut device = sliced();
    let ((_, first), (_, second)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, first, 1, full(10 * MS));
    device.submit(MS, second, 1, full(1_000));
    device.advance(20 * MS);
    assert_eq!(ends(&mut device, 1), [2 * MS + MS / 10 + 1_000]);
}

#[test]
fn a_kernel_is_preempted_in_its_middle_and_goes_on() {
    let mut device = sliced();
    let ((context, first), (_, second)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, first, 1, full(3 * MS));
    device.submit(MS, second, 1, full(MS));
    device.advance(20 * MS);
    assert_eq!(
        ends(&mut device, 0),
        [2 * MS + MS + MS + 2 * MS / 10],
        "two switches and the other's kernel later"
    );
    assert_eq!(device.context_books(context).unwrap().true_use, 3 * MS);
}

#[test]
fn two_kernels_of_half_the_device_overlap_under_mps() {
    let mut device = mps();
    let tenants = [tenant(&mut device, 0), tenant(&mut device, 1)];
    for (_, stream) in tenants {
        device.submit(0, stream, 1, Work::Kernel(Kernel { blocks: 54, ..Kernel::full(MS) }));
    }
    device.advance(10 * MS);
    assert_eq!(device.books().busy, MS, "both at once");
    let used = tenants.map(|(context, _)| device.context_books(context).unwrap().true_use);
    assert_eq!(used, [MS / 2, MS / 2]);
    let alone = tenants.map(|(context, _)| device.context_books(context).unwrap().alone);
    assert_eq!(alone, [MS, MS], "neither is slowed down");
}

#[test]
fn two_kernels_of_all_of_the_device_slow_each_other_down_under_mps() {
    let mut device = mps();
    let tenants = [tenant(&mut device, 0), tenant(&mut device, 1)];
    for (_, stream) in tenants {
        device.submit(0, stream, 1, full(MS));
    }
    device.advance(10 * MS);
    assert_eq!(device.books().busy, 2 * MS);
    let alone = tenants.map(|(context, _)| device.context_books(context).unwrap().alone);
    assert!(alone.iter().all(|alone| alone.abs_diff(MS) <= 1), "what each takes by itself: {alone:?}");
}

#[test]
fn two_kernels_that_want_all_the_bandwidth_take_twice_as_long() {
    let mut device = mps();
    for tag in 0..2 {
        let (_, stream) = tenant(&mut device, tag);
        let kernel = Kernel { blocks: 10, bandwidth_permille: 1000, ..Kernel::full(MS) };
        device.submit(0, stream, 1, Work::Kernel(kernel));
    }
    device.advance(10 * MS);
    assert_eq!(ends(&mut device, 0), [2 * MS]);
}

#[test]
fn a_spinning_kernel_is_busy_until_resumed_but_a_waiting_stream_is_not() {
    let mut device = sliced();
    let (_, stream) = tenant(&mut device, 0);
    device.submit(0, stream, 1, spinner());
    device.advance(5 * MS);
    device.resume(stream, 1);
    device.submit(5 * MS, stream, 2, Work::Hold(0));
    device.advance(9 * MS);
    assert_eq!(device.books().busy, 5 * MS + 1);
    device.resume(stream, 2);
    assert_eq!(ends(&mut device, 0), [5 * MS + 1, 9 * MS]);
}

#[test]
fn a_spinner_loses_its_slice_and_sees_its_flag_in_the_next() {
    let mut device = sliced();
    let ((_, spinning), (_, other)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, spinning, 1, spinner());
    device.submit(0, other, 1, full(MS));
    device.advance(2 * MS + MS / 2);
    device.resume(spinning, 1);
    device.advance(20 * MS);
    assert_eq!(ends(&mut device, 0), [3 * MS + 2 * MS / 10 + 1]);
}

#[test]
fn an_event_on_an_idle_stream_is_stamped_before_the_next_kernel_is_submitted() {
    let mut device = sliced();
    let (_, stream) = tenant(&mut device, 0);
    device.submit(100, stream, 1, Work::Record(EVENT, 1, 0));
    device.submit(5_000, stream, 2, full(1_000));
    device.submit(5_000, stream, 3, Work::Record(EVENT, 2, 0));
    device.advance(MS);
    let stamps: Vec<_> =
        device.drain_completions().filter(|c| matches!(c, Completion::Stamp { .. })).collect();
    let stamp = |record, at| Completion::Stamp { event: EVENT, record, at };
    assert_eq!(stamps, [stamp(1, 100), stamp(2, 6_000)]);
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let mut device = sliced();
    let (context, first) = tenant(&mut device, 0);
    let second = device.open_stream(context, StreamKind::NonBlocking, 0, 1).unwrap();
    device.submit(0, second, 1, Work::Wait(EVENT, 1));
    device.submit(0, second, 2, full(1_000));
    device.submit(0, first, 1, full(MS));
    device.submit(0, first, 2, Work::Record(EVENT, 1, 0));
    device.advance(10 * MS);
    assert_eq!(ends(&mut device, 1), [MS, MS + 1_000]);
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let mut device = sliced();
    let (context, blocking) = tenant(&mut device, 0);
    let legacy = device.open_stream(context, StreamKind::Legacy, 0, 1).unwrap();
    let free = device.open_stream(context, StreamKind::NonBlocking, 0, 2).unwrap();
    device.submit(0, blocking, 1, Work::Hold(0));
    device.submit(0, legacy, 1, full(MS));
    device.submit(0, blocking, 2, Work::Nothing);
    device.submit(0, free, 1, Work::Nothing);
    device.advance(MS);
    assert_eq!(ends(&mut device, 2), [0], "a non-blocking stream takes no notice");
    device.resume(blocking, 1);
    device.advance(3 * MS);
    let order: Vec<_> = device.drain_completions().collect();
    let done = |tag, sequence, at| Completion::Done { tag, sequence, at };
    assert_eq!(order, [done(0, 1, MS), done(1, 1, 2 * MS), done(0, 2, 2 * MS)]);
}

#[test]
fn an_urgent_stream_takes_the_sms_from_the_others() {
    let mut device = sliced();
    let (context, normal) = tenant(&mut device, 0);
    let urgent = device.open_stream(context, StreamKind::NonBlocking, -5, 1).unwrap();
    device.submit(0, normal, 1, full(MS));
    device.submit(0, urgent, 1, full(MS));
    device.advance(MS + 1_000);
    assert_eq!(ends(&mut device, 1), [MS]);
}

#[test]
fn copies_run_beside_the_slices_of_others() {
    let mut device = sliced();
    let ((_, computing), (_, copying)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, computing, 1, full(50 * MS));
    device.submit(0, copying, 1, Work::Copy(Engine::Upload, 25_000_000));
    device.advance(2 * MS);
    assert_eq!(ends(&mut device, 1), [MS + 1_500]);
    assert_eq!(device.books().switch, 0);
}

#[test]
fn a_context_that_ends_in_its_turn_gives_it_to_the_next() {
    let mut device = sliced();
    let ((gone, first), (_, second)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, first, 1, spinner());
    device.submit(0, second, 1, full(MS));
    device.advance(MS);
    device.destroy_context(gone);
    device.advance(10 * MS);
    assert_eq!(ends(&mut device, 1), [2 * MS + MS / 10]);
    assert_eq!(device.next_event(), None);
}

#[test]
fn a_kernel_ends_no_earlier_than_was_foretold() {
    let mut device = sliced();
    let (_, stream) = tenant(&mut device, 0);
    (1..=10).for_each(|sequence| assert!(device.submit(0, stream, sequence, full(1_000))));
    device.advance(2_500);
    assert_eq!(device.earliest(stream, 10), 10_000);
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        8 => (1u64..3_000_000, 1u32..300, 0u32..1000).prop_map(|(solo, blocks, bandwidth_permille)| {
            Work::Kernel(Kernel { solo, blocks, bandwidth_permille, spins: false })
        }),
        1 => Just(spinner()),
        1 => (0u64..3_000).prop_map(Work::Hold),
        1 => (0u32..4, 1u32..3, 0u64..3_000).prop_map(|(slot, record, takes)| {
            Work::Record(EventKey { owner: 0, slot }, record, takes)
        }),
        1 => (0u64..3_000).prop_map(Work::Mark),
        1 => (0u32..4, 1u32..3).prop_map(|(slot, record)| Work::Wait(EventKey { owner: 0, slot }, record)),
        1 => (1u64..10_000_000).prop_map(|bytes| Work::Copy(Engine::Download, bytes)),
        1 => (1u64..10_000_000).prop_map(Work::Memory),
    ]
}

proptest! {
    #[test]
    fn every_nanosecond_stands_in_exactly_one_account(
        shared: bool,
        program in prop::collection::vec((0usize..9, work(), 0u64..2_000_000, 0u8..20), 1..80),
    ) {
        let mut device = if shared { mps() } else { sliced() };
        let mut contexts = Vec::new();
        let mut streams = Vec::new();
        for kind in [StreamKind::Legacy, StreamKind::Blocking, StreamKind::NonBlocking].repeat(3) {
            if kind == StreamKind::Legacy {
                contexts.push(device.create_context());
            }
            let owner = *contexts.last().unwrap();
            streams.push(device.open_stream(owner, kind, 0, streams.len() as u64).unwrap());
        }
        let (mut now, mut ended) = (0, 0);
        for (step, (place, work, pause, chance)) in program.into_iter().enumerate() {
            device.submit(now, streams[place], step as u64 + 1, work);
            now += pause;
            device.advance(now);
            if chance == 0 {
                device.resume(streams[place], step as u64 + 1);
            }
            if chance == 1 && let Some(context) = contexts.pop() {
                ended += device.context_books(context).unwrap().true_use;
                device.destroy_context(context);
            }
            let books = device.books();
            prop_assert_eq!(books.busy + books.switch + books.idle, now);
            let used = contexts.iter().map(|context| device.context_books(*context).unwrap().true_use);
            prop_assert_eq!(used.sum::<u64>() + ended, books.busy);
        }
    }
}

#[test]
fn time_passes_until_something_is_done_and_no_further() {
    let mut device = sliced();
    let (_, stream) = tenant(&mut device, 7);
    (1..=2).for_each(|sequence| assert!(device.submit(0, stream, sequence, full(MS))));
    let mut done = Vec::new();
    for (reached, ended) in [(MS, vec![MS]), (2 * MS, vec![2 * MS]), (9 * MS, vec![])] {
        assert_eq!(device.advance_until_done(9 * MS), reached);
        device.swap_completions(&mut done);
        let at = done.drain(..).map(|completion| match completion {
            Completion::Done { at, .. } | Completion::Stamp { at, .. } => at,
        });
        assert_eq!(at.collect::<Vec<_>>(), ended);
    }
    assert_eq!(device.last_event(), 2 * MS);
}

#[test]
fn a_command_that_arrives_behind_another_is_no_event_and_is_there_when_its_turn_comes() {
    let mut device = Device::new(Spec { submit_to_start: 5_000, ..Spec::default() }, 0);
    let (_, stream) = tenant(&mut device, 7);
    device.submit(0, stream, 1, spinner());
    device.submit(1_000, stream, 2, full(MS));
    assert_eq!(device.next_event(), Some(5_000));
    device.advance(5_000);
    assert_eq!(device.next_event(), Some(5_000 + 2 * MS), "the end of the slice");
    device.advance(7_000);
    device.resume(stream, 1);
    device.advance(2 * MS);
    assert_eq!(ends(&mut device, 7), [7_001, 7_001 + MS]);
}
