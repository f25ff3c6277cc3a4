//! The measured side of the GPU check: this same binary as a client of the driver, told what to do by lines on stdin. Answers are
//! lines of JSON, one for each order; `bench/check/torch_play.py` understands the same orders.
//!
//! | order | answer |
//! | --- | --- |
//! | `work NAME` | `{"ready"}`: other work from now on ([`work`]) |
//! | `round N` | `{"s"}`: N units, and waited for them |
//! | `steps N` | `{"s"}`: the same without what two processes exchange after each |
//! | `go [PAUSE_US] [stamps]` | `{"went"}`: units without end, each followed by a pause of the host, until the next order |
//! | `look` | `{"at_ns", "done"}`: units done, and when the last one was; answered at any time |
//! | `stamps` | `{"ends_ns"}`: when each unit since `go .. stamps` was done |
//! | `serve [OFFSETS_US]` | `{"us"}`: a request at each of these moments; how long each took, waiting included |
//! | `wake [SLEEPS_US]` | `{"wakes"}`: after each sleep one unit; when it was launched, and done |
//! | `span N` | `{"gpu_ms", "host_ms"}`: N units between two events, and by the host's clock |
//! | `costs` | what calls take of the host, in nanoseconds, what a launch takes until it is known to be done, and SMs |
//!
//! and those of [`memory`] and [`probes`].

mod budget;
mod exchange;
mod facts;
pub mod kinds;
mod memory;
mod pace;
mod parity;
mod probes;
pub mod work;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use weir_abi::types::{CUdeviceptr, CUfunction, CUgraphExec, CUstream};

use self::work::Work;
use crate::client::{ClientError, Driver, tell_latency};
use crate::clock::now;
use crate::events::Events;
use crate::graphs::Graphs;
use crate::kernels::{Body, Kernel};
use crate::sample::Spread;

/// GPU time of the units that are under way at once, where the program does not wait for each; so many units at least, and at most.
const AHEAD_US: f64 = 4_000.0;
const AHEAD: (usize, usize) = (3, 48);

/// A request is slept for until so long before it comes, and then looked for without rest.
const SPIN: Duration = Duration::from_micros(300);

/// Kernels of the check that are no work.
const CRASH: &str = "check_crash";

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSOR_COUNT: u32 = 16;

/// Why an order was not done.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Driver(#[from] ClientError),
    #[error("`{0}` is no order")]
    Order(String),
}

/// How far the units have come: how many are done, and when the last one was.
static DONE: AtomicU64 = AtomicU64::new(0);
static AT_NS: AtomicU64 = AtomicU64::new(0);

/// Plays until stdin ends.
pub fn run(work: &str) -> ExitCode {
    let played = match work {
        "pace" => pace::measure().map(say).map_err(Refused::from),
        exchange::FOLLOWER => exchange::follow(),
        "parity" => parity::results().map(say).map_err(Refused::from),
        "facts" => facts::all().map(say).map_err(Refused::from),
        _ => play(work),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(refused) => {
            say(json!({"error": refused.to_string()}));
            ExitCode::FAILURE
        }
    }
}

fn play(work: &str) -> Result<(), Refused> {
    let mut player = Player::of(work)?;
    say(json!({"ready": true}));
    let (send, orders) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == "look" {
                say(look());
            } else if send.send(line).is_err() {
                break;
            }
        }
    });
    let mut next = orders.recv().ok();
    while let Some(order) = next.take() {
        let answer = match order.strip_prefix("work ") {
            Some(other) => Player::of(other).map(|other| {
                player = other;
                json!({"ready": true})
            }),
            None => player.obey(&order, &orders, &mut next),
        };
        let answer = match answer {
            Err(Refused::Order(what)) => json!({"error": Refused::Order(what).to_string()}),
            other => other?,
        };
        say(answer);
        next = next.or_else(|| orders.recv().ok());
    }
    Ok(())
}

/// One line; others may be said at the same time, by the other thread.
#[allow(clippy::needless_pass_by_value, reason = "an answer is made to be said")]
fn say(answer: Value) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{answer}").and_then(|()| stdout.flush());
}

fn look() -> Value {
    // Acquire: the time belongs to this count, or to a later one.
    let done = DONE.load(Ordering::Acquire);
    json!({"at_ns": AT_NS.load(Ordering::Relaxed), "done": done})
}

fn count_one() {
    AT_NS.store(now(), Ordering::Relaxed);
    DONE.fetch_add(1, Ordering::Release);
}

/// The driver and what is launched by it.
struct Player {
    driver: Driver,
    stream: CUstream,
    events: Events,
    work: Work,
    rows: Vec<(CUfunction, u32, u32)>, // function, blocks, launches
    graph: Option<CUgraphExec>,
    copied: Option<([CUdeviceptr; 2], usize)>, // between these two, so many bytes
    peer: Option<RefCell<exchange::Peer>>,
    ends_ns: Vec<u64>,
    memory: memory::Memory,
}

impl Player {
    fn of(work: &str) -> Result<Self, Refused> {
        let work = work.parse::<Work>().map_err(Refused::Order)?;
        Ok(Self::open(work)?)
    }

    fn open(work: Work) -> Result<Self, ClientError> {
        let names: Vec<String> = work.parts.iter().map(|part| work::name(part.us)).collect();
        let kernels =
            names.iter().zip(&work.parts).map(|(name, part)| Kernel::work(name, f64::from(part.us)));
        let others = [(CRASH, Body::Crash), (work::SPIN, Body::Spin)];
        let all: Vec<_> = kernels.chain(others.map(|(name, body)| Kernel { name, body })).collect();
        let driver = Driver::open_with(&all)?;
        let functions = names.iter().enumerate().map(|(n, name)| driver.function(name, n));
        let functions = functions.collect::<Result<Vec<_>, _>>()?;
        let rows =
            functions.into_iter().zip(&work.parts).map(|(f, part)| (f, part.blocks, part.count)).collect();
        let stream = driver.stream()?;
        let events = Events::new(&driver, stream)?;
        let memory = memory::Memory::open()?;
        let bytes = work.copied_mib.map(|mib| (mib as usize) << 20);
        let copied = bytes.map(|bytes| Ok::<_, ClientError>((memory.two(bytes)?, bytes))).transpose()?;
        let (graph, peer, ends_ns) = (None, None, Vec::new());
        let mut player = Self { driver, stream, events, work, rows, graph, copied, peer, ends_ns, memory };
        player.launch()?; // a first time, as programs do before they capture: kernels are loaded then
        player.driver.synchronize()?;
        if player.work.is_graph {
            let graphs = Graphs::open()?;
            let captured = graphs.capture(player.stream, || player.launch())?;
            player.graph = Some(graphs.instantiate(captured)?);
        }
        if player.work.exchanges {
            player.peer = Some(RefCell::new(exchange::Peer::start()?));
        }
        Ok(player)
    }

    /// A unit.
    fn launch(&self) -> Result<(), ClientError> {
        if let Some(graph) = self.graph {
            return self.driver.launch_graph(self.stream, graph);
        }
        if let Some((two, bytes)) = self.copied {
            return self.memory.copy_within(two, bytes, self.stream);
        }
        match &self.peer {
            Some(peer) => peer.borrow_mut().exchange(|| self.step()),
            None => self.launch_parts(),
        }
    }

    /// The kernels of a unit, one by one.
    fn launch_parts(&self) -> Result<(), ClientError> {
        for (function, blocks, count) in &self.rows {
            (0..*count).try_for_each(|_| self.driver.launch_into(self.stream, *function, *blocks))?;
        }
        Ok(())
    }

    /// The same, and waited for.
    fn step(&self) -> Result<(), ClientError> {
        self.launch_parts()?;
        self.driver.synchronize()
    }

    fn obey(
        &mut self,
        order: &str,
        orders: &Receiver<String>,
        next: &mut Option<String>,
    ) -> Result<Value, Refused> {
        let unknown = || Refused::Order(order.to_owned());
        let (word, rest) = order.split_once(' ').unwrap_or((order, ""));
        let number = || rest.trim().parse::<u64>().map_err(|_| unknown());
        Ok(match word {
            "round" => self.round(number()?)?,
            "steps" => self.steps(number()?)?,
            "go" => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let pause_us = words.iter().find_map(|word| word.parse().ok()).unwrap_or(0);
                self.go(Duration::from_micros(pause_us), words.contains(&"stamps"), orders, next)?
            }
            "stop" => json!({}),
            "stamps" => {
                let ends_ns = std::mem::take(&mut self.ends_ns);
                json!({"ends_ns": self.events.corrected(&self.driver, &ends_ns)?})
            }
            "serve" => self.serve(&list(rest).ok_or_else(unknown)?)?,
            "wake" => self.wake(&list(rest).ok_or_else(unknown)?)?,
            "span" => self.span(number()?)?,
            "costs" => self.costs()?,
            "crash" => self.crash()?,
            _ => match self.probe(word, number)? {
                Some(answer) => answer,
                None => self.memory.obey(&self.driver, word, rest)?.ok_or_else(unknown)?,
            },
        })
    }

    fn round(&self, units: u64) -> Result<Value, ClientError> {
        let start = Instant::now();
        for _ in 0..units {
            self.launch()?;
            if self.work.waits {
                self.driver.synchronize()?;
            }
        }
        self.driver.synchronize()?;
        Ok(json!({"s": start.elapsed().as_secs_f64()}))
    }

    fn steps(&self, count: u64) -> Result<Value, ClientError> {
        let Some(peer) = &self.peer else { return self.round(count) };
        let start = Instant::now();
        peer.borrow_mut().steps(u32::try_from(count).unwrap_or(u32::MAX), || self.step())?;
        Ok(json!({"s": start.elapsed().as_secs_f64()}))
    }

    /// Until there is another order, which becomes the next one.
    fn go(
        &mut self,
        pause: Duration,
        stamps: bool,
        orders: &Receiver<String>,
        next: &mut Option<String>,
    ) -> Result<Value, ClientError> {
        self.ends_ns.clear();
        let ahead = if self.work.waits || !pause.is_zero() { 0 } else { self.ahead() };
        let mut under_way = VecDeque::new();
        let began = DONE.load(Ordering::Relaxed);
        loop {
            match orders.try_recv() {
                Err(TryRecvError::Empty) => {}
                Ok(order) => break *next = Some(order),
                Err(TryRecvError::Disconnected) => break,
            }
            self.launch()?;
            under_way.push_back(self.events.mark()?);
            self.reap(&mut under_way, ahead, stamps)?;
            if !pause.is_zero() {
                std::thread::sleep(pause); // what a program does that waits for its data
            }
        }
        self.reap(&mut under_way, 0, stamps)?;
        Ok(json!({"went": DONE.load(Ordering::Relaxed) - began}))
    }

    /// Waits until so many units are under way at most.
    fn reap(
        &mut self,
        under_way: &mut VecDeque<usize>,
        most: usize,
        stamps: bool,
    ) -> Result<(), ClientError> {
        while under_way.len() > most {
            let Some(place) = under_way.pop_front() else { break };
            self.events.wait(place)?;
            count_one();
            if stamps {
                self.ends_ns.push(self.events.at(place)?);
            }
        }
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number of units")]
    fn ahead(&self) -> usize {
        ((AHEAD_US / self.work.unit_us()) as usize).clamp(AHEAD.0, AHEAD.1)
    }

    fn serve(&self, offsets_us: &[u64]) -> Result<Value, ClientError> {
        let start = Instant::now();
        let mut took_us = Vec::with_capacity(offsets_us.len());
        for offset in offsets_us {
            let due = start + Duration::from_micros(*offset);
            wait_until(due);
            self.launch()?;
            self.driver.synchronize()?;
            let took = due.elapsed();
            tell_latency(c"request", u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            took_us.push(took.as_secs_f64() * 1e6);
            count_one();
        }
        Ok(json!({"us": took_us}))
    }

    fn wake(&self, sleeps_us: &[u64]) -> Result<Value, ClientError> {
        let mut wakes = Vec::with_capacity(sleeps_us.len());
        for sleep in sleeps_us {
            std::thread::sleep(Duration::from_micros(*sleep)); // a service between two requests
            let launched = now();
            self.launch()?;
            self.driver.synchronize()?;
            wakes.push([launched, now()]);
        }
        Ok(json!({"wakes": wakes}))
    }

    fn span(&mut self, units: u64) -> Result<Value, ClientError> {
        self.driver.synchronize()?;
        let start = Instant::now();
        let first = self.events.mark()?;
        (0..units).try_for_each(|_| self.launch())?;
        let second = self.events.mark()?;
        self.events.wait(second)?;
        let host_ms = start.elapsed().as_secs_f64() * 1e3;
        Ok(json!({"gpu_ms": self.events.between_ms(first, second)?, "host_ms": host_ms}))
    }

    /// The median of what calls take of the host: a few at a time, so that no queue is full.
    fn costs(&mut self) -> Result<Value, ClientError> {
        let (function, blocks, _) = self.rows[0];
        let (mut launches, mut records, mut trips) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..100 {
            self.driver.synchronize()?;
            let start = Instant::now();
            (0..16).try_for_each(|_| self.driver.launch_into(self.stream, function, blocks))?;
            launches.push(start.elapsed().as_secs_f64() * 1e9 / 16.0);
            self.driver.synchronize()?;
            let start = Instant::now();
            (0..16).try_for_each(|_| self.events.record())?;
            records.push(start.elapsed().as_secs_f64() * 1e9 / 16.0);
            self.driver.synchronize()?;
            let start = Instant::now();
            self.driver.launch_into(self.stream, function, blocks)?;
            self.driver.synchronize()?;
            trips.push(start.elapsed().as_secs_f64() * 1e9);
        }
        let median = |samples: &[f64]| Spread::of(samples).median;
        Ok(json!({
            "launch_ns": median(&launches), "record_ns": median(&records), "round_trip_ns": median(&trips),
            "sms": self.memory.attribute(MULTIPROCESSOR_COUNT)?,
        }))
    }

    /// What the driver says of a kernel that writes where nothing is: the context is lost then.
    fn crash(&self) -> Result<Value, ClientError> {
        let function = self.driver.function(CRASH, self.rows.len())?;
        let outcome =
            self.driver.launch_into(self.stream, function, 1).and_then(|()| self.driver.synchronize());
        let code = |outcome: &Result<(), ClientError>| match outcome {
            Err(ClientError::Call { result, .. }) => result.0,
            _ => 0,
        };
        Ok(json!({"code": code(&outcome), "again": code(&self.driver.synchronize())}))
    }
}

fn list<T: for<'a> Deserialize<'a>>(text: &str) -> Option<Vec<T>> {
    serde_json::from_str(text).ok()
}

fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    std::thread::sleep(left.saturating_sub(SPIN));
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}
