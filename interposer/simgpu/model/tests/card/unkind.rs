//! What other cards and drivers do.

use weir_simgpu_model::{Device, Nanos, Spec, StreamKind, Work};

use crate::physics::{ends, exact, full, tenant};

const MS: Nanos = 1_000_000;

#[test]
fn without_yielding_a_drained_context_keeps_its_slice_and_no_longer() {
    let mut device = Device::new(Spec { yields_drained: false, ..exact() }, 0);
    let ((_, first), (_, second)) = (tenant(&mut device, 0), tenant(&mut device, 1));
    device.submit(0, first, 1, full(MS));
    device.submit(0, second, 1, full(MS));
    device.advance(20 * MS);
    assert_eq!(ends(&mut device, 1), [2_060_000 + 140_000 + MS]);
    assert_eq!(device.next_event(), None, "and then nothing more happens");
}

#[test]
fn a_stream_that_is_held_holds_up_what_sharers_of_its_channel_were_given_after_it_until_it_goes_on() {
    for (channel_streams, held) in [(1, false), (2, true)] {
        let mut device = Device::new(Spec { channel_streams, ..exact() }, 0);
        let context = device.create_context();
        let mut open = |tag| device.open_stream(context, StreamKind::NonBlocking, 0, tag).unwrap();
        let [waiting, sharer, apart] = [0, 1, 2].map(&mut open);
        device.submit(0, sharer, 1, full(MS));
        device.submit(0, waiting, 1, Work::Hold(0));
        device.submit(1, sharer, 2, full(MS));
        device.submit(1, apart, 1, full(1));
        device.advance(10 * MS);
        let done: Vec<_> = device.drain_completions().collect();
        assert_eq!(done.len(), if held { 2 } else { 3 }, "what came before, and who is apart, goes on");
        device.resume(waiting, 1);
        device.advance(20 * MS);
        assert_eq!(ends(&mut device, 1).len(), usize::from(held));
    }
}
