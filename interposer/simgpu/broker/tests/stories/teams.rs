//! Multicast objects of several clients.

use weir_simgpu_link::{Binding, Refusal, Session, SessionError, TeamRequest};

use crate::harness::Broker;

const MIB: u64 = 1 << 20;
/// An object, in bytes.
const SIZE: u64 = 64 * MIB;
const TWO_GPUS: &str = "gpus = 2\nmemory = \"1GiB\"\n";

/// What a client and all of them hold on a GPU, in bytes.
fn held(client: &Session, device: u32) -> (u64, u64) {
    let (_, used, own) = client.memory(device).unwrap();
    (own, used)
}

fn refusal(result: Result<(), SessionError>) -> Refusal {
    match result {
        Err(SessionError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// Memory of a client on the first GPU, that is bound at the object's start.
fn memory(team: u32) -> Binding {
    Binding { team, device: 0, at: 0, length: SIZE / 2, memory: 1, bytes: SIZE }
}

/// An object of two clients on two GPUs, with memory of the first one's.
fn joined(clients: [&Session; 2]) -> u32 {
    let team = clients[0].create_team(2, SIZE).unwrap();
    clients[1].team(TeamRequest::Open { team }).unwrap();
    clients[0].team(TeamRequest::Join { team, device: 0 }).unwrap();
    assert_eq!(refusal(clients[0].team(TeamRequest::Bind(memory(team)))), Refusal::NotReady);
    clients[1].team(TeamRequest::Join { team, device: 1 }).unwrap();
    clients[0].reserve(0, SIZE).unwrap();
    clients[0].team(TeamRequest::Bind(memory(team))).unwrap();
    team
}

#[test]
fn an_object_is_held_once_where_it_has_joined_and_goes_with_its_last_client() {
    let broker = Broker::start(TWO_GPUS);
    let clients = [broker.client(), broker.client()];
    let team = joined(clients.each_ref());
    let again = clients[0].team(TeamRequest::Join { team, device: 1 });
    assert_eq!(refusal(again), Refusal::NotOfTeam, "all places are taken");
    assert_eq!(
        refusal(clients[0].team(TeamRequest::Bind(memory(team)))),
        Refusal::NotOfTeam,
        "so is this one"
    );
    assert_eq!((held(&clients[0], 0), held(&clients[1], 1)), ((2 * SIZE, 2 * SIZE), (SIZE, SIZE)));
    clients[0].team(TeamRequest::Close { team }).unwrap();
    assert_eq!((held(&clients[0], 0).0, held(&clients[1], 0).0), (SIZE, SIZE));
    clients[0].team(TeamRequest::HandOver(memory(team))).unwrap();
    assert_eq!((held(&clients[0], 0).0, held(&clients[1], 0).0), (0, 2 * SIZE));
    clients[1].team(TeamRequest::Unbind { team, device: 0, at: 0, bytes: SIZE }).unwrap();
    assert_eq!(held(&clients[1], 0), (SIZE, SIZE), "whoever has it may unbind what was left there");
    clients[1].team(TeamRequest::Close { team }).unwrap();
    assert_eq!([0, 1].map(|device| held(&clients[1], device).1), [0, 0]);
    assert_eq!(refusal(clients[1].team(TeamRequest::Open { team })), Refusal::NotOfTeam);
}

#[test]
fn what_a_dead_client_has_bound_stays_for_as_long_as_another_has_the_object() {
    let broker = Broker::start(TWO_GPUS);
    let [first, second] = [broker.client(), broker.client()];
    let team = joined([&first, &second]);
    let others = Binding { memory: 2, at: SIZE / 2, ..memory(team) };
    assert_eq!(
        refusal(second.team(TeamRequest::Unbind { team, device: 0, at: 0, bytes: SIZE })),
        Refusal::NotOfTeam
    );
    second.reserve(0, SIZE).unwrap();
    second.team(TeamRequest::Bind(others)).unwrap();
    drop(first);
    crate::harness::until(|| held(&second, 0).0 == 3 * SIZE);
    assert_eq!(held(&second, 0).1, 3 * SIZE, "moved, not doubled");
    second.team(TeamRequest::Close { team }).unwrap();
    assert_eq!(held(&second, 0), (SIZE, SIZE), "its own memory, which it still has");
    second.team(TeamRequest::HandOver(others)).unwrap();
    assert_eq!(held(&second, 0), (0, 0));
}
