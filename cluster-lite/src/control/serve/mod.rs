//! The controller's process: ten turns a second. Each takes in what nodes and the gateway say, decides, writes, and only then
//! has it carried out, by threads that wait for nodes so that no turn does.
//!
//! It may be killed at any moment: the gateway goes on by its last table, instances run on, and the next controller reads the
//! store, looks at what runs, and goes on.

mod door;
mod nodes;
mod signals;
mod talk;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use weir_protocol::units::Nanos;

use super::config::Config;
use super::decide::{Placing, Scaling};
use super::machine::Controller;
use super::order::{Answer, Report};
use super::policies::{ByPolicy, ByScaler};
use super::store::Store;
use crate::fault::Fault;
use door::Door;
use nodes::Nodes;
use signals::SignalFile;
pub use talk::{Ask, NodeRow, Standings, ask, socket};

/// Between two turns.
const TURN: Duration = Duration::from_millis(100);

/// Between two writings of what policies remember: so much of it a SIGKILL may cost.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Names of their memories in the store.
const PLACING: &str = "placing";
const SCALING: &str = "scaling";
const DONE: &str = "work done";

/// Longest that instances may take to end once the controller is to.
const FINISH: Duration = Duration::from_secs(60);

/// What happens to a controller.
enum Event {
    Report(Report),
    Answer(Answer),
    Asked(Ask, Sender<String>),
    End,
}

/// Time since 1970, and never back while this process runs.
struct Clock {
    start: Nanos,
    since: Instant,
}

impl Clock {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { start: nanos(now), since: Instant::now() }
    }

    fn now(&self) -> Nanos {
        Nanos(self.start.0 + nanos(self.since.elapsed()).0)
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Serves until it is told to end, and then until its instances have ended.
///
/// # Errors
/// The store, the sockets or the gateway cannot be had; or the store takes no more writes: then nothing more is done.
pub fn serve(config: &Config, say: &dyn Fn(String)) -> Result<(), Fault> {
    std::fs::create_dir_all(&config.dir).map_err(|error| {
        let message = format!("`{}` cannot be made: {error}", config.dir.display());
        Fault::new(message, "let `dir` name a directory that may be written to")
    })?;
    let store = Store::open(&config.dir.join("state.redb"))?;
    let mut kept = store.read()?;
    let clock = std::sync::Arc::new(Clock::new());
    // A new store does not know which numbers an older one has used, and what was ended under a name is never started again:
    // it counts from the second in which it was made.
    kept.next_instance =
        kept.next_instance.max(clock.now().0 / 1_000_000_000 * u64::from(kept.next_instance == 0));
    if !kept.instances.is_empty() {
        say(format!("goes on with {} instances that the last controller left", kept.instances.len()));
    }
    let mut controller = Controller::new(config.fleet.clone(), kept, clock.now());
    controller.recall_done(serde_json::from_value(store.recall(DONE)).unwrap_or_default());
    let signals = SignalFile::open(config, &mut controller)?;
    let (tell, hear) = channel();
    talk::listen(&config.dir, tell.clone())?;
    end_on_signals(tell.clone());
    let nodes = Nodes::start(config, &tell, &clock)?;
    let door = Door::new(config)?;
    say(format!("http://{}/SERVICE/... (metrics at /metrics)", config.listen));
    Server { config, store, controller, clock, hear, nodes, door, signals, say, ending: None }.run()
}

/// Interrupt and SIGTERM end it in order; SIGKILL is for those who want all to go on.
fn end_on_signals(tell: Sender<Event>) {
    std::thread::spawn(move || {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
        runtime.block_on(async {
            let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
            let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return };
            std::future::poll_fn(|context| {
                let came = interrupt.poll_recv(context).is_ready() | terminate.poll_recv(context).is_ready();
                if came { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
        });
        let _ = tell.send(Event::End); // a server that has ended hears nothing
    });
}

struct Server<'a> {
    config: &'a Config,
    store: Store,
    controller: Controller,
    clock: std::sync::Arc<Clock>,
    hear: Receiver<Event>,
    nodes: Nodes,
    door: Door,
    signals: Option<SignalFile>,
    say: &'a dyn Fn(String),
    ending: Option<Instant>,
}

impl Server<'_> {
    fn run(mut self) -> Result<(), Fault> {
        let seed = self.clock.now().0;
        let mut placing = ByPolicy::new(&self.config.place, &self.config.fleet.services, seed)?
            .with_ceiling(self.config.ceiling);
        let mut scaling = ByScaler::new(&self.config.scale, self.config.rules.clone())?;
        placing.recall(self.store.recall(PLACING));
        scaling.recall(self.store.recall(SCALING));
        let mut remembered = Instant::now();
        loop {
            self.listen_for(TURN);
            let now = self.clock.now();
            let turn = self.controller.turn(now, &mut placing, &mut scaling);
            // Nothing is done that is not kept: a store that fails ends the controller.
            self.store.write(&turn.writes)?;
            if let Some(traffic) = self.door.exchange(&turn.table, self.say) {
                self.controller.serves(traffic);
            }
            turn.orders.into_iter().for_each(|order| self.nodes.carry_out(order));
            let rests = self.controller.instances().next().is_none();
            let ends = self.ending.is_some_and(|since| rests || since.elapsed() > FINISH);
            if ends || remembered.elapsed() > REMEMBERED {
                remembered = Instant::now();
                let done = serde_json::to_value(self.controller.done()).unwrap_or_default();
                let memories = [(PLACING, placing.memory()), (SCALING, scaling.memory()), (DONE, done)];
                self.store.remember(&memories)?;
                if let Some(signals) = &mut self.signals {
                    signals.look(&mut self.controller, self.say);
                }
            }
            if ends {
                self.door.end();
                return match rests {
                    true => Ok(()),
                    false => Err(Fault::new(
                        "some instances have not ended",
                        "their nodes are silent: `weir-cluster ps` after the next start shows them",
                    )),
                };
            }
        }
    }

    /// Takes in what comes until the next turn.
    fn listen_for(&mut self, duration: Duration) {
        let until = Instant::now() + duration;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.hear.recv_timeout(left) {
                Ok(event) => self.take_in(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn take_in(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Report(report) => self.controller.hear(report),
            Event::Answer(answer) => {
                if let super::order::Outcome::Refused(why) | super::order::Outcome::Unknown(why) =
                    &answer.outcome
                {
                    (self.say)(format!("{}: {why}", answer.order.tenant));
                }
                self.controller.answered(now, answer);
            }
            Event::Asked(asked, answer) => {
                let text = talk::answer(&mut self.controller, &self.store, now, &asked);
                let _ = answer.send(text); // whoever asked may have gone
            }
            Event::End if self.ending.is_none() => {
                (self.say)("ends: instances finish what they have".into());
                self.ending = Some(Instant::now());
                self.controller.end();
            }
            Event::End => {}
        }
    }
}
