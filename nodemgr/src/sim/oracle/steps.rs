//! A schedule for a server that answers token by token, made by somebody who knows all arrivals and lengths.
//!
//! ```text
//!   prompts  are read as soon as the server asks for them: nobody puts a first token off
//!   a step   begins as late as it can so that, if all goes on at once from then on, everybody who is served keeps the bound
//!   request  of each long run in which the server has something to do it has its share (`backlog.rs`): it is put off no longer
//!   misses   those who may miss the bound are waited for by nobody: their tokens come with the steps of others
//! ```
//!
//! It keeps the promise and pays two switches wherever fillers ran before a step, so whoever knows all can do as well. It is
//! the best that was found, and not the best that there is: who may miss the bound is chosen one by one, each time the one
//! whose time saves most.

use std::collections::{BinaryHeap, VecDeque};

use weir_simgpu_model::Nanos;

use super::backlog::{Backlog, Guarantee};

/// The server.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// Reading prompts, ...
    pub pass: Nanos,
    /// ... and what each of them adds to it.
    pub each: Nanos,
    /// A step.
    pub decode: Nanos,
    /// Requests that are served at once, at most.
    pub room: usize,
    /// The bound between two tokens of a request, on the average.
    pub target: Nanos,
    /// A switch of contexts.
    pub switch: Nanos,
    /// What the server is guaranteed.
    pub request: Guarantee,
}

/// A request: when it comes, and how many tokens it wants.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub arrived: Nanos,
    pub tokens: u32,
}

/// The schedule that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Time for prompts, steps and switches.
    pub cost: Nanos,
    /// The least work in a long run in which the server had something to do throughout; none if there was no such time.
    pub least_of_long_run: Option<Nanos>,
}

/// The schedule that costs least and in which at most so many thousandths of the requests miss the bound; none if more do
/// however soon each step begins.
pub fn least(server: &Server, requests: &[Request], missed_permille: u64) -> Option<Found> {
    let several = requests.iter().filter(|request| request.tokens > 1).count() as u64;
    let mut allowed = several * missed_permille / 1_000;
    let mut spared = vec![false; requests.len()];
    let mut plan = schedule(server, requests, &spared);
    while !plan.late.is_empty() {
        allowed = allowed.checked_sub(plan.late.len() as u64)?;
        plan.late.iter().for_each(|late| spared[*late] = true);
        plan = schedule(server, requests, &spared);
    }
    let saves = |at: usize, spared: &mut [bool], cost: Nanos| {
        spared[at] = true;
        let plan = schedule(server, requests, spared);
        spared[at] = false;
        if plan.late.is_empty() { cost.saturating_sub(plan.cost) } else { 0 }
    };
    // What a miss saves seldom grows by another: what was found before is looked at anew only where it would be the best.
    let mut best: BinaryHeap<(Nanos, usize, u64)> = BinaryHeap::new();
    for at in (0..requests.len()).filter(|at| requests[*at].tokens > 1) {
        if !spared[at] {
            best.push((saves(at, &mut spared, plan.cost), at, allowed));
        }
    }
    while allowed > 0
        && let Some((saved, at, when)) = best.pop()
        && saved > 0
    {
        if when == allowed {
            spared[at] = true;
            plan.cost -= saved;
            allowed -= 1;
        } else {
            best.push((saves(at, &mut spared, plan.cost), at, allowed));
        }
    }
    let plan = schedule(server, requests, &spared);
    let least_of_long_run =
        plan.backlogs.iter().filter_map(|backlog| backlog.least(server.request.long_run)).min();
    Some(Found { cost: plan.cost, least_of_long_run })
}

/// What a schedule came to: its time, who missed the bound of those who were to keep it, and the server's work.
struct Plan {
    cost: Nanos,
    late: Vec<usize>,
    backlogs: Vec<Backlog>,
}

fn schedule(server: &Server, requests: &[Request], spared: &[bool]) -> Plan {
    let mut state = State::new(server, requests);
    let mut plan = Plan { cost: 0, late: Vec::new(), backlogs: Vec::new() };
    let mut backlog = Backlog::default();
    loop {
        let before = state.now;
        if state.reads() {
            backlog.work(server.request, (before, state.now));
            plan.cost += state.now - before;
        } else if !state.running.is_empty() {
            let latest = backlog.bounds(server.request, state.latest(spared), server.switch);
            let begins = if latest - before > 2 * server.switch { latest } else { before };
            backlog.work(server.request, (begins, begins + server.decode));
            plan.cost += server.decode + if begins > before { 2 * server.switch } else { 0 };
            let done = state.steps(begins);
            plan.late.extend(done.filter(|done| done.is_late() && !spared[done.id]).map(|done| done.id));
        } else if let Some(next) = requests.get(state.next) {
            plan.cost += 2 * server.switch;
            plan.backlogs.push(std::mem::take(&mut backlog));
            state.now = next.arrived;
        } else {
            plan.backlogs.push(backlog);
            return plan;
        }
    }
}

/// A request that is served.
#[derive(Clone, Copy)]
struct Running {
    id: usize,
    left: u64,  // steps
    by: Nanos,  // the last moment at which it keeps the bound
    now: Nanos, // the end of its last step
}

impl Running {
    fn is_late(&self) -> bool {
        self.now > self.by
    }
}

/// The server at some moment.
#[derive(Clone)]
struct State<'a> {
    server: &'a Server,
    requests: &'a [Request],
    now: Nanos,
    next: usize, // who has not come yet
    waiting: VecDeque<usize>,
    running: Vec<Running>,
}

impl<'a> State<'a> {
    fn new(server: &'a Server, requests: &'a [Request]) -> Self {
        Self { server, requests, now: 0, next: 0, waiting: VecDeque::new(), running: Vec::new() }
    }

    /// Reads the prompts that have come and for which there is room, if there are any.
    fn reads(&mut self) -> bool {
        while self.requests.get(self.next).is_some_and(|request| request.arrived <= self.now) {
            self.waiting.push_back(self.next);
            self.next += 1;
        }
        let prompts = self.waiting.len().min(self.server.room - self.running.len());
        if prompts == 0 {
            return false;
        }
        self.now += self.server.pass + self.server.each * prompts as u64;
        for id in self.waiting.drain(..prompts) {
            let left = u64::from(self.requests[id].tokens - 1);
            let by = (self.now + self.server.target * left).saturating_sub(1);
            self.running.extend((left > 0).then_some(Running { id, left, by, now: self.now }));
        }
        true
    }

    /// Takes the step that has formed; says who has all of his tokens after it.
    fn steps(&mut self, begins: Nanos) -> impl Iterator<Item = Running> {
        self.now = begins + self.server.decode;
        for running in &mut self.running {
            (running.left, running.now) = (running.left - 1, self.now);
        }
        self.running.extract_if(.., |running| running.left == 0)
    }

    /// When the step that has formed begins.
    fn latest(&self, spared: &[bool]) -> Nanos {
        let awaited = self.running.iter().filter(|running| !spared[running.id]);
        let begins = |running: &Running| running.by.saturating_sub(self.server.decode * running.left);
        let Some(latest) = awaited.map(begins).min() else {
            // Nobody waits for it: it goes with whoever comes next.
            return self.requests.get(self.next).map_or(self.now, |next| next.arrived.max(self.now));
        };
        let (mut early, mut late) = (self.now, latest.max(self.now) + 1);
        while late - early > self.server.switch.max(1) {
            let middle = early.midpoint(late);
            *(if self.keeps(middle, spared) { &mut early } else { &mut late }) = middle;
        }
        early
    }

    /// Whether all who are served now and are awaited keep the bound if this step begins then and the rest at once.
    fn keeps(&self, begins: Nanos, spared: &[bool]) -> bool {
        let mut state = self.clone();
        let known = self.running.iter().filter(|running| !spared[running.id]);
        let (mut open, last) = (known.clone().count(), known.map(|running| running.id).max());
        let mut next = begins;
        while open > 0 {
            for done in state.steps(next) {
                let awaited = Some(done.id) <= last && !spared[done.id];
                if awaited && done.is_late() {
                    return false;
                }
                open -= usize::from(awaited);
            }
            while state.reads() {}
            next = state.now;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Guarantee = Guarantee { permille: 0, long_run: 1_000 };
    const SERVER: Server =
        Server { pass: 0, each: 50, decode: 40, room: 4, target: 100, switch: 1, request: NOTHING };

    /// What the best schedule costs.
    fn cost(server: &Server, requests: &[Request], missed_permille: u64) -> Option<Nanos> {
        least(server, requests, missed_permille).map(|found| found.cost)
    }

    fn request(arrived: Nanos, tokens: u32) -> Request {
        Request { arrived, tokens }
    }

    #[test]
    fn steps_are_put_off_until_they_serve_several() {
        // Alone each needs 50 and ten steps of 40; the first one can wait for the second, which comes before its own end.
        let alone = 2 + 50 + 2 + 10 * 40;
        assert_eq!(cost(&SERVER, &[request(1_000, 11)], 0), Some(alone));
        assert_eq!(cost(&SERVER, &[request(1_000, 11), request(9_000, 11)], 0), Some(2 * alone));
        let both = cost(&SERVER, &[request(1_000, 11), request(1_300, 11)], 0).unwrap_or(0);
        assert!(both < 2 * alone - 6 * 40, "{both}: most steps serve both");
    }

    #[test]
    fn who_may_miss_the_bound_waits_for_the_steps_of_others() {
        let often: Vec<Request> = (0..40).map(|n| request(n * 3_000, 11)).collect();
        let (none, some) = (cost(&SERVER, &often, 0), cost(&SERVER, &often, 100));
        let (none, some) = (none.unwrap_or(0), some.unwrap_or(0));
        assert!(some < none && some >= none - 4 * (10 * 40 + 2), "{some}, and {none} without misses");
    }

    #[test]
    fn nobody_is_made_to_wait_for_so_long_that_the_server_has_less_than_its_request() {
        // Design 5: for class latency the request is a guarantee over a long run.
        let pair = |at: Nanos| [request(at, 21), request(at + 400, 11)];
        let pairs: Vec<Request> = (0..30).flat_map(|n| pair(n * 3_000)).collect();
        let with = |permille: u64| {
            let server = Server { request: Guarantee { permille, long_run: 1_000 }, ..SERVER };
            (permille, least(&server, &pairs, 500).unwrap())
        };
        let (_, free) = with(0);
        for (permille, bound) in [300, 600, 900].map(with) {
            assert!(bound.cost > free.cost, "{permille}: {bound:?}, and {free:?}");
            let least = bound.least_of_long_run; // none where it is never busy for so long
            assert!(
                free.least_of_long_run < Some(300) && least.is_none_or(|least| least >= permille),
                "{bound:?}"
            );
        }
    }

    #[test]
    fn what_nobody_can_keep_has_no_schedule() {
        let crowd = [request(0, 2), request(500, 5)];
        let slow = Server { decode: 120, ..SERVER };
        assert_eq!(cost(&slow, &crowd, 0), None);
        assert!(cost(&slow, &crowd, 1_000).is_some(), "a step takes longer than the bound");
    }

    #[test]
    fn nobody_who_is_awaited_is_late() {
        // Steps that are put off, prompts in between, and no room for all: going on at once everybody would be in time.
        for gap in [130, 170, 260, 510] {
            let requests: Vec<Request> = (0..30).map(|n| request(n * gap, 5 + (n % 7) as u32 * 3)).collect();
            let server = Server { decode: 10, each: 15, ..SERVER };
            assert!(schedule(&server, &requests, &[false; 30]).late.is_empty(), "one in {gap}");
        }
    }
}
