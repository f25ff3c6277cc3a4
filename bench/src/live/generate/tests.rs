//! What makes programs end: nothing depends on a parked stream but its own work.

use std::collections::HashMap;

use super::*;

#[test]
fn the_same_seed_makes_the_same_program() {
    for seed in 0..100 {
        assert_eq!(program(seed).steps, program(seed).steps);
    }
}

/// Steps in order, by one thread that never waits for what comes later: what is parked is set by a stream that is not.
#[test]
fn nothing_but_its_own_work_hangs_on_a_parked_stream() {
    for seed in directed::COUNT..5_000 {
        let program = program(seed);
        let together = program.streams.iter().any(|stream| stream.kind == Kind::Legacy);
        let domain = |stream: usize| match program.streams[stream].kind {
            Kind::NonBlocking => stream,
            _ if together => usize::MAX,
            _ => stream,
        };
        let (mut flags, mut tokens, mut events) = (Vec::new(), Vec::new(), Vec::new());
        let mut graphs = HashMap::new(); // by graph the stream of its last launch
        for (_, op) in &program.steps {
            let free = |stream: usize, flags: &[(usize, usize)], tokens: &[(usize, usize)]| {
                flags.iter().chain(tokens).all(|(_, parked)| *parked != domain(stream))
            };
            match *op {
                Op::Spin { stream, flag } | Op::WaitValue { stream, flag } => {
                    flags.push((flag, domain(stream)));
                }
                Op::HostAwait { stream, token } => tokens.push((token, domain(stream))),
                Op::WriteValue { stream, flag } | Op::HostSet { stream, flag } => {
                    assert!(free(stream, &flags, &tokens), "{program}");
                    flags.retain(|(parked, _)| *parked != flag);
                }
                Op::Set { flag } => flags.retain(|(parked, _)| *parked != flag),
                Op::Give { token } => tokens.retain(|(parked, _)| *parked != token),
                Op::Record { stream, .. } => events.push(stream),
                Op::WaitEvent { event, .. } | Op::SyncEvent { event } => {
                    assert!(free(events[event], &flags, &tokens), "{program}");
                }
                Op::SyncStream { stream } | Op::Meet { stream, .. } | Op::Exchange { stream, .. } => {
                    assert!(free(stream, &flags, &tokens), "{program}");
                }
                Op::Graph { stream, graph } => {
                    let last = graphs.insert(graph, stream).unwrap_or(stream);
                    let same = domain(last) == domain(stream);
                    assert!(same || free(last, &flags, &tokens), "{program}");
                }
                Op::SyncContext => assert!(flags.is_empty() && tokens.is_empty(), "{program}"),
                _ => {}
            }
        }
        assert!(flags.is_empty() && tokens.is_empty(), "{program}");
        assert!(program.counts.meetings <= crate::live::execute::EVENTS, "{program}");
    }
}
