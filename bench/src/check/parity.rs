//! Parity: a program computes the same with Weir and without, and Weir counts the same launches wherever it stands.
//!
//! * PyTorch (`torch_parity.py`) runs twice bare, once with the preload and once with our library in the driver's place. What is
//!   equal to the bit in both bare runs must be equal under Weir; what is not must be as near to the first of them as the second is.
//! * The twin copies and fills device memory in every order and by graphs, and reads it back.
//! * Launches: as many counted by the preload as by the proxy library, which sees the calls after everybody else; of the twin's also
//!   as many as it made.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use weir_nodemgr::control::schema::ClassName;

use super::finding::Finding;
use super::overhead;
use super::player::work::Work;
use super::setup::{Setup, Wanted, stats_of, tenant};
use super::side::{Player, Side, Way, furnish, script};
use crate::rig::{Control, Rig};
use crate::stage::THIS_PROGRAM;

/// Longest that the script may take: it compiles.
const PATIENCE: Duration = Duration::from_secs(75);

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
    let mut differences = Vec::new();
    let mut figures = json!({});
    let mut line = String::new();
    for side in setup.sides() {
        let runs = ways.iter().map(|way| results(&rig, &side, *way)).collect::<io::Result<Vec<_>>>()?;
        let (compared, differ) = compare(&runs);
        line += &format!("{}: {compared} results, {} differ; ", overhead::name(&side), differ.len());
        differences.extend(differ);
        figures[overhead::name(&side)] = json!({"runs": runs});
        setup.note(&Finding { line: line.clone(), figures: figures.clone(), ..Finding::default() })?;
    }
    let counts = launches(setup, &rig, &mut control)?;
    let counted = counts.iter().all(Counted::agrees);
    line += &counts.iter().map(Counted::told).collect::<Vec<_>>().join(", ");
    figures["launches"] = json!(counts.iter().map(Counted::figures).collect::<Vec<_>>());
    figures["differences"] = json!(differences);
    let holds = Some(differences.is_empty() && counted);
    Ok(Finding { holds, line: line + &setup.without_torch(), figures, ..Finding::default() })
}

/// What one run computed: `{"results": {NAME: [NUMBER, ..]}, "skipped": {NAME: WHY}}`.
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

/// How many results there are, and which differ under Weir.
fn compare(runs: &[Value]) -> (usize, Vec<String>) {
    let [first, second, under_weir @ ..] = runs else { return (0, Vec::new()) };
    let Some(all) = first["results"].as_object() else { return (0, vec!["no results".into()]) };
    let mut differ = Vec::new();
    for (name, bare) in all {
        let allowed = distance(bare, &second["results"][name]);
        let ways = ["preload", "proxy"].iter().zip(under_weir);
        for (way, run) in ways {
            let off = distance(bare, &run["results"][name]);
            let near = off <= BY_CHANCE * allowed; // what cannot be compared is not
            if !near {
                differ.push(format!("{name} ({way}): off by {off:e}, two bare runs by {allowed:e}"));
            }
        }
    }
    (all.len(), differ)
}

/// The largest difference of two lists; no number if they cannot be compared.
fn distance(one: &Value, other: &Value) -> f64 {
    let (Some(one), Some(other)) = (one.as_array(), other.as_array()) else { return f64::NAN };
    if one.len() != other.len() {
        return f64::NAN;
    }
    let apart = one.iter().zip(other).map(|(one, other)| match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs(),
        _ if one == other => 0.0, // digests are text
        _ => f64::NAN,
    });
    apart.fold(0.0, |most, next| if next.is_nan() || next > most { next } else { most })
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

fn launches(setup: &Setup, rig: &Rig, control: &mut Control) -> io::Result<Vec<Counted>> {
    let mut counts = Vec::new();
    for (number, side) in setup.sides().iter().enumerate() {
        for work in ["train", "graph"] {
            let count = |control: &mut Control, way: fn(&Path) -> Way<'_>| -> io::Result<u64> {
                let name = format!("count{number}-{work}-{}", way(Path::new("")).name());
                let place = tenant(control, Wanted::class(&name, ClassName::Filler, None))?;
                let total = |control: &mut Control| -> io::Result<u64> {
                    Ok(stats_of(control, &name)?.gpus.first().map_or(0, |gpu| gpu.total.launches))
                };
                let before = total(control)?;
                let mut player = Player::start(rig, side, work, way(&place))?;
                player.round(UNITS)?;
                drop(player); // it ends by itself, and tells all that it counted
                Ok(total(control)? - before)
            };
            let preload = count(control, |place| Way::Preload(place))?;
            let proxy = count(control, |place| Way::Proxy(place))?;
            let made = if *side == Side::Twin { Some(made(work)) } else { None };
            counts.push(Counted { side: overhead::name(side), work, made, preload, proxy });
        }
    }
    Ok(counts)
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

    #[test]
    fn what_two_bare_runs_agree_in_must_be_the_same_under_weir() {
        let run = |digest: &str, loss: f64| json!({"results": {"copy": [digest], "loss": [1.0, loss]}});
        let (bare, again) = (run("a", 2.0), run("a", 2.1));
        let differ = |ours: Value| compare(&[bare.clone(), again.clone(), ours.clone(), ours]).1;
        assert!(differ(run("a", 2.3)).is_empty(), "as near as two bare runs are");
        assert_eq!(differ(run("b", 2.0)).len(), 2, "once for each way");
        assert_eq!(differ(run("a", 2.9)).len(), 2);
        assert_eq!(differ(json!({"results": {}})).len(), 4, "what is missing differs");
    }
}
