//! The least time of the GPU that a server without tokens needs, for somebody who knows all arrivals.

use std::collections::HashMap;

use weir_simgpu_model::Nanos;

/// The server.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// A pass over a batch, ...
    pub pass: Nanos,
    /// ... and what each request adds to it.
    pub each: Nanos,
    /// Requests in it, at most.
    pub room: usize,
    /// When a request should be served, after it came.
    pub target: Nanos,
    /// A switch of contexts.
    pub switch: Nanos,
}

/// A pass is put off for no longer than so many bounds: by then everybody has missed it.
const PUT_OFF: u64 = 2;

/// Steps in which the best price of a miss is looked for.
const HALVINGS: u32 = 14;

/// Time for passes and switches, where at most so many thousandths of the requests miss the bound.
pub fn least(server: &Server, arrived: &[Nanos], missed_permille: u64) -> Nanos {
    let allowed = arrived.len() as u64 * missed_permille / 1_000;
    // With a price for each miss that exceeds what is allowed, the cheapest schedule costs no more than the best that keeps
    // to it, whatever the price. It is too low as long as too many are missed.
    let (mut low, mut high) = (0, 4 * (server.pass + server.each + 2 * server.switch));
    let mut best = 0;
    for _ in 0..HALVINGS {
        let price = (low + high) / 2;
        let (cost, missed) = cheapest(server, arrived, price);
        best = best.max(cost.saturating_sub(price * allowed));
        *(if missed > allowed { &mut low } else { &mut high }) = price;
    }
    best
}

/// The cheapest schedule if each miss has this price: what it costs with them, and how many there are.
fn cheapest(server: &Server, arrived: &[Nanos], price: Nanos) -> (Nanos, u64) {
    // By how many are served: the moments at which the server may be free then, with what it cost so far.
    let mut states: Vec<HashMap<Nanos, (Nanos, u64)>> = vec![HashMap::new(); arrived.len() + 1];
    states[0].insert(0, (0, 0));
    for served in 0..arrived.len() {
        for (free, (cost, missed)) in std::mem::take(&mut states[served]) {
            let forms = free.max(arrived[served]);
            let waiting = arrived[served..].iter().take(server.room).take_while(|at| **at <= forms);
            let batch = &arrived[served..served + waiting.count()];
            let length = server.pass + server.each * batch.len() as u64;
            for begins in beginnings(server, length, &arrived[served + batch.len()..], forms) {
                let done = begins + length;
                let follows = begins == free;
                let late = batch.iter().filter(|at| done - **at >= server.target).count() as u64;
                let switches = if follows { 0 } else { 2 * server.switch };
                let now = (cost + length + switches + late * price, missed + late);
                let known = states[served + batch.len()].entry(done).or_insert(now);
                *known = now.min(*known);
            }
        }
    }
    states.last().and_then(|last| last.values().min().copied()).unwrap_or_default()
}

/// When a batch that forms now may begin: at once, or so that one more request has come by its end.
fn beginnings(server: &Server, length: Nanos, next: &[Nanos], forms: Nanos) -> impl Iterator<Item = Nanos> {
    let latest = forms + PUT_OFF * server.target;
    let later = next.iter().map(move |at| at.saturating_sub(length)).take_while(move |at| *at <= latest);
    std::iter::once(forms).chain(later.filter(move |at| *at > forms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Server = Server { pass: 20, each: 0, room: 4, target: 101, switch: 1 };

    #[test]
    fn who_comes_alone_is_served_alone() {
        assert_eq!(least(&SERVER, &[100, 1_000, 2_000], 0), 3 * 22);
        assert_eq!(least(&SERVER, &[], 50), 0);
    }

    #[test]
    fn a_pass_is_put_off_so_that_the_next_one_serves_several() {
        // The first request is read alone. Put off until 150 it lets the two others share the next pass; at once it would not.
        assert_eq!(least(&SERVER, &[100, 130, 170], 0), 22 + 20);
        assert_eq!(least(&Server { target: 51, ..SERVER }, &[100, 130, 170], 0), 22 + 20 + 22, "too long");
    }

    #[test]
    fn no_more_take_part_in_a_pass_than_there_is_room_for() {
        assert_eq!(least(&SERVER, &[100; 9], 0), 22 + 20 + 20);
    }

    #[test]
    fn a_few_may_miss_the_bound() {
        let tight = Server { target: 51, ..SERVER };
        let often: Vec<Nanos> = (0..300).map(|n| n * 40).collect();
        let (none, some) = (least(&tight, &often, 0), least(&tight, &often, 200));
        assert!(some < none, "{some} with a fifth of misses, {none} with none");
    }
}
