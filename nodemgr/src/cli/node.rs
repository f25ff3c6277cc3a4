//! `weir node`: the daemon.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::signals::Signals;
use super::{Context, printer};
use crate::codes;
use crate::config::Config;
use crate::fault::Fault;
use crate::footprint;
use crate::gpus::{Device, Source};
use crate::manager::{Manager, Options, raise_file_limit};
use crate::notify::{self, Supervisor};
use crate::place::Place;

/// How often the daemon looks whether its lock file is still its own.
const WATCH: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Configuration file [default: /etc/weir/weir.toml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Policy for all GPUs; `weir policy` lists them [default: the configuration's, else weir]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let supervisor = Arc::new(Supervisor::from_environment());
    let kept = notify::handed_over();
    let options = Options { supervisor: supervisor.clone(), kept, ..options(context, args)? };
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init();
    // Blocked before the first thread starts, so that only this one hears them.
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]);
    raise_file_limit();
    let (base, policy) = (options.place.base().to_path_buf(), options.policy.name);
    let manager = Manager::start(options)?;
    for (index, gpu) in manager.gpus().iter().enumerate() {
        tracing::info!(index, uuid = gpu.uuid_text(), name = gpu.name, memory = %gpu.memory_total, "GPU");
    }
    if manager.gpus().iter().any(Device::is_simulated) {
        tracing::warn!("{}", printer::SIMULATED);
    }
    tracing::info!(dir = %base.display(), policy, "the node manager is ready");
    footprint::forget_start();
    supervisor.ready();
    let period = supervisor.period().map_or(WATCH, |period| period.min(WATCH));
    let mut epoch = 0;
    while signals.wait(Some(period)).is_none() {
        // A manager whose ticks stand still is none: it is not for us to say that it lives.
        let now = manager.epoch();
        if std::mem::replace(&mut epoch, now) != now && manager.is_whole() {
            supervisor.alive();
        }
        if manager.was_replaced() {
            let message =
                format!("somebody replaced the lock file or the control socket in `{}`", base.display());
            return Err(Fault::new(
                &codes::ALREADY_RUNS,
                message,
                "let only one node manager use the directory",
            ));
        }
    }
    supervisor.stopping();
    tracing::info!("the node manager ends; running programs keep their last grants");
    Ok(0)
}

/// Flags before the file, the file before the defaults.
fn options(context: &Context, args: &Args) -> Result<Options, Fault> {
    let mut config = Config::load(args.config.as_deref())?;
    let place = match (&context.dir, &config.dir) {
        (Some(dir), _) | (None, Some(dir)) => Place::at(dir)?,
        (None, None) => Place::standard(),
    };
    if args.policy.is_some() {
        config.policy.clone_from(&args.policy);
    }
    let wrong =
        |(what, help): (String, String)| Fault::new(&codes::CONFIG, format!("the command line {what}"), help);
    let mut options = Options::new(place, Source::Nvml);
    options.policy = config.policy().map_err(wrong)?;
    options.reserve = config.reserve().map_err(wrong)?;
    options.growth = config.growth().map_err(wrong)?;
    let card = config.calibration()?;
    options.switch = card.switch();
    options.draw = card.draw();
    options.context_memory = config.context_memory().map_err(wrong)?;
    if config.context_memory.is_none() {
        options.context_memory = card.context_memory().unwrap_or_default();
    }
    options.park_idle_after = config.park_idle_after();
    options.tick = config.tick();
    options.mode = config.mode.unwrap_or(options.mode);
    options.stale_after_s = config.stale_after_s.unwrap_or(options.stale_after_s);
    options.prices = config.price;
    options.tenants = config.tenants;
    options.unmanaged = config.unmanaged.unwrap_or_default();
    options.power = config.power.unwrap_or_default();
    options.gate = config.gate.unwrap_or_default().on(card.has_short_waits());
    options.mps = config.mps;
    options.signals = crate::signals::of(&config.signals);
    Ok(options)
}
