//! Where each setting comes from: a flag, the environment, a line of the file, or nowhere, and then it is the default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use toml::de::DeTable;
use weir_protocol::message::FailMode;

use super::{Config, Persistent, STALE_AFTER_S, line_of};
use crate::control::schema::Budget;
use crate::registry::{DEFAULT_GROWTH, budget_of};

/// A setting with its value and where that comes from.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The key, as in the file.
    pub key: String,
    /// The value in effect.
    pub value: String,
    /// Where it comes from.
    #[serde(flatten)]
    pub from: Origin,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "from", content = "at", rename_all = "snake_case")]
pub enum Origin {
    /// Nobody has said anything.
    Default,
    /// A line of the file.
    File(String),
    /// An operator, by `weir set`, since that line of the file was read.
    Set(String),
    /// A flag of the command line.
    Flag(&'static str),
    /// An environment variable: it names a place, never a limit.
    Environment(&'static str),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(at) => f.write_str(at),
            Self::Set(at) => write!(f, "weir set, over {at}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Environment(name) => write!(f, "${name}"),
        }
    }
}

/// What the command line and the environment say.
#[derive(Debug, Default)]
pub struct Said<'a> {
    /// `--dir`.
    pub dir: Option<&'a Path>,
    /// `--policy`.
    pub policy: Option<&'a str>,
    /// Where the manager lies if neither flag nor file says so.
    pub standard_dir: PathBuf,
    /// Whether that comes from `WEIR_NODE_DIR`.
    pub dir_from_environment: bool,
    /// The tenants' budgets where the manager is to run, as it has them or the one before has left them: name, by the
    /// configuration that was read there, and now.
    pub budgets: Vec<(String, Budget, Budget)>,
}

/// Line of each top-level key.
pub(super) fn lines(text: &str, path: &Path) -> BTreeMap<String, String> {
    // What does not parse is told by whoever reads the values.
    let Ok(table) = DeTable::parse(text) else { return BTreeMap::new() };
    let line = |span| line_of(text, path, &span);
    table.get_ref().iter().map(|(key, _)| (key.get_ref().to_string(), line(key.span()))).collect()
}

impl Config {
    /// Every setting, in the order of the example.
    pub fn settings(&self, said: &Said<'_>) -> Vec<Setting> {
        let in_file = |key: &str| self.lines.get(key).map_or(Origin::Default, |at| Origin::File(at.clone()));
        let row = |key: &str, value: String| Setting { key: key.into(), value, from: in_file(key) };
        let bytes = |bytes: Option<String>| bytes.unwrap_or_else(|| "a fiftieth of the card".into());
        let mut all = vec![
            self.dir_setting(said, in_file("dir")),
            self.policy_setting(said, in_file("policy")),
            row("tick_us", (self.tick().0 / 1_000).to_string()),
            row("mode", mode_name(self.mode.unwrap_or(FailMode::Managed)).into()),
            row("stale_after_s", self.stale_after_s.unwrap_or(STALE_AFTER_S).to_string()),
            row("unmanaged", self.unmanaged.unwrap_or_default().as_str().into()),
            row("power", self.power.unwrap_or_default().as_str().into()),
            row("memory_reserve", bytes(self.memory_reserve.clone())),
            row("growth_reserve", self.growth_reserve.clone().unwrap_or_else(|| DEFAULT_GROWTH.to_string())),
            row("context_memory", self.context_memory.clone().unwrap_or_else(|| "not configured".into())),
            row(
                "calibration",
                self.calibration.as_ref().map_or("none".into(), |path| path.display().to_string()),
            ),
            row("park_idle_s", self.park_idle_s.map_or("never".into(), |idle| idle.to_string())),
            row("price", format!("{} rows", self.price.len())),
        ];
        all.push(row("gate", self.gate.unwrap_or_default().name().to_owned()));
        if let Some(mps) = &self.mps {
            let gpus = mps.gpu.as_ref().map_or_else(|| "all".to_owned(), |gpus| gpus.join(", "));
            all.push(row("mps", format!("GPUs {gpus}, by {}", mps.pipe_directory().display())));
        }
        for (name, signal) in &self.signals {
            let value = format!("{}: full {}, none {}", signal.from, signal.full, signal.none);
            all.push(Setting { key: format!("signals.{name}"), value, from: in_file("signals") });
        }
        for tenant in &self.tenants {
            all.push(tenant_setting(tenant, said));
        }
        all
    }

    fn dir_setting(&self, said: &Said<'_>, in_file: Origin) -> Setting {
        let (value, from) = match (said.dir, &self.dir) {
            (Some(dir), _) => (dir.to_path_buf(), Origin::Flag("--dir")),
            (None, Some(dir)) => (dir.clone(), in_file),
            (None, None) if said.dir_from_environment => {
                (said.standard_dir.clone(), Origin::Environment("WEIR_NODE_DIR"))
            }
            (None, None) => (said.standard_dir.clone(), Origin::Default),
        };
        Setting { key: "dir".into(), value: value.display().to_string(), from }
    }

    fn policy_setting(&self, said: &Said<'_>, in_file: Origin) -> Setting {
        let (value, from) = match said.policy {
            Some(policy) => (policy.to_owned(), Origin::Flag("--policy")),
            None => {
                let default = weir_policy::POLICIES[0].name;
                (self.policy.as_deref().unwrap_or(default).to_owned(), in_file)
            }
        };
        Setting { key: "policy".into(), value, from }
    }
}

/// A tenant with the budget that it would have: that of its row, or what was set while the row was the same.
fn tenant_setting(tenant: &Persistent, said: &Said<'_>) -> Setting {
    let Persistent { wanted, owner, at } = tenant;
    let written = budget_of(wanted);
    let stands = said
        .budgets
        .iter()
        .find(|(name, configured, _)| *name == wanted.name && Some(*configured) == written);
    let set = stands.map(|(.., now)| *now).filter(|now| Some(*now) != written);
    let from = if set.is_some() { Origin::Set(at.clone()) } else { Origin::File(at.clone()) };
    let budget = set.or(written).map(|budget| format!(", {budget}")).unwrap_or_default();
    let value = format!("{}, user {owner}{budget}", wanted.class.as_str());
    Setting { key: format!("tenant {}", wanted.name), value, from }
}

const fn mode_name(mode: FailMode) -> &'static str {
    match mode {
        FailMode::Standalone => "standalone",
        FailMode::Managed => "managed",
        FailMode::Strict => "strict",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
        let text = "# a comment\npolicy = \"static\"\ndir = \"/srv/weir\"\n";
        let config = Config::parse(text, Path::new("w.toml")).unwrap();
        let from = |said: &Said<'_>, key: &str| {
            let setting = config.settings(said).into_iter().find(|setting| setting.key == key).unwrap();
            (setting.value, setting.from)
        };
        let silent = Said::default();
        assert_eq!(from(&silent, "policy"), ("static".into(), Origin::File("w.toml:2:1".into())));
        assert_eq!(from(&silent, "tick_us"), ("1000".into(), Origin::Default));
        assert_eq!(from(&silent, "dir").1, Origin::File("w.toml:3:1".into()));
        let flags = Said { dir: Some(Path::new("/x")), policy: Some("other"), ..Said::default() };
        assert_eq!(from(&flags, "policy"), ("other".into(), Origin::Flag("--policy")));
        assert_eq!(from(&flags, "dir"), ("/x".into(), Origin::Flag("--dir")));
    }

    #[test]
    fn the_environment_names_the_place_if_nobody_else_does() {
        let said = Said { standard_dir: "/e".into(), dir_from_environment: true, ..Said::default() };
        let dir = Config::default().settings(&said).remove(0);
        assert_eq!((dir.value.as_str(), dir.from), ("/e", Origin::Environment("WEIR_NODE_DIR")));
    }
}
