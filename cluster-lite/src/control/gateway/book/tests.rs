use super::*;
use crate::control::model::ReadyWhen;
use crate::control::route::Backend;

const NOW: Nanos = Nanos::from_secs(100);

fn table(accepting: &[u64]) -> Table {
    let backend = |id: &u64| Backend { id: InstanceId(*id), address: format!("h:{id}"), accepts: true };
    let route = Route {
        service: "s".into(),
        concurrency: 1,
        queue: 2,
        queue_deadline_ms: 1_000,
        answer_deadline_ms: 1_000,
        ready: ReadyWhen::Listens,
        sizes: None,
        backends: accepting.iter().map(backend).collect(),
    };
    Table { version: 1, services: vec![route] }
}

fn book(accepting: &[u64]) -> Book {
    let mut book = Book::default();
    book.route(table(accepting));
    book
}

#[test]
fn a_request_goes_to_the_instance_with_the_least_outstanding() {
    let mut book = book(&[1, 2]);
    let tickets = [book.arrive(NOW, "s", 0).unwrap(), book.arrive(NOW, "s", 0).unwrap()];
    let to = |id: u64| Turned::To(InstanceId(id), format!("h:{id}"));
    assert_eq!(book.dispatch(NOW), [(tickets[0], to(1)), (tickets[1], to(2))]);
    assert_eq!(book.settle(NOW, tickets[1], Sent::Answered), Ok(false));
    let third = book.arrive(NOW, "s", 0).unwrap();
    assert_eq!(book.dispatch(NOW), [(third, to(2))]);
}

#[test]
fn requests_wait_for_a_service_that_wakes_and_no_longer_than_their_deadline() {
    let mut book = book(&[]);
    let ticket = book.arrive(NOW, "s", 0).unwrap();
    assert_eq!(book.dispatch(NOW), []);
    book.route(table(&[7]));
    assert_eq!(book.dispatch(NOW), [(ticket, Turned::To(InstanceId(7), "h:7".into()))]);
    let late = book.arrive(NOW, "s", 0).unwrap();
    let then = Nanos::from_secs(102);
    assert_eq!(book.dispatch(then), [(late, Turned::Refused(Refusal::NoneInTime))]);
}

#[test]
fn the_queue_is_bounded_beyond_what_instances_can_take() {
    let mut book = book(&[1]);
    let taken = (0..5).filter(|_| book.arrive(NOW, "s", 0).is_ok()).count();
    assert_eq!(taken, 3, "one for the instance and two that wait");
    assert_eq!(book.arrive(NOW, "s", 0), Err(Refusal::QueueFull));
    assert_eq!(book.arrive(NOW, "other", 0), Err(Refusal::NoService));
}

#[test]
fn a_request_is_asked_again_only_if_that_does_no_harm() {
    let mut book = book(&[1, 2]);
    let ticket = book.arrive(NOW, "s", 0).unwrap();
    book.dispatch(NOW);
    assert_eq!(book.settle(NOW, ticket, Sent::NotConnected), Ok(true));
    let to_other = Turned::To(InstanceId(2), "h:2".into());
    assert_eq!(book.dispatch(NOW), [(ticket, to_other)], "the first one is left alone for a while");
    assert_eq!(book.settle(NOW, ticket, Sent::Broken { again: false }), Err(Refusal::BrokenOff));
    assert_eq!(book.settle(NOW, ticket, Sent::Answered), Ok(false), "it has ended, once");
    let traffic = &book.traffic().services["s"];
    assert_eq!((traffic.arrived, traffic.answered, traffic.refused["broken_off"]), (1, 0, 1));
    assert_eq!(book.open(), 0);
}

/// Whatever becomes of a request: its work has come once, and waits as long as it does.
#[test]
fn work_that_waits_is_that_of_those_who_wait() {
    let mut book = book(&[1]);
    let sums = |book: &Book| {
        let traffic = &book.traffic().services["s"];
        (traffic.arrived_work_ns, traffic.queued_work_ns)
    };
    let tickets = [10, 200, 3_000].map(|work| book.arrive(NOW, "s", work).unwrap());
    assert_eq!(book.arrive(NOW, "s", 40_000), Err(Refusal::QueueFull));
    assert_eq!(sums(&book), (43_210, 3_210), "whoever is refused has come, and does not wait");
    book.dispatch(NOW);
    assert_eq!(sums(&book), (43_210, 3_200), "an instance has the first");
    assert_eq!(book.settle(NOW, tickets[0], Sent::NotConnected), Ok(true));
    assert_eq!(sums(&book), (43_210, 3_210), "it waits again, and has not come again");
    assert_eq!(book.settle(NOW, tickets[1], Sent::Abandoned), Ok(false));
    assert_eq!(sums(&book), (43_210, 3_010), "its client went away");
    let later = Nanos::from_millis(100_600);
    book.dispatch(later);
    assert_eq!(book.settle(later, tickets[0], Sent::Broken { again: false }), Err(Refusal::BrokenOff));
    assert_eq!(sums(&book), (43_210, 3_000));
    book.route(table(&[]));
    book.dispatch(Nanos::from_secs(102));
    assert_eq!((sums(&book), book.open()), ((43_210, 0), 0), "none was free in time");
}
