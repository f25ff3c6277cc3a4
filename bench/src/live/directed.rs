//! Programs for each way in which a gate can deadlock (gpu-truths, rule 8), two for what must not wait at all, and two for
//! marks that would join streams.

use super::generate::LONG;
use super::program::{Counts, Kind, Op, Program, Reach, Stream};

/// A short kernel.
const SHORT: usize = 2;

/// One of half a millisecond.
const HALF: usize = 3;

/// How many there are; they have the first seeds.
pub const COUNT: u64 = 13;

/// Work that puts the tenant into debt: what follows is held back at the gate.
const DEBT: [Op; 5] = [
    Op::Launch { stream: 1, kernel: LONG },
    Op::Launch { stream: 1, kernel: LONG },
    Op::Launch { stream: 1, kernel: LONG },
    Op::SyncStream { stream: 1 },
    Op::Launch { stream: 1, kernel: SHORT },
];

/// The program with this number, of [`COUNT`].
pub fn program(number: u64) -> Program {
    let (first, second) = deeds(number);
    // The debt first: it is the first thread's work that must be waiting when the second one comes to the gate. Where marks
    // join streams it comes last, since nothing that is held back goes without one.
    let joins = matches!(number, 8 | 9);
    let second = if joins { [second, DEBT.to_vec()].concat() } else { [DEBT.to_vec(), second].concat() };
    let owned = |thread: usize| move |op: Op| (thread, op);
    let steps = first.into_iter().map(owned(0)).chain(second.into_iter().map(owned(1))).collect();
    let stream = |owner| Stream { kind: Kind::NonBlocking, owner };
    let (mut first_stream, blocking) = (stream(0), Stream { kind: Kind::Blocking, owner: 0 });
    if joins {
        first_stream.kind = Kind::Legacy;
    }
    Program {
        seed: number,
        streams: vec![first_stream, stream(1), stream(1), blocking],
        reach: Reach::ThreadLocal,
        steps,
        counts: Counts { threads: 2, flags: 1, tokens: 1, graphs: u64_is(number, 5), meetings: 4, events: 0 },
    }
}

/// What thread 0 does, which owns stream 0, and thread 1, which owns stream 1.
fn deeds(number: u64) -> (Vec<Op>, Vec<Op>) {
    let launch = |stream| Op::Launch { stream, kernel: SHORT };
    match number {
        // A kernel spins for a flag that is set behind a gated kernel.
        0 => (vec![Op::Spin { stream: 0, flag: 0 }], vec![launch(1), Op::WriteValue { stream: 1, flag: 0 }]),
        // A stream waits for a flag, with more work behind it than the in-flight cap.
        1 => (
            [vec![Op::WaitValue { stream: 0, flag: 0 }], vec![Op::Launch { stream: 0, kernel: LONG }; 6]]
                .concat(),
            vec![launch(1), launch(1), Op::HostSet { stream: 1, flag: 0 }],
        ),
        // A host function waits for the thread that is held back.
        2 => (vec![Op::HostAwait { stream: 0, token: 0 }, launch(0)], vec![launch(1), Op::Give { token: 0 }]),
        // A thread waits for a host function behind a gated kernel.
        3 => (vec![Op::Await { token: 0 }, launch(0)], vec![launch(1), Op::HostGive { stream: 1, token: 0 }]),
        // A lock is held at the gate; another thread needs it to synchronize.
        4 => (
            vec![Op::Lock, launch(0), Op::SyncStream { stream: 0 }, Op::Unlock],
            vec![Op::Lock, launch(1), launch(1), launch(1), Op::Unlock],
        ),
        // A thread launches elsewhere while it captures.
        5 => (
            vec![launch(0), launch(0)],
            vec![
                Op::Begin { stream: 1 },
                launch(1),
                launch(2),
                Op::End { stream: 1, graph: 0 },
                Op::Graph { stream: 1, graph: 0 },
            ],
        ),
        // A host function launches, on a thread of the driver's.
        6 => (vec![launch(0), Op::HostLaunch { stream: 0, kernel: SHORT }], vec![launch(1)]),
        // An older launch is waited for while the legacy stream is parked: a mark behind it would be, too.
        8 => (parks(0, 3), vec![Op::Await { token: 0 }]),
        // The same the other way round.
        9 => (parks(3, 0), vec![Op::Await { token: 0 }]),
        // The streams of two processes wait for each other's events.
        10 => (vec![launch(0)], (0..4).flat_map(|round| exchange(1, round)).collect()),
        // A thread waits for everything while another one is held back, with more to come.
        11 => ([[launch(0), Op::SyncContext]; 6].concat(), vec![Op::Launch { stream: 1, kernel: LONG }; 3]),
        // A lock is held at the gate; host functions need it.
        12 => (
            [[launch(0), Op::HostLock { stream: 0 }]; 8].concat(),
            [vec![Op::Lock], vec![Op::Launch { stream: 1, kernel: LONG }; 4], vec![Op::Unlock]].concat(),
        ),
        // Two processes spin for each other, again and again.
        _ => (vec![launch(0)], (0..4).flat_map(|round| [launch(1), Op::Meet { stream: 1, round }]).collect()),
    }
}

/// Waits for launches in one stream, some of which have no mark yet, while the other one is parked.
fn parks(parked: usize, waited: usize) -> Vec<Op> {
    let launches = [
        vec![Op::Launch { stream: parked, kernel: SHORT }],
        vec![Op::Launch { stream: waited, kernel: HALF }; 8],
    ];
    let rest = [
        Op::WaitValue { stream: parked, flag: 0 },
        Op::SyncStream { stream: waited },
        Op::Set { flag: 0 },
        Op::Give { token: 0 },
    ];
    [launches.concat(), rest.to_vec()].concat()
}

/// Work, then the other process's event, then work behind it that is more than the in-flight cap.
fn exchange(stream: usize, round: usize) -> Vec<Op> {
    let behind = vec![Op::Launch { stream, kernel: LONG }; 2];
    [vec![Op::Launch { stream, kernel: SHORT }, Op::Exchange { stream, round }], behind].concat()
}

/// One if the program is this one.
fn u64_is(number: u64, this: u64) -> usize {
    usize::from(number == this)
}
