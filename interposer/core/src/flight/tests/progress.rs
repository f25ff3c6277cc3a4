//! What is known to be done: marks, words, synchronize calls, streams that come and go.

use super::*;

#[test]
fn a_mark_that_was_reached_says_that_the_work_before_it_is_done() {
    let mut process = process();
    let hundred = Due { work: Nanos(100), time: Nanos(0), spare: 0 };
    process.submit(STREAM, 100);
    process.gpu.ends.insert(STREAM, 200);
    assert!(process.flight.mark(STREAM, hundred, &mut process.gpu));
    process.submit(STREAM, 50);
    assert!(!process.flight.mark(STREAM, hundred, &mut process.gpu), "50 ns are not worth a mark");
    process.harvest();
    assert_eq!(process.in_flight(), 150);
    process.wait(200);
    assert_eq!(process.in_flight(), 50);
    process.flight.mark_all(&mut process.gpu);
    process.gpu.refuses = true;
    process.flight.mark_all(&mut process.gpu);
    process.harvest();
    assert_eq!(process.in_flight(), 0, "all work had its mark already");
}

#[test]
fn what_a_program_waits_for_gets_its_mark_on_each_stream_where_one_is_due() {
    let due = [
        Due { work: Nanos(1_000), time: Nanos(0), spare: 0 },
        Due { work: Nanos(1), time: Nanos(500), spare: 0 },
    ];
    let mut process = process();
    let mut marked = |work: [u64; 2], later: u64, stream: Option<u64>, by: u64| {
        process.gpu.now += later;
        process.submit(STREAM, work[0]);
        process.submit(OTHER, work[1]);
        let before = process.gpu.records;
        process.flight.mark_ends(stream, by, &due, &mut process.gpu);
        process.gpu.records - before
    };
    assert_eq!(marked([2_000, 3_000], 0, Some(OTHER), THREAD), 1, "the one that is waited for");
    assert_eq!(marked([10, 10], 1, None, THREAD), 1, "2,010 ns on one, 10 on the other");
    assert_eq!(marked([10, 0], 600, None, THREAD), 2, "little, but the last marks are old");
    assert_eq!(marked([0, 0], 600, None, THREAD), 0, "all have theirs");
    assert_eq!(marked([5_000, 5_000], 600, None, THREAD + 1), 0, "another thread has launched it");
}

#[test]
fn a_rest_has_its_mark_where_other_streams_are_at_work_and_only_there() {
    let due = [Due { work: Nanos::from_millis(1), time: Nanos(0), spare: 0 }];
    let mut process = process();
    let mut rest = |here: u64, elsewhere: u64| {
        process.mark(STREAM);
        process.submit(STREAM, here);
        process.submit(OTHER, elsewhere);
        let (before, wants) = (process.gpu.records, process.flight.wants_end(STREAM));
        process.flight.mark_ends(Some(STREAM), THREAD, &due, &mut process.gpu);
        let marks = process.gpu.records - before;
        process.drain();
        (marks, wants)
    };
    assert_eq!(rest(REST.0, 0), (0, false), "its next mark tells as much");
    assert_eq!(rest(REST.0, 1_000), (1, true));
    assert_eq!(rest(REST.0 - 1, 1_000), (0, false), "so little is not worth one");
}

#[test]
fn marks_of_one_stream_keep_their_distance_in_time() {
    let mut process = process();
    let rare = Due { work: Nanos(1), time: Nanos(1_000), spare: 0 };
    process.submit(STREAM, 100);
    assert!(process.flight.mark(STREAM, rare, &mut process.gpu));
    process.submit(STREAM, 100);
    assert!(!process.flight.mark(STREAM, rare, &mut process.gpu));
    process.gpu.now += 1_000;
    assert!(process.flight.mark(STREAM, rare, &mut process.gpu));
}

#[test]
fn words_that_the_gpu_writes_say_how_far_it_has_come() {
    let mut process = process();
    let host: &'static WordPage = Box::leak(Box::new(WordPage::default()));
    let hundred = Nanos(100);
    process.submit(STREAM, 100);
    assert!(!process.flight.word(STREAM, hundred, &mut process.gpu), "there are none yet");
    process.flight.set_words(Words::new(host, 0));
    for (stream, end) in [(STREAM, 500), (OTHER, 300)] {
        process.gpu.ends.insert(stream, end);
        process.submit(stream, 100);
        assert!(process.flight.word(stream, hundred, &mut process.gpu));
        process.submit(stream, 20);
        assert!(!process.flight.word(stream, hundred, &mut process.gpu), "20 ns are not worth a word");
    }
    for (now, in_flight) in [(299, 340), (300, 240), (500, 40)] {
        for (_, address, value) in process.gpu.words.iter().filter(|word| word.0 <= now) {
            host.reached[usize::try_from(*address).unwrap() / 8].store(*value, Ordering::Release);
        }
        process.harvest();
        assert_eq!(process.in_flight(), in_flight, "at {now}");
    }
}

#[test]
fn a_slow_stream_does_not_hide_a_drained_one() {
    let mut process = process();
    process.gpu.ends.insert(STREAM, 9_000);
    for stream in [STREAM, OTHER] {
        process.submit(stream, 100);
        assert!(process.flight.mark(stream, NOW, &mut process.gpu));
    }
    process.wait(10);
    assert_eq!(process.in_flight(), 100);
    assert!(process.flight.is_busy(STREAM) && !process.flight.is_busy(OTHER));
}

#[test]
fn the_applications_own_synchronize_drains_what_was_submitted_before_it() {
    let mut process = process();
    process.submit(STREAM, 100);
    let before = process.flight.snapshot(None);
    process.submit(STREAM, 30);
    process.flight.drained(&before, &process.slot, Nanos(process.gpu.now));
    assert_eq!(process.in_flight(), 30);
    process.flight.drained(&before, &process.slot, Nanos(process.gpu.now));
    assert_eq!(process.in_flight(), 30, "the same news twice counts once");
}

#[test]
fn an_event_of_the_applications_tells_what_lay_before_its_record() {
    let mut process = process();
    process.submit(STREAM, 100);
    process.flight.recorded(0xe0, STREAM);
    process.submit(STREAM, 30);
    process.flight.recorded(0xf0, STREAM + 1); // of a stream that was given nothing
    for event in [0xf0, 0xd0, 0xe0, 0xe0] {
        process.flight.event_reached(event, &process.slot);
    }
    assert_eq!(process.in_flight(), 30);
}

#[test]
fn without_spare_events_work_goes_unmarked_and_a_failed_record_gives_its_event_back() {
    let mut process = process();
    let put = |process: &mut Process| {
        process.submit(STREAM, 100);
        process.flight.mark(STREAM, NOW, &mut process.gpu)
    };
    assert_eq!((0..20).filter(|_| put(&mut process)).count(), 8);
    process.harvest();
    assert_eq!(process.in_flight(), 1_200);
    process.gpu.refuses = true;
    assert!(!put(&mut process));
    process.gpu.refuses = false;
    assert!(put(&mut process));
    process.flight.reset(&process.slot);
    assert_eq!(process.in_flight(), 0);
    assert!(!put(&mut process), "an event of a context that is gone");
}

#[test]
fn a_stream_whose_queue_may_be_full_gets_no_mark_from_elsewhere() {
    let mut process = process();
    process.gpu.ends.insert(STREAM, 2_000_000);
    process.flight.submitted(STREAM, FULL, 2_000_000, &process.slot);
    process.submit(OTHER, 10);
    process.flight.mark_all(&mut process.gpu);
    assert_eq!(process.gpu.events.len(), 1, "the other stream's queue is short");
    process.gpu.here = STREAM;
    assert!(process.mark(STREAM), "right behind a launch there, which would have waited just as well");
    process.wait(2_000_000);
    process.submit(STREAM, 2_000_000);
    process.gpu.events.clear();
    process.flight.mark_all(&mut process.gpu);
    assert_eq!(process.gpu.events.len(), 1, "the mark that was reached says that the queue is short");
}

#[test]
fn a_stream_that_marks_passed_over_gets_one_once_it_is_due() {
    let mut process = process();
    let due = Due { work: Nanos(1_000), time: Nanos(500), spare: 0 };
    let marks = |process: &mut Process, by| {
        let before = process.gpu.events.len();
        process.flight.mark_overdue(by, due, &mut process.gpu);
        process.gpu.events.len() - before
    };
    [STREAM, OTHER].into_iter().for_each(|stream| process.submit(stream, 999));
    assert_eq!(marks(&mut process, THREAD), 0, "too little work");
    [STREAM, OTHER].into_iter().for_each(|stream| process.submit(stream, 1));
    assert_eq!(marks(&mut process, THREAD + 1), 0, "another thread feeds them");
    assert_eq!(marks(&mut process, THREAD), 2);
    process.submit(STREAM, 5_000);
    assert_eq!(marks(&mut process, THREAD), 0, "its last one is young");
    process.gpu.now += 500;
    assert_eq!(marks(&mut process, THREAD), 1);
}

#[test]
fn nothing_is_put_into_a_stream_that_is_gone() {
    let mut process = process();
    process.submit(STREAM, 100);
    process.flight.stream_gone(STREAM, &process.slot);
    assert_eq!(process.in_flight(), 0);
    process.submit(STREAM, 100); // launched before, booked only now
    assert_eq!(process.in_flight(), 0);
    process.flight.mark_all(&mut process.gpu); // panics at a mark in a destroyed stream
}

#[test]
fn streams_whose_handles_are_alike_have_books_of_their_own() {
    let mut process = process();
    let alike: Vec<u64> = (0..PROBES as u64).map(|n| STREAM + n * 0x11_0000).collect();
    for stream in &alike {
        process.flight.opens(*stream, Place(*stream), THREAD);
        process.submit(*stream, 100);
    }
    let before = process.flight.snapshot(Some(alike[1]));
    process.flight.drained(&before, &process.slot, Nanos(process.gpu.now));
    assert_eq!(process.in_flight(), 100 * (PROBES as u64 - 1));
    assert!(process.flight.is_busy(alike[0]) && !process.flight.is_busy(alike[1]));
}
