//! Memory: every kind of allocation to the limit and over, with the driver's own code; what programs are told of it; limits that
//! change while they run; the ledger against NVML. PyTorch's own words for it by `torch_memory.py`.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use weir_nodemgr::control::schema::{ClassName, SetBudget};
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::finding::Finding;
use super::player::memory::KINDS;
use super::setup::{Setup, Wanted, stats_of, tenant};
use super::side::{Player, Side, Way, furnish, number, script};
use crate::rig::{Control, Rig};

/// The tenant's limit, and what it is changed to.
const LIMIT: Bytes = Bytes::gib(2);
const SHRUNK: Bytes = Bytes::gib(1);

/// One piece: larger than any kind's granularity.
const PIECE: Bytes = Bytes::mib(64);

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: f64 = 2.0;

/// PyTorch's own limit: a context and some tensors.
const TORCH: Bytes = Bytes::gib(3);

/// Asks for all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let rig = setup.rig()?;
    let mut control = Control::of(&rig)?;
    let wanted = Wanted { memory: LIMIT, ..Wanted::class("memory", ClassName::Filler, None) };
    let place = tenant(&mut control, wanted)?;
    let mut player = Player::start(&rig, &Side::Twin, "tiny", Way::Preload(&place))?;
    let mut broken = Vec::new();
    let mut kinds = json!({});
    for kind in KINDS {
        kinds[kind] = fill(&mut player, &mut control, kind, LIMIT, &mut broken)?;
    }
    let context = held(&mut control)?.context;
    let view = view(&mut player, &mut broken)?;
    let resized = resize(&mut player, &mut control, &mut broken)?;
    let drift = stats_of(&mut control, "memory")?.gpus.first().and_then(|gpu| gpu.memory_drift_bytes);
    drop(player);
    rig.wait_for("the ledger's end", || Ok((held(&mut control)?.all == 0).then_some(())))?;
    let mut figures = json!({
        "context_bytes": context, "kinds": kinds, "view": view, "resized": resized, "ledger_less_nvml_bytes": drift,
    });
    let mut line = format!(
        "{} kinds of {LIMIT} beside a context of {}; drift against NVML {drift:?} bytes",
        KINDS.len(),
        Bytes(context)
    );
    if let Side::Torch(_) = setup.best_side() {
        figures["torch"] = torch(setup, &rig, &mut control, &mut broken)?;
        line += ", PyTorch as well";
    }
    line += &if broken.is_empty() { String::new() } else { format!("; {}", broken.join("; ")) };
    Ok(Finding {
        holds: Some(broken.is_empty()),
        line: line + &setup.without_torch(),
        figures,
        ..Finding::default()
    })
}

/// What the tenant holds: all of it, and what its context takes of that, which may grow.
struct Held {
    all: u64,
    context: u64,
}

impl Held {
    fn of_the_program(&self) -> u64 {
        self.all.saturating_sub(self.context)
    }
}

fn held(control: &mut Control) -> io::Result<Held> {
    let tenant = stats_of(control, "memory")?;
    let all = tenant.gpus.first().map_or(0, |gpu| gpu.memory_held_bytes);
    Ok(Held { all, context: tenant.memory_of_kind_bytes(MemoryKind::Context.name()) })
}

/// Fills the limit with one kind; exactly as many pieces must fit as there is room for, and nothing may be left.
fn fill(
    player: &mut Player,
    control: &mut Control,
    kind: &str,
    limit: Bytes,
    broken: &mut Vec<String>,
) -> io::Result<Value> {
    let before = held(control)?;
    let mut said = player.ask(&format!("fill {kind} {}", PIECE.0 >> 20), Duration::from_secs(5))?;
    let room = limit.0.saturating_sub(before.all) / PIECE.0;
    let left = held(control)?.of_the_program().saturating_sub(before.of_the_program());
    let (pieces, code) = (number(&said, "pieces")?, number(&said, "code")?);
    said["left_bytes"] = left.into();
    // Some kinds are rounded up, and contexts grow meanwhile: a piece less may fit, never one more.
    let fits = pieces <= room as f64 && pieces >= room as f64 - 1.0;
    if !fits || code != OUT_OF_MEMORY {
        broken.push(format!("{kind}: {pieces} pieces of {room} fit, then error {code}"));
    }
    // Pools keep what they have reserved until somebody trims them.
    if left > 0 && kind != "ordered" {
        broken.push(format!("{kind}: {left} bytes are held though all is freed"));
    }
    Ok(said)
}

/// What a program is told: its limit as the card, by every way.
fn view(player: &mut Player, broken: &mut Vec<String>) -> io::Result<Value> {
    let said = player.ask("view", Duration::ZERO)?;
    for name in ["total", "device_total", "nvml_total"] {
        if said[name].as_u64() != Some(LIMIT.0) {
            broken.push(format!("{name} is told as {}", said[name]));
        }
    }
    let (free, used) = (said["free"].as_u64(), said["nvml_used"].as_u64());
    if free.zip(used).is_none_or(|(free, used)| free + used != LIMIT.0) {
        broken.push(format!("free and used are {} by both ways", said));
    }
    Ok(said)
}

/// Half the limit while more is held: new allocations are refused, nothing is taken; and the whole of it again.
fn resize(player: &mut Player, control: &mut Control, broken: &mut Vec<String>) -> io::Result<Value> {
    let hold = |mib: u64, player: &mut Player| {
        number(&player.ask(&format!("hold {mib}"), Duration::from_secs(2))?, "code")
    };
    let mut codes = vec![hold(1_200, player)?];
    set(control, SHRUNK)?;
    codes.push(hold(64, player)?);
    let kept = player.ask("check", Duration::from_secs(3))?;
    player.ask("free", Duration::ZERO)?;
    let shrunk = fill(player, control, "plain", SHRUNK, broken)?;
    set(control, LIMIT)?;
    let grown = fill(player, control, "plain", LIMIT, broken)?;
    if codes != [0.0, OUT_OF_MEMORY] || kept["ok"] != true {
        broken.push(format!("below what is held: {codes:?}, {kept}"));
    }
    Ok(json!({"codes": codes, "kept": kept, "shrunk": shrunk, "grown": grown}))
}

fn set(control: &mut Control, memory: Bytes) -> io::Result<()> {
    let change = SetBudget { tenant: "memory".into(), memory_bytes: Some(memory.0), ..SetBudget::default() };
    control.client().set(change).map(drop).map_err(|fault| io::Error::other(fault.to_string()))
}

/// `torch_memory.py` says of each of its checks whether it went as it should.
fn torch(setup: &Setup, rig: &Rig, control: &mut Control, broken: &mut Vec<String>) -> io::Result<Value> {
    let Side::Torch(python) = setup.best_side() else { return Ok(Value::Null) };
    let wanted = Wanted { memory: TORCH, ..Wanted::class("torch", ClassName::Filler, None) };
    let place = tenant(control, wanted)?;
    let mut command = Command::new(python);
    command.arg("-u").arg(script("torch_memory.py")?).arg(TORCH.0.to_string());
    furnish(rig, &mut command, Way::Preload(&place));
    command.stdin(Stdio::null());
    let mut player = Player::of(command, "memory")?;
    let said = player.answer(Duration::from_secs(40))?;
    for (name, check) in said["checks"].as_object().into_iter().flatten() {
        if check["ok"] != true {
            broken.push(format!("PyTorch, {name}: {}", check["said"]));
        }
    }
    Ok(said)
}
