//! The configuration file: `/etc/weir/weir.toml`, or the one that is named. A missing default file is fine, a
//! missing named one is not, and of a file with a mistake nothing is used.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

mod gate;
mod origin;
mod tenant;

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use weir_protocol::message::FailMode;
use weir_protocol::price::PriceRow;
use weir_protocol::units::{Bytes, Nanos};

use crate::calibration::Calibration;
use crate::codes;
use crate::fault::Fault;
use crate::guard::Rule;
use crate::mps;
use crate::nearest::nearest;
use crate::place::own_uid;
use crate::registry::PowerRule;
use crate::signals::SignalRow;
pub use gate::GatePlace;
pub use origin::{Origin, Said, Setting};
pub use tenant::{Persistent, TenantRow};

/// Where the file lies if nobody says otherwise.
pub const STANDARD: &str = "/etc/weir/weir.toml";

/// Keys of the file.
const KEYS: &str = "dir, policy, tick_us, mode, stale_after_s, unmanaged, power, memory_reserve, growth_reserve, context_memory, calibration, park_idle_s, price, tenant, signals, mps, gate";

/// Shortest and longest tick, in microseconds: below, the manager would take a core; above, a loan would be felt.
const TICK_RANGE_US: std::ops::RangeInclusive<u64> = 100..=100_000;

/// Shortest and longest time without work after which a tenant may be parked, in seconds: a park and its way back take seconds
/// of their own, and after a day nobody is merely idle.
const PARK_IDLE_RANGE_S: std::ops::RangeInclusive<u64> = 1..=86_400;

/// After so many seconds without a manager a strict tenant gets no more memory, if nobody says otherwise.
pub const STALE_AFTER_S: u64 = 600;

/// Shortest and longest such time: a manager that is replaced is back within ten seconds at most, or within one.
const STALE_AFTER_RANGE_S: std::ops::RangeInclusive<u64> = 1..=86_400;

/// What stands in the file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Base directory.
    pub dir: Option<PathBuf>,
    /// Policy by name.
    pub policy: Option<String>,
    /// Length of a tick, in microseconds.
    pub tick_us: Option<u64>,
    /// `managed` or `strict`.
    pub mode: Option<FailMode>,
    /// After how many seconds without a manager a strict tenant gets no more memory.
    pub stale_after_s: Option<u64>,
    /// What follows for processes on a GPU that have no budget.
    pub unmanaged: Option<Rule>,
    /// What follows where power or heat holds clocks back.
    pub power: Option<PowerRule>,
    /// Memory of each card that is nobody's, as a size.
    pub memory_reserve: Option<String>,
    /// What the contexts of one process may grow by, as a size.
    pub growth_reserve: Option<String>,
    /// What a context takes of a card where NVML cannot tell, as a size.
    pub context_memory: Option<String>,
    /// The card's calibration file.
    pub calibration: Option<PathBuf>,
    /// After how many seconds without work a tenant may be parked.
    pub park_idle_s: Option<u64>,
    /// What kernels cost before they are measured.
    #[serde(default)]
    pub price: Vec<PriceRow>,
    /// Tenants that are there from the start, as they are written.
    #[serde(default)]
    pub tenant: Vec<Spanned<TenantRow>>,
    /// What comes from outside the node, by name.
    #[serde(default)]
    pub signals: BTreeMap<String, SignalRow>,
    /// GPUs that are shared by MPS.
    pub mps: Option<mps::Row>,
    /// Where launches wait that may not go yet.
    pub gate: Option<GatePlace>,
    /// The tenants, checked.
    #[serde(skip)]
    pub tenants: Vec<Persistent>,
    #[serde(skip)]
    lines: BTreeMap<String, String>, // of the keys that stand in the file
}

impl Config {
    /// Reads the named file, or the standard one if it is there.
    ///
    /// # Errors
    /// [`codes::CONFIG`], with the line where there is one.
    pub fn load(named: Option<&Path>) -> Result<Self, Fault> {
        match named {
            Some(path) => Self::read(path),
            None if Path::new(STANDARD).exists() => Self::read(Path::new(STANDARD)),
            None => Ok(Self::default()),
        }
    }

    fn read(path: &Path) -> Result<Self, Fault> {
        check_file(path)?;
        let failed =
            |error: std::io::Error| refuse(path, format!("cannot be read: {error}"), "give a TOML file");
        let bytes = std::fs::read(path).map_err(failed)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            refuse(path, format!("is not UTF-8 (byte {at})"), "save it as UTF-8")
        })?;
        if text.trim().is_empty() {
            return Err(refuse(path, "is empty".into(), "write at least one setting, or remove the file"));
        }
        Self::parse(&text, path)
    }

    /// The configuration in `text`; `path` is for messages only.
    ///
    /// # Errors
    /// [`codes::CONFIG`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Fault> {
        let mut config: Self =
            toml::from_str(text).map_err(|error| misunderstood(&codes::CONFIG, text, path, &error))?;
        config.check().map_err(|(message, help)| refuse(path, message, &help))?;
        config.tenants = tenant::read(&config.tenant, text, path)?;
        config.lines = origin::lines(text, path);
        Ok(config)
    }

    fn check(&self) -> Result<(), (String, String)> {
        self.policy()?;
        self.reserve()?;
        self.growth()?;
        self.context_memory()?;
        let tick = self.tick_us.unwrap_or(1_000);
        if !TICK_RANGE_US.contains(&tick) {
            let (least, most) = (TICK_RANGE_US.start(), TICK_RANGE_US.end());
            return Err((format!("has tick_us = {tick}"), format!("choose {least} to {most} microseconds")));
        }
        if let Some(idle) = self.park_idle_s.filter(|idle| !PARK_IDLE_RANGE_S.contains(idle)) {
            let (least, most) = (PARK_IDLE_RANGE_S.start(), PARK_IDLE_RANGE_S.end());
            return Err((format!("has park_idle_s = {idle}"), format!("choose {least} to {most} seconds")));
        }
        if let Some(after) = self.stale_after_s.filter(|after| !STALE_AFTER_RANGE_S.contains(after)) {
            let (least, most) = (STALE_AFTER_RANGE_S.start(), STALE_AFTER_RANGE_S.end());
            return Err((
                format!("has stale_after_s = {after}"),
                format!("choose {least} to {most} seconds"),
            ));
        }
        if self.mode == Some(FailMode::Standalone) {
            let help = "choose \"managed\" or \"strict\"; `weir run` is stand-alone by itself when there is no daemon";
            return Err(("has mode = \"standalone\"".into(), help.into()));
        }
        if let Some(row) = self.price.iter().find(|row| !row.makes_sense()) {
            let help =
                "give time_us or ns_per_block, a number of zero or more, or bandwidth_percent, 0 to 100";
            return Err((format!("has a [[price]] row `{}` that tells no price", row.name), help.into()));
        }
        if let Some(path) = self.mps.as_ref().map(mps::Row::pipe_directory).filter(|path| !path.is_absolute())
        {
            let help = "name it from the root on, such as /tmp/nvidia-mps".to_owned();
            return Err((format!("has [mps] where pipe_directory is `{}`", path.display()), help));
        }
        for (name, signal) in &self.signals {
            signal.check().map_err(|(what, help)| (format!("has [signals.{name}] where {what}"), help))?;
        }
        Ok(())
    }

    /// The policy.
    ///
    /// # Errors
    /// Message and help, if there is none of this name.
    pub fn policy(&self) -> Result<&'static weir_policy::Row, (String, String)> {
        let name = self.policy.as_deref().unwrap_or(weir_policy::POLICIES[0].name);
        weir_policy::find(name).ok_or_else(|| {
            let names: Vec<_> = weir_policy::POLICIES.iter().map(|row| row.name).collect();
            (format!("names an unknown policy `{name}`"), format!("choose from: {}", names.join(", ")))
        })
    }

    /// The memory reserve of each card.
    ///
    /// # Errors
    /// Message and help, if it is no size.
    pub fn reserve(&self) -> Result<Option<Bytes>, (String, String)> {
        size("memory_reserve", self.memory_reserve.as_ref())
    }

    /// What a process's contexts may grow by.
    ///
    /// # Errors
    /// Message and help, if it is no size.
    pub fn growth(&self) -> Result<Option<Bytes>, (String, String)> {
        size("growth_reserve", self.growth_reserve.as_ref())
    }

    /// What a context costs; 0 if that is not configured.
    ///
    /// # Errors
    /// Message and help, if it is no size.
    pub fn context_memory(&self) -> Result<Bytes, (String, String)> {
        Ok(size("context_memory", self.context_memory.as_ref())?.unwrap_or(Bytes(0)))
    }

    /// What the card was measured to be like; nothing if no such file is named.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn calibration(&self) -> Result<Calibration, Fault> {
        let read = self.calibration.as_deref().map(Calibration::read).transpose();
        read.map(Option::unwrap_or_default)
            .map_err(|(message, help)| Fault::new(&codes::CONFIG, message, help))
    }

    /// After how long without work a tenant may be parked.
    pub fn park_idle_after(&self) -> Option<Nanos> {
        self.park_idle_s.map(Nanos::from_secs)
    }

    /// The tick.
    pub fn tick(&self) -> Nanos {
        Nanos::from_micros(self.tick_us.unwrap_or(1_000))
    }
}

fn size(key: &str, text: Option<&String>) -> Result<Option<Bytes>, (String, String)> {
    let parse = |text: &String| {
        text.parse().map_err(|e: weir_protocol::units::UnitError| {
            (format!("has a {key} that is no size: {e}"), e.hint().to_owned())
        })
    };
    text.map(parse).transpose()
}

fn refuse(path: &Path, what: String, help: &str) -> Fault {
    Fault::new(&codes::CONFIG, format!("`{}` {what}", path.display()), help)
}

/// What can be said of a file before it is read.
fn check_file(path: &Path) -> Result<(), Fault> {
    let meta = std::fs::metadata(path).map_err(|error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => format!(
                "name a file that is there; docs/weir.toml.example has every key with its default: {KEYS}"
            ),
            _ => "name a file that can be read".to_owned(),
        };
        refuse(path, format!("cannot be read: {error}"), &help)
    })?;
    if meta.is_dir() {
        return Err(refuse(path, "is a directory".into(), "name the file in it"));
    }
    if meta.mode() & 0o002 != 0 {
        let help = format!("chmod o-w {}", path.display());
        return Err(refuse(path, "can be written by everybody".into(), &help));
    }
    if meta.uid() != 0 && meta.uid() != own_uid() {
        let help = format!("chown root {}", path.display());
        return Err(refuse(
            path,
            format!("belongs to user {}, who could set budgets through it", meta.uid()),
            &help,
        ));
    }
    Ok(())
}

/// A fault that points at its line, with the nearest key where one is unknown.
pub(crate) fn misunderstood(row: &codes::Row, text: &str, path: &Path, error: &toml::de::Error) -> Fault {
    let message = error.message().lines().next().unwrap_or_default().to_owned();
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let help = match unknown {
        Some((key, expected)) => {
            // Every other part between backticks is a key that could stand there.
            let keys: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
            let near = nearest(key, keys.iter().copied());
            near.map_or_else(
                || format!("the keys are: {}", keys.join(", ")),
                |key| format!("did you mean `{key}`?"),
            )
        }
        None if row.code == codes::CONFIG.code => {
            "correct the line, then look at the file with `weir check`".to_owned()
        }
        None => "correct the line".to_owned(),
    };
    let shown = unknown.map_or_else(|| message.clone(), |(key, _)| format!("unknown key `{key}`"));
    let fault = Fault::new(row, format!("`{}` is not understood: {shown}", path.display()), help);
    match error.span() {
        Some(span) => fault.at(line_of(text, path, &span)),
        None => fault,
    }
}

/// Where a span begins, as `file:line:column`.
fn line_of(text: &str, path: &Path, span: &std::ops::Range<usize>) -> String {
    let before = text.get(..span.start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{}:{line}:{column}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../docs/weir.toml.example");

    fn parsed(text: &str) -> Config {
        Config::parse(text, Path::new("weir.toml.example")).unwrap()
    }

    #[test]
    fn the_example_as_it_stands_sets_nothing_but_the_defaults() {
        let (example, default) = (parsed(EXAMPLE), Config::default());
        let in_effect = |c: &Config| {
            (c.policy().unwrap().name, c.tick(), c.mode.unwrap_or(FailMode::Managed), c.reserve().unwrap())
        };
        assert_eq!(in_effect(&example), in_effect(&default));
        assert_eq!(
            (example.dir, example.price, example.unmanaged, example.power),
            (default.dir, default.price, Some(Rule::Report), Some(PowerRule::BackOff))
        );
        let place = crate::place::Place::standard();
        assert_eq!(
            crate::Options::new(place, crate::gpus::Source::Fixed(Vec::new())).mode,
            FailMode::Managed
        );
    }

    #[test]
    fn the_example_has_every_key() {
        let live = |line: &str| {
            let setting = line.strip_prefix('#').filter(|rest| !rest.starts_with(' '));
            setting.unwrap_or(line).to_owned() + "\n"
        };
        let all = parsed(&EXAMPLE.lines().map(live).collect::<String>());
        // By name, so that a new key does not compile until it stands in the example.
        let Config {
            dir,
            policy,
            tick_us,
            mode,
            stale_after_s,
            unmanaged,
            power,
            memory_reserve,
            growth_reserve,
            context_memory,
            calibration,
            park_idle_s,
            price,
            tenant,
            signals,
            mps,
            gate,
            ..
        } = all;
        assert!(
            dir.is_some()
                && policy.is_some()
                && tick_us.is_some()
                && mode.is_some()
                && stale_after_s.is_some()
                && unmanaged.is_some()
                && power.is_some()
                && memory_reserve.is_some()
                && growth_reserve.is_some()
                && context_memory.is_some()
                && calibration.is_some()
                && park_idle_s.is_some()
                && gate.is_some()
        );
        let told = |says: fn(&PriceRow) -> bool| price.iter().any(says);
        assert!(told(|row| row.time_us.is_some()) && told(|row| row.ns_per_block.is_some()));
        assert!(told(|row| row.bandwidth_percent.is_some()));
        has_every_key(tenant[0].as_ref());
        assert!(mps.is_some_and(|row| row.gpu.is_some() && row.pipe_directory.is_some()));
        assert!(signals.values().all(|row| row.every_s.is_some()) && !signals.is_empty());
    }

    fn has_every_key(row: &TenantRow) {
        let TenantRow {
            name: _,
            gpu,
            request,
            limit,
            memory,
            copy_limit,
            class,
            oversubscribe,
            owner,
            slo,
            latency_from,
        } = row;
        assert!([request, limit, memory, copy_limit, slo].iter().all(|text| text.is_some()));
        let others = [
            gpu.is_some(),
            class.is_some(),
            oversubscribe.is_some(),
            owner.is_some(),
            latency_from.is_some(),
        ];
        assert!(others.iter().all(|given| *given));
    }
}
