//! Memory: every kind of allocation to the limit and over, with the driver's own code; memory of another process, which its owner pays;
//! what programs are told of it; limits that change while they run; the ledger against NVML. PyTorch's own words for it by
//! `torch_memory.py`.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use weir_nodemgr::control::schema::{ClassName, SetBudget};
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::finding::Finding;
use super::player::kinds::KINDS;
use super::setup::{Setup, Wanted, stats_of, tenant, wait};
use super::side::{Player, Side, Way, furnish, number, script};
use crate::rig::{Control, Rig};

/// The tenant's limit, and what it is changed to.
const LIMIT: Bytes = Bytes::gib(2);
const SHRUNK: Bytes = Bytes::gib(1);

/// One piece: larger than any kind's granularity.
const PIECE: Bytes = Bytes::mib(64);

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: f64 = 2.0;

/// Two looks of the node manager's at NVML's account, of one a second.
const LOOKS: Duration = Duration::from_millis(2_200);

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
    let view = view(setup, &mut player, &mut broken)?;
    let resized = resize(&mut player, &mut control, &mut broken)?;
    let imported = import(&rig, &mut player, &mut control, &mut broken)?;
    let drift = drift(setup, &mut player, &mut control, &mut broken)?;
    drop(player);
    rig.wait_for("the ledger's end", || Ok((held(&mut control)?.all == 0).then_some(())))?;
    let mut figures = json!({
        "context_bytes": context, "kinds": kinds, "view": view, "resized": resized, "imported": imported,
        "nvml_less_ledger_bytes": drift,
    });
    let mut line = format!(
        "{} kinds of {LIMIT} beside a context of {}; NVML says {}",
        KINDS.len(),
        Bytes(context),
        drift.map_or("nothing of this process".into(), |bytes| format!("{bytes} bytes more than the ledger"))
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
fn view(setup: &Setup, player: &mut Player, broken: &mut Vec<String>) -> io::Result<Value> {
    let said = player.ask("view", Duration::ZERO)?;
    for name in ["total", "device_total", "nvml_total"] {
        if said[name].as_u64() != Some(LIMIT.0) {
            broken.push(format!("{name} is told as {}", said[name]));
        }
    }
    let (free, used) = (said["free"].as_u64(), said["nvml_used"].as_u64());
    if free.zip(used).is_none_or(|(free, used)| free + used != LIMIT.0) {
        broken.push(format!("free and used are {said} by both ways"));
    }
    let first = &said["nvml_first"];
    if first["total"].as_u64() != Some(LIMIT.0) || first["used"].as_u64() != used {
        broken.push(format!("NVML's first version says {first}, the second one {used:?} used"));
    }
    // Where process numbers are not the driver's (a container) the tenant finds itself in no list; others it must never find there.
    let processes = said["processes"].as_array().map_or(&[][..], Vec::as_slice);
    let is_own = |row: &Value| row[0] == said["pid"] && row[1].as_u64() == used;
    if processes.iter().any(|row| !is_own(row)) || (processes.is_empty() && setup.simulated) {
        broken.push(format!("NVML lists {processes:?}, and {} uses {used:?}", said["pid"]));
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

/// Another process of the tenant opens memory of the first one: it is shown there, and paid once.
fn import(
    rig: &Rig,
    player: &mut Player,
    control: &mut Control,
    broken: &mut Vec<String>,
) -> io::Result<Value> {
    player.ask("free", Duration::ZERO)?;
    let soon = Duration::from_secs(2);
    player.ask(&format!("hold {}", PIECE.0 >> 20), soon)?;
    let place = tenant(control, Wanted { memory: LIMIT, ..Wanted::class("other", ClassName::Filler, None) })?;
    let mut other = Player::start(rig, &Side::Twin, "tiny", Way::Preload(&place))?;
    let shared = |control: &mut Control| -> io::Result<(u64, u64)> {
        let other = stats_of(control, "other")?;
        let gpu = other.gpus.first().ok_or_else(|| io::Error::other("the tenant has no GPU"))?;
        let shared = gpu.processes.iter().map(|process| process.memory_shared_bytes).sum();
        let context = other.memory_of_kind_bytes(MemoryKind::Context.name());
        Ok((shared, gpu.memory_held_bytes.saturating_sub(context)))
    };
    let before = shared(control)?;
    let handle = player.ask("export", soon)?["handle"].clone();
    let code = number(&other.ask(&format!("import {handle}"), soon)?, "code")?;
    let open = shared(control)?;
    other.ask("close", soon)?;
    let closed = shared(control)?;
    let (there, paid_once) = (before.0 + PIECE.0, before.1);
    if code != 0.0 || open != (there, paid_once) || closed != before {
        broken.push(format!(
            "imported memory (shared, own): {before:?}, open {open:?} by code {code}, closed {closed:?}"
        ));
    }
    Ok(json!({"code": code, "before": before, "open": open, "closed": closed}))
}

/// What NVML says beyond the ledger while half the limit is held; nothing where it does not tell of this process. A piece that the
/// ledger forgot, or kept, is as much off as it is large.
fn drift(
    setup: &Setup,
    player: &mut Player,
    control: &mut Control,
    broken: &mut Vec<String>,
) -> io::Result<Option<i64>> {
    player.ask(&format!("hold {}", LIMIT.0 >> 21), Duration::from_secs(2))?;
    wait(LOOKS);
    let drift = stats_of(control, "memory")?.gpus.first().and_then(|gpu| gpu.memory_drift_bytes);
    let off = drift.map_or(setup.simulated, |bytes| bytes.unsigned_abs() >= PIECE.0);
    if off {
        broken.push(format!("NVML and the ledger are {drift:?} bytes apart"));
    }
    Ok(drift)
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
