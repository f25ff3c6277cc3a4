//! Parity: a program computes the same with Weir and without, and Weir counts the same launches wherever it stands.
//!
//! * PyTorch (`torch_parity.py`) runs twice bare, once with the preload and once with our library in the driver's place. What is
//!   equal to the bit in both bare runs, by a digest of all bytes, must be equal under Weir; what is not must be as near to the first
//!   of them as the second is, times [`BY_CHANCE`]. What is left out is told, with its reason.
//! * The twin copies and fills device memory in every order, of several kinds and by graphs, and reads it back.
//! * Launches: as many counted by the preload as by the proxy library, which sees the calls after everybody else; of the twin's also
//!   as many as it made.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Map, Value, json};
use weir_nodemgr::control::schema::ClassName;

use super::finding::Finding;
use super::overhead;
use super::player::work::Work;
use super::setup::{Setup, Wanted, at_once, stats_of, tenant};
use super::side::{Player, Side, Way, furnish, script};
use crate::rig::{Control, Rig};
use crate::sample::most;
use crate::stage::THIS_PROGRAM;

/// Longest that the script may take: it compiles, beside three others.
const PATIENCE: Duration = Duration::from_secs(50);

/// Two runs that differ say how far apart runs are by chance: this many times that is within it.
const BY_CHANCE: f64 = 4.0;

/// Units of each work whose launches are counted.
const UNITS: u64 = 20;

/// Runs and compares.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let places =
        ["preload", "proxy"].map(|name| tenant(&mut control, Wanted::class(name, ClassName::Filler, None)));
    let [preload, proxy] = places;
    let (preload, proxy) = (preload?, proxy?);
    let ways = [Way::Bare, Way::Bare, Way::Preload(&preload), Way::Proxy(&proxy)];
    let (mut differences, mut failed) = (Vec::new(), 0);
    let mut figures = json!({});
    let mut line = String::new();
    for side in setup.sides() {
        let runs = at_once(ways.iter().map(|way| || results(&rig, &side, *way)))?;
        let compared = compare(&runs);
        line += &format!("{}: {}; ", overhead::name(&side), compared.told());
        figures[overhead::name(&side)] = json!({"runs": runs, "left_out": compared.left_out});
        failed += compared.failed + usize::from(compared.results == 0);
        differences.extend(compared.differ);
        setup.note(&Finding { line: line.clone(), figures: figures.clone(), ..Finding::default() })?;
    }
    let counts = launches(setup, &rig, &mut control)?;
    let counted = counts.iter().all(Counted::agrees);
    line += &counts.iter().map(Counted::told).collect::<Vec<_>>().join(", ");
    figures["launches"] = json!(counts.iter().map(Counted::figures).collect::<Vec<_>>());
    figures["differences"] = json!(differences);
    let holds = Some(differences.is_empty() && failed == 0 && counted);
    Ok(Finding { holds, line: line + &setup.without_torch(), figures, ..Finding::default() })
}

/// What one run computed: `{"results": {NAME: {"digest", "numbers"}}, "skipped": {NAME: WHY}, "failed": {NAME: WHY}}`.
fn results(rig: &Rig, side: &Side, way: Way<'_>) -> io::Result<Value> {
    let mut command = match side {
        Side::Twin => {
            let mut command = Command::new(THIS_PROGRAM);
            command.args(["check-player", "parity"]);
            command
        }
        Side::Torch(python) => {
            let mut command = Command::new(python);
            command.arg("-u").arg(script("torch_parity.py")?);
            command
        }
    };
    furnish(rig, &mut command, way);
    command.stdin(Stdio::null());
    let mut player = Player::of(command, "parity")?; // its first line says that it has begun
    player.answer(PATIENCE)
}

/// What comes out of the runs beside each other.
#[derive(Default)]
struct Compared {
    results: usize,
    differ: Vec<String>,
    /// What is not here to be tried, or failed without Weir, and why.
    left_out: Map<String, Value>,
    /// Of the latter how many failed: the program is broken then, or the machine.
    failed: usize,
}

impl Compared {
    fn told(&self) -> String {
        let told = format!("{} results, {} differ", self.results, self.differ.len());
        let reason =
            |(name, why): (&String, &Value)| format!("{name} ({})", why.as_str().unwrap_or_default());
        let left_out: Vec<_> = self.left_out.iter().map(reason).collect();
        let how = if self.failed > 0 { "left out or failed without Weir" } else { "left out" };
        let left_out = left_out.join(", ");
        if left_out.is_empty() { told } else { format!("{told}, {how}: {left_out}") }
    }
}

fn compare(runs: &[Value]) -> Compared {
    let mut compared = Compared::default();
    let [first, second, under_weir @ ..] = runs else { return compared };
    let names = |run: &Value, of: &str| run[of].as_object().cloned().unwrap_or_default();
    for bare in [first, second] {
        compared.left_out.extend(names(bare, "skipped"));
        for (name, why) in names(bare, "failed") {
            compared.failed += usize::from(compared.left_out.insert(name, why).is_none());
        }
    }
    for (name, bare) in names(first, "results") {
        if compared.left_out.contains_key(&name) {
            continue; // the second bare run has none
        }
        compared.results += 1;
        let again = &second["results"][&name];
        for (way, run) in ["preload", "proxy"].iter().zip(under_weir) {
            if let Some(how) = differs(&bare, again, &run["results"][&name]) {
                let why = ["skipped", "failed"].iter().find_map(|of| run[of][&name].as_str()).unwrap_or(&how);
                compared.differ.push(format!("{name} ({way}): {why}"));
            }
        }
    }
    compared
}

/// How a result differs from two bare ones. Where those are equal to the bit, in all bytes, so must it be; else it must be as near to
/// the first one as the second is, times [`BY_CHANCE`].
fn differs(first: &Value, second: &Value, ours: &Value) -> Option<String> {
    let digest = |result: &Value| result["digest"].as_str().map(str::to_owned);
    if digest(first).is_some() && digest(first) == digest(second) {
        return (digest(ours) != digest(first)).then(|| {
            let off = distance(first, ours);
            format!("not equal to the bit, as two bare runs are; off by {off:e}")
        });
    }
    let (allowed, off) = (distance(first, second), distance(first, ours));
    let near = off <= BY_CHANCE * allowed; // what cannot be compared is not
    (!near).then(|| format!("off by {off:e}, two bare runs by {allowed:e}"))
}

/// The largest difference of two results' numbers; no number if they cannot be compared, or have none.
fn distance(one: &Value, other: &Value) -> f64 {
    let (Some(one), Some(other)) = (one["numbers"].as_array(), other["numbers"].as_array()) else {
        return f64::NAN;
    };
    if one.len() != other.len() {
        return f64::NAN;
    }
    let apart = one.iter().zip(other).map(|(one, other)| match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs(),
        _ if one == other => 0.0, // what is no number is text
        _ => f64::NAN,
    });
    most(apart)
}

/// Launches of the same work, as they were made and counted.
struct Counted {
    side: &'static str,
    work: &'static str,
    made: Option<u64>,
    preload: u64,
    proxy: u64,
}

impl Counted {
    fn agrees(&self) -> bool {
        self.preload > 0 && self.preload == self.proxy && self.made.is_none_or(|made| made == self.preload)
    }

    fn told(&self) -> String {
        let made = self.made.map_or_else(String::new, |made| format!(" of {made} made"));
        format!(
            "{} {} launches: {} by the preload, {} by the proxy{made}",
            self.side, self.work, self.preload, self.proxy
        )
    }

    fn figures(&self) -> Value {
        let Self { side, work, made, preload, proxy } = self;
        json!({"side": side, "work": work, "made": made, "preload": preload, "proxy": proxy})
    }
}

/// A work of a side, launched by a tenant of its own in each of two ways.
struct Asked {
    side: Side,
    work: &'static str,
    tenants: [(String, PathBuf); 2],
}

impl Asked {
    fn of(control: &mut Control, number: usize, side: &Side, work: &'static str) -> io::Result<Self> {
        let mut make = |way: &str| {
            let name = format!("count{number}-{work}-{way}");
            let place = tenant(control, Wanted::class(&name, ClassName::Filler, None))?;
            Ok::<_, io::Error>((name, place))
        };
        Ok(Self { side: side.clone(), work, tenants: [make("preload")?, make("proxy")?] })
    }

    /// Launches in both ways; each player ends by itself then, and tells all that it counted.
    fn launch(&self, rig: &Rig) -> io::Result<()> {
        let [(_, preload), (_, proxy)] = &self.tenants;
        let ways = [Way::Preload(preload), Way::Proxy(proxy)];
        let play = |way| move || Player::start(rig, &self.side, self.work, way)?.round(UNITS).map(drop);
        at_once(ways.into_iter().map(play)).map(drop)
    }

    fn counted(self, control: &mut Control) -> io::Result<Counted> {
        let mut total = |name: &str| -> io::Result<u64> {
            Ok(stats_of(control, name)?.gpus.first().map_or(0, |gpu| gpu.total.launches))
        };
        let [(preload, _), (proxy, _)] = &self.tenants;
        let (preload, proxy) = (total(preload)?, total(proxy)?);
        let made = if self.side == Side::Twin { Some(made(self.work)) } else { None };
        Ok(Counted { side: overhead::name(&self.side), work: self.work, made, preload, proxy })
    }
}

/// All works of all sides at once: most of their time is PyTorch's start.
fn launches(setup: &Setup, rig: &Rig, control: &mut Control) -> io::Result<Vec<Counted>> {
    let mut asked = Vec::new();
    for (number, side) in setup.sides().iter().enumerate() {
        for work in ["train", "graph"] {
            asked.push(Asked::of(control, number, side, work)?);
        }
    }
    at_once(asked.iter().map(|asked| || asked.launch(rig)))?;
    asked.into_iter().map(|asked| asked.counted(control)).collect()
}

/// Launch calls of the twin: one unit when it starts, and as many as it was told. A graph's unit is captured, too, and then goes as one.
fn made(work: &str) -> u64 {
    let Ok(work) = work.parse::<Work>() else { return 0 };
    let of_unit: u64 = work.parts.iter().map(|part| u64::from(part.count)).sum();
    if work.is_graph { 2 * of_unit + UNITS } else { of_unit * (UNITS + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of two cases: bytes, and a loss with a digest of its own.
    fn run(digest: &str, loss: f64) -> Value {
        let loss = json!({"digest": loss.to_string(), "numbers": [1.0, loss]});
        json!({"results": {"copy": {"digest": digest, "numbers": []}, "loss": loss}})
    }

    #[test]
    fn what_two_bare_runs_agree_in_must_be_the_same_under_weir() {
        let differ = |ours: Value| compare(&[run("a", 2.0), run("a", 2.1), ours.clone(), ours]).differ;
        assert!(differ(run("a", 2.3)).is_empty(), "as near as two bare runs are, four times");
        assert_eq!(differ(run("b", 2.0)).len(), 2, "once for each way");
        assert_eq!(differ(run("a", 2.9)).len(), 2);
        assert_eq!(differ(json!({"results": {}})).len(), 4, "what is missing differs");
        let alike = compare(&[run("a", 2.0), run("a", 2.0), run("a", 2.0 + 1e-12), run("a", 2.0)]).differ;
        assert!(alike.len() == 1 && alike[0].contains("not equal to the bit"), "{alike:?}");
        let chance = compare(&[run("a", 2.0), run("b", 2.0), run("a", 2.0), run("b", 2.0)]).differ;
        assert_eq!(chance.len(), 2, "bytes that vary by themselves can be compared with nothing");
    }

    #[test]
    fn what_is_left_out_says_why_and_what_fails_without_weir_fails() {
        let mut bare = run("a", 2.0);
        bare["skipped"] = json!({"triton_kernel": "no triton"});
        let compared = compare(&[bare.clone(), bare.clone(), bare.clone(), bare.clone()]);
        assert_eq!(compared.told(), "2 results, 0 differ, left out: triton_kernel (no triton)");
        assert_eq!(compared.failed, 0);
        let mut second = bare.clone();
        second["failed"] = json!({"copy": "it broke"});
        let compared = compare(&[bare.clone(), second, bare.clone(), bare.clone()]);
        assert_eq!((compared.results, compared.failed), (1, 1));
        let mut ours = run("a", 2.0);
        ours["results"].as_object_mut().unwrap().remove("copy");
        ours["failed"] = json!({"copy": "it broke under Weir"});
        let differ = compare(&[bare.clone(), bare.clone(), ours, bare]).differ;
        assert_eq!(differ, ["copy (preload): it broke under Weir"]);
    }
}
