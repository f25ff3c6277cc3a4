//! How a broker comes and goes: started by whoever is first, one at a time, gone when nobody needs it.

use weir_simgpu_link::{place, socket};

use crate::harness::{Broker, Machine, until, weir_simgpu};
use crate::roles::Role;

/// Clients that race to start the broker.
const RACERS: usize = 6;

#[test]
fn the_first_client_starts_the_broker_and_the_last_one_takes_it_along() {
    let machine = Machine::new("linger_ms = 100\n");
    let mut client = machine.play(Role::Stays);
    client.go();
    until(|| socket::connect(&machine.socket()).is_ok());
    until(|| machine.progress(client.pid()).0 == 1);
    assert_eq!(machine.brokers().len(), 1);
    assert!(client.end(), "the client has seen its kernel complete");
    until(|| machine.brokers().is_empty());
    assert!(!machine.socket().exists());
}

#[test]
fn clients_that_race_to_start_the_broker_are_all_served_by_one() {
    let machine = Machine::new("");
    let mut clients: Vec<_> = (0..RACERS).map(|_| machine.play(Role::Stays)).collect();
    clients.iter_mut().for_each(|client| client.go());
    until(|| socket::connect(&machine.socket()).is_ok());
    until(|| clients.iter().all(|client| machine.progress(client.pid()).0 == 1));
    // A loser of the race may be on its way out still.
    until(|| machine.brokers().len() == 1);
    assert!(clients.into_iter().all(|client| client.end()));
}

#[test]
fn a_client_that_comes_while_the_broker_leaves_gets_a_new_one() {
    // It leaves at once, so that each of the child's connections meets a broker that is about to.
    let machine = Machine::new("linger_ms = 0\n");
    assert!(machine.play(Role::Reconnects).end());
    until(|| machine.brokers().is_empty());
}

#[test]
fn the_broker_leaves_after_its_last_client() {
    let mut broker = Broker::start("linger_ms = 300\n");
    drop(broker.client());
    until(|| broker.process.try_wait().unwrap().is_some());
    assert!(!broker.socket().exists());
}

#[test]
fn a_bad_configuration_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.toml");
    std::fs::write(&file, "gpus = 1\nsms = 0\n").unwrap();
    for arguments in [vec!["check"], vec!["broker", "--dir", dir.path().to_str().unwrap(), "--config"]] {
        let output = weir_simgpu(&arguments, &file);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{text}");
        assert!(text.contains("line 2") && text.contains("sms = 0") && text.contains("help:"), "{text}");
    }
    let reason = std::fs::read_to_string(dir.path().join(place::REASON)).unwrap();
    assert!(reason.contains("sms = 0"), "the library that started it can say why: {reason}");
}
