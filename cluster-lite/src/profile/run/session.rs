//! The program that is profiled, one run after another: started with a batch, resized while it runs, measured, ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use regex::Regex;
use weir_protocol::units::{Bytes, SmShare};

use super::manager::{Counters, Gpu, Manager};
use super::program::{Heard, Program};
use super::rate::{Source, Window};
use crate::fault::{Fault, USAGE};

/// What stands for the batch in a command.
pub const PLACEHOLDER: &str = "{batch}";

/// Exit code of a command that was interrupted, as shells have it.
pub(super) const INTERRUPTED: u8 = 130;

/// Between two looks at what gives no sign of itself: a page, a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Longest that a tenant may stay after its program has ended.
const LEAVING: Duration = Duration::from_secs(10);

/// How a program is run and measured.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The `weir` that runs it.
    pub weir: PathBuf,
    /// Directory of the node manager.
    pub dir: PathBuf,
    /// First part of the tenants' names.
    pub name: String,
    /// Index or UUID of the GPU.
    pub gpu: String,
    /// Its memory budget; absent: half of what is free.
    pub memory: Option<Bytes>,
    /// Where the rate comes from.
    pub rate: Source,
    /// Where latencies come from: a number of milliseconds in lines of stdout.
    pub latency: Option<Regex>,
    /// After a change of share this long is left out.
    pub settle: Duration,
    /// So long is measured at least.
    pub window: Duration,
    /// So long a rate is waited for.
    pub patience: Duration,
}

/// A setup, its node manager and the program that runs now.
pub struct Session<'a> {
    /// How it is run and measured.
    pub setup: &'a Setup,
    /// The GPU, as it was before.
    pub gpu: Gpu,
    manager: Manager,
    stop: Arc<AtomicBool>,
    runs: usize,
    now: Option<Running>,
}

/// A program that runs, and what it was given.
struct Running {
    program: Program,
    tenant: String,
    batch: u32,
    share: SmShare,
    settled: bool,
}

/// A command that runs beside the program.
pub struct Neighbour {
    program: Program,
    tenant: String,
    command: String,
    launches: u64,
}

impl<'a> Session<'a> {
    /// Connects to the node manager; `stop` is looked at all the time.
    ///
    /// # Errors
    /// If there is no node manager, no such GPU, or others have been guaranteed a part of it.
    pub fn open(setup: &'a Setup, stop: Arc<AtomicBool>) -> Result<Self, Fault> {
        let mut manager = Manager::connect(&setup.dir)?;
        let gpus = manager.stats()?.gpus;
        let names: Vec<_> = gpus.iter().map(|gpu| gpu.index.to_string()).collect();
        let gpu = gpus.into_iter().find(|gpu| gpu.index.to_string() == setup.gpu || gpu.uuid == setup.gpu);
        let gpu = gpu.ok_or_else(|| {
            let message = format!("the node manager has no GPU `{}`", setup.gpu);
            Fault::new(message, format!("choose from: {}", names.join(", "))).exit(USAGE)
        })?;
        if gpu.requested_permille > 0 {
            let taken = SmShare::permille(gpu.requested_permille);
            let message =
                format!("{taken} of GPU {} is guaranteed to others: a profile needs all of it", gpu.index);
            return Err(Fault::new(
                message,
                "profile where nobody else is, or end what `weir ps` shows there",
            ));
        }
        Ok(Self { setup, gpu, manager, stop, runs: 0, now: None })
    }

    /// Measures one window with this batch under this share.
    ///
    /// # Errors
    /// If the program ends, tells no rate in time, or somebody interrupts.
    pub fn measure(&mut self, batch: u32, share: SmShare) -> Result<Window, Fault> {
        self.run_with(batch)?;
        self.give(share)?;
        self.settle()?;
        let mut window = Window::default();
        let began = Instant::now();
        let setup = self.setup;
        let is_told = self.watch(|heard| {
            if let Some(line) = heard {
                window.line(&setup.rate, setup.latency.as_ref(), line)?;
            } else {
                window.page(&setup.rate)?;
            }
            Ok(began.elapsed() >= setup.window && window.rate(&setup.rate).is_some())
        })?;
        if is_told { Ok(window) } else { Err(self.silent()) }
    }

    /// What the program's tenant has done so far.
    ///
    /// # Errors
    /// If the node manager is gone, or the program.
    pub fn counters(&mut self) -> Result<Counters, Fault> {
        let Some(running) = &self.now else { return Ok(Counters::default()) };
        let stats = self.manager.stats()?;
        match stats.counters(&running.tenant, self.gpu.index) {
            Some(counters) => Ok(counters.clone()),
            None => Err(self.ended()),
        }
    }

    /// Runs another command as a filler beside the program, until the value that is returned is dropped; it launches by then. What is
    /// measured next settles first.
    ///
    /// # Errors
    /// If it does not.
    pub fn beside(&mut self, command: &str) -> Result<Neighbour, Fault> {
        let tenant = self.next_name("beside");
        let memory = Bytes(self.free_bytes()? / 2);
        let words = ["sh", "-c", command].map(str::to_owned);
        let program = Program::start(&self.words(&tenant, "filler", SmShare::ZERO, memory, &words))?;
        let deadline = Instant::now() + self.setup.patience;
        loop {
            let stats = self.manager.stats()?;
            let launches = stats.counters(&tenant, self.gpu.index).map_or(0, |counters| counters.launches);
            if launches > 0 {
                self.now.iter_mut().for_each(|running| running.settled = false);
                return Ok(Neighbour { program, tenant, command: command.to_owned(), launches });
            }
            if matches!(program.hear(LOOK), Heard::End) || Instant::now() >= deadline {
                let message =
                    format!("the neighbour launches nothing: `{command}`\n  | {}", program.last_words());
                return Err(Fault::new(
                    message,
                    "give a command that launches kernels for ever, with --beside",
                ));
            }
            self.look_for_interruption()?;
        }
    }

    /// Whether the neighbour has launched since the last look, and is there.
    ///
    /// # Errors
    /// If it has ended, or rested: beside that nothing was measured.
    pub fn look_at(&mut self, neighbour: &mut Neighbour) -> Result<(), Fault> {
        let stats = self.manager.stats()?;
        let launches = stats.counters(&neighbour.tenant, self.gpu.index).map(|counters| counters.launches);
        let how = match launches {
            Some(launches) if launches > neighbour.launches => {
                neighbour.launches = launches;
                return Ok(());
            }
            Some(_) => "has launched nothing",
            None => "has ended",
        };
        let (command, said) = (&neighbour.command, neighbour.program.last_words());
        let message = format!("the neighbour {how} while the program was measured: `{command}`\n  | {said}");
        Err(Fault::new(message, "give a command that launches kernels for ever, with --beside"))
    }

    /// Ends the program, and waits until its budget is free.
    ///
    /// # Errors
    /// If it stays.
    pub fn end(&mut self) -> Result<(), Fault> {
        let Some(Running { program, tenant, .. }) = self.now.take() else { return Ok(()) };
        drop(program);
        let deadline = Instant::now() + LEAVING;
        while self.manager.stats()?.tenants.iter().any(|row| row.name == tenant) {
            if Instant::now() >= deadline {
                let message = format!("tenant `{tenant}` stays though its program was ended");
                return Err(Fault::new(message, "look at `weir ps` for processes of it that left its group"));
            }
            std::thread::park_timeout(LOOK);
        }
        Ok(())
    }

    fn run_with(&mut self, batch: u32) -> Result<(), Fault> {
        if self.now.as_ref().is_some_and(|running| running.batch == batch) {
            return Ok(());
        }
        self.end()?;
        let tenant = self.next_name("profile");
        let memory = self.setup.memory.map_or_else(|| self.free_bytes().map(|free| Bytes(free / 2)), Ok)?;
        let batch_text = batch.to_string();
        let command: Vec<_> =
            self.setup.command.iter().map(|word| word.replace(PLACEHOLDER, &batch_text)).collect();
        let program = Program::start(&self.words(&tenant, "primary", SmShare::FULL, memory, &command))?;
        self.now = Some(Running { program, tenant, batch, share: SmShare::FULL, settled: false });
        // A page may be there before the program does anything; lines are not.
        if matches!(self.setup.rate, Source::Page { .. }) { self.await_launch() } else { Ok(()) }
    }

    /// Waits until the program launches, or patience ends: who launches nothing then is told later.
    fn await_launch(&mut self) -> Result<(), Fault> {
        let deadline = Instant::now() + self.setup.patience;
        while Instant::now() < deadline {
            self.look_for_interruption()?;
            let stats = self.manager.stats()?;
            let Some(running) = &self.now else { return Ok(()) };
            let counters = stats.counters(&running.tenant, self.gpu.index);
            if counters.is_some_and(|counters| counters.launches > 0) {
                return Ok(());
            }
            if matches!(running.program.hear(LOOK), Heard::End) {
                return Err(self.ended());
            }
        }
        Ok(())
    }

    /// The command line of `weir run`.
    fn words(
        &self,
        tenant: &str,
        class: &str,
        request: SmShare,
        memory: Bytes,
        command: &[String],
    ) -> Vec<String> {
        let Setup { weir, dir, gpu, .. } = self.setup;
        let share = format!("{}%", request.as_percent());
        let memory = format!("{}B", memory.0);
        let weir = [weir.display().to_string(), "--dir".into(), dir.display().to_string()];
        let flags = ["run", "--name", tenant, "--gpu", gpu, "--class", class, "--request", &share];
        let flags = flags.into_iter().chain(["--memory", &memory, "--"]).map(str::to_owned);
        weir.into_iter().chain(flags).chain(command.iter().cloned()).collect()
    }

    fn next_name(&mut self, role: &str) -> String {
        self.runs += 1;
        format!("{}-{role}-{}-{}", self.setup.name, std::process::id(), self.runs)
    }

    fn free_bytes(&mut self) -> Result<u64, Fault> {
        let gpus = self.manager.stats()?.gpus;
        let gpu = gpus.into_iter().find(|gpu| gpu.index == self.gpu.index);
        Ok(gpu.map_or(0, |gpu| gpu.memory_usable_bytes.saturating_sub(gpu.memory_limits_bytes)))
    }

    /// Resizes the program while it runs. Before it has told its first rate it is not there for the manager, perhaps.
    fn give(&mut self, share: SmShare) -> Result<(), Fault> {
        if self.now.as_ref().is_some_and(|running| running.share == share) {
            return Ok(());
        }
        self.settle()?;
        let Some(running) = &mut self.now else { return Ok(()) };
        if let Err(fault) = self.manager.set_share(&running.tenant, share) {
            return Err(if matches!(running.program.hear(Duration::ZERO), Heard::End) {
                self.ended()
            } else {
                fault
            });
        }
        (running.share, running.settled) = (share, false);
        Ok(())
    }

    /// Leaves out what is still of the share before: the settling time, and the number that the program has averaged over it. A page may
    /// come up later than the program, and so may a metric on it.
    fn settle(&mut self) -> Result<(), Fault> {
        if self.now.as_ref().is_none_or(|running| running.settled) {
            return Ok(());
        }
        let (setup, began) = (self.setup, Instant::now());
        let (mut told, mut unread) = (false, None);
        let is_told = self.watch(|heard| {
            let is_over = began.elapsed() >= setup.settle;
            told |= match (&setup.rate, heard) {
                (Source::Pattern(pattern), Some(line)) => is_over && pattern.is_match(&line.text),
                (Source::Lines, Some(_)) => is_over,
                (Source::Page { .. }, None) if !told => {
                    unread = Window::default().page(&setup.rate).err();
                    unread.is_none()
                }
                _ => false,
            };
            Ok(is_over && told)
        })?;
        if !is_told {
            return Err(unread.unwrap_or_else(|| self.silent()));
        }
        if let Some(running) = &mut self.now {
            running.settled = true;
        }
        Ok(())
    }

    /// Hears the program, line by line and every [`LOOK`] in between, until `is_enough`; whether it was, before patience ended.
    fn watch(
        &mut self,
        mut is_enough: impl FnMut(Option<&super::program::Line>) -> Result<bool, Fault>,
    ) -> Result<bool, Fault> {
        let deadline = Instant::now() + self.setup.patience;
        let mut look_at = Instant::now() + LOOK;
        loop {
            self.look_for_interruption()?;
            let Some(running) = &self.now else { return Ok(true) };
            let mut enough = match running.program.hear(look_at.saturating_duration_since(Instant::now())) {
                Heard::Line(line) => is_enough(Some(&line))?,
                Heard::Silence => false,
                Heard::End => return Err(self.ended()),
            };
            if Instant::now() >= look_at {
                look_at = Instant::now() + LOOK;
                enough |= is_enough(None)?;
            }
            if enough {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
    }

    fn look_for_interruption(&self) -> Result<(), Fault> {
        if !self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(Fault::new("interrupted: nothing was written", "run it again").exit(INTERRUPTED))
    }

    /// Why the program is not there any more.
    fn ended(&mut self) -> Fault {
        let Some(running) = &mut self.now else { return Fault::new("the program has ended", "run it again") };
        let how = running.program.ended().map_or("without a status".into(), |status| status.to_string());
        let said = running.program.last_words();
        let said = if said.is_empty() { said } else { format!("\n  | {said}") };
        let help = "give it work that lasts until it is stopped: a search takes a minute and more";
        Fault::new(format!("the program ended before it was measured ({how}){said}"), help)
    }

    fn silent(&self) -> Fault {
        let (what, help) = match &self.setup.rate {
            Source::Pattern(pattern) => (
                format!("no line of its stdout has a number above zero for `{pattern}`"),
                "correct --rate, and let the program flush each line (python -u)",
            ),
            Source::Lines => (
                "it prints too few lines".into(),
                "let it print a line for each step and flush it (python -u), or give --rate or --rate-from",
            ),
            Source::Page { url, metric } => {
                (format!("`{metric}` at {url} shows no progress"), "name a counter of work that is done")
            }
        };
        let seconds = self.setup.patience.as_secs_f64();
        Fault::new(format!("no rate within {seconds} s: {what}"), help)
    }
}
