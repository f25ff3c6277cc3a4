//! One tenant of a scenario as a real process: the steps that the simulator would take, on a driver, in real time.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use weir_abi::types::CUfunction;
use weir_nodemgr::sim::{START, Scenario, Script, Step, Told};

use super::{GRACE, kernel_name};
use crate::client::{self, Driver};

/// Which scenario, and which of its tenants.
#[derive(clap::Args)]
pub struct PlayerOptions {
    scenario: PathBuf,
    tenant: usize,
}

/// Plays, and tells on stdout what came of it. Its first line says that it is ready; the moment at which the scenario begins
/// is the first that it hears, on the monotonic clock.
pub fn run(options: &PlayerOptions) -> io::Result<ExitCode> {
    let scenario = Scenario::read(&options.scenario).map_err(|fault| io::Error::other(fault.to_string()))?;
    let mut stage = Stage::open(&scenario).map_err(io::Error::other)?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "ready")?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    stage.begins = line.trim().parse().map_err(io::Error::other)?;
    let told = stage.play(&scenario, options.tenant)?;
    writeln!(stdout, "{}", serde_json::to_string(&told).map_err(io::Error::other)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The driver, and the scenario's clock.
struct Stage {
    driver: Driver,
    stream: weir_abi::types::CUstream,
    functions: BTreeMap<u64, CUfunction>,
    begins: u64,
}

impl Stage {
    fn open(scenario: &Scenario) -> Result<Self, crate::client::ClientError> {
        let kernels: Vec<u64> = scenario.kernels().into_iter().collect();
        let names: Vec<String> = kernels.iter().map(|ns| kernel_name(*ns)).collect();
        let driver = Driver::open(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        let found = names.iter().enumerate().map(|(n, name)| driver.function(name, n));
        let functions = found.collect::<Result<Vec<_>, _>>()?;
        let stream = driver.stream()?;
        Ok(Self { driver, stream, functions: kernels.into_iter().zip(functions).collect(), begins: 0 })
    }

    fn now(&self) -> u64 {
        (super::now() + START).saturating_sub(self.begins)
    }

    /// Until the window is over, and what came in it is served.
    fn play(&self, scenario: &Scenario, tenant: usize) -> io::Result<Told> {
        let mut script = Script::of(scenario, tenant).ok_or(io::ErrorKind::NotFound)?;
        let metric = scenario.tenant[tenant].slo_on.name();
        let end = scenario.window().to + GRACE;
        self.rest(START);
        while self.now() < end {
            let step = script.next(self.now());
            script.news().into_iter().for_each(|latency| client::tell_latency(metric, latency));
            match step {
                Step::Launch(kernel) => {
                    let function = self.functions.get(&kernel.solo).ok_or(io::ErrorKind::NotFound)?;
                    self.driver.launch_into(self.stream, *function, 1).map_err(io::Error::other)?;
                }
                Step::Synchronise => self.driver.synchronize().map_err(io::Error::other)?,
                Step::Rest(until) => self.rest(until.min(end)),
                Step::End => break,
            }
        }
        Ok(script.told())
    }

    fn rest(&self, until: u64) {
        std::thread::sleep(Duration::from_nanos(until.saturating_sub(self.now())));
    }
}
