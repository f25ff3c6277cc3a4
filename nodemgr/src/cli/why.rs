//! `weir why`: what a tenant waited for, in order of time.

use weir_protocol::pages::{Rate, Stall};
use weir_protocol::units::{Nanos, SmShare};

use super::{Context, printer};
use crate::control::Client;
use crate::control::history::{Why, WhyGpu};
use crate::control::schema::ClassName;
use crate::events::{Event, clock};
use crate::fault::Fault;
use crate::registry::Moment;

/// A part of the time below which a cause is not worth a word, in percent.
const SMALL: f64 = 2.0;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The tenant
    tenant: String,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let why = Client::connect(&context.place()?)?.why(&args.tenant)?;
    if context.json {
        printer::json(&why);
    } else {
        printer::data(text(&why));
    }
    Ok(0)
}

/// Seconds of one GPU, one after the other, in which the same held.
#[derive(Clone)]
struct Spell {
    begin_ms: u64,
    sum: Moment,
}

fn text(why: &Why) -> String {
    let events = why.events.iter().map(|event| (event.time_unix_ms, event.seq, event_line(event)));
    let mut lines: Vec<_> = events.collect();
    for gpu in &why.gpus {
        lines.extend(
            spells(&gpu.moments).iter().map(|spell| (spell.begin_ms, u64::MAX, spell_line(gpu, spell))),
        );
    }
    lines.sort();
    let lines = lines.into_iter().map(|(_, _, line)| line);
    lines.chain(why.gpus.iter().map(|gpu| verdict(why, gpu))).collect::<Vec<_>>().join("\n")
}

/// Without the tenant's name, which stands on the command line.
fn event_line(event: &Event) -> String {
    let gpu = event.gpu.map(|gpu| format!("GPU {gpu}: ")).unwrap_or_default();
    format!("{}  {gpu}{}", clock(event.time_unix_ms), event.what)
}

/// Neighbouring seconds with the same cause, rate and state are one.
fn spells(moments: &[Moment]) -> Vec<Spell> {
    let mut spells: Vec<Spell> = Vec::new();
    for moment in moments {
        let begin_ms = moment.time_unix_ms.saturating_sub(moment.span_ns / 1_000_000);
        match spells.last_mut().filter(|last| is_like(last, moment, begin_ms)) {
            Some(last) => add(&mut last.sum, moment),
            None => spells.push(Spell { begin_ms, sum: moment.clone() }),
        }
    }
    spells
}

fn is_like(spell: &Spell, moment: &Moment, begin_ms: u64) -> bool {
    let of = |m: &Moment| (cause(m), m.rate_ppm, m.gate_closed);
    let told = |m: &Moment| (m.policy.clone(), m.state.clone(), m.beside.clone().map(|beside| beside.0));
    // A gap of a second or more is one in which nothing moved.
    let follows = begin_ms.saturating_sub(spell.sum.time_unix_ms) < 1_000;
    follows && of(&spell.sum) == of(moment) && told(&spell.sum) == told(moment)
}

fn add(sum: &mut Moment, moment: &Moment) {
    for (sum, part) in sum.stalls_ns.iter_mut().zip(moment.stalls_ns) {
        *sum = sum.saturating_add(part);
    }
    sum.span_ns = sum.span_ns.saturating_add(moment.span_ns);
    sum.charged_ns = sum.charged_ns.saturating_add(moment.charged_ns);
    sum.throttled = sum.throttled.saturating_add(moment.throttled);
    sum.forced = sum.forced.saturating_add(moment.forced);
    sum.refused = sum.refused.saturating_add(moment.refused);
    (sum.time_unix_ms, sum.beside) = (moment.time_unix_ms, moment.beside.clone());
}

/// What most of the time that was not work went to; nothing if nearly all of it was work.
fn cause(moment: &Moment) -> Option<Stall> {
    let all: u64 = moment.stalls_ns.iter().fold(0, |sum, part| sum.saturating_add(*part));
    let waits = Stall::ALL.into_iter().zip(moment.stalls_ns).filter(|(stall, _)| *stall != Stall::Compute);
    let (stall, most) = waits.max_by_key(|(_, ns)| *ns)?;
    (most as f64 * 100.0 >= SMALL * all as f64 && most > 0).then_some(stall)
}

fn spell_line(gpu: &WhyGpu, spell: &Spell) -> String {
    let moment = &spell.sum;
    let all = moment.stalls_ns.iter().fold(0u64, |sum, part| sum.saturating_add(*part)).max(1);
    let mut parts: Vec<_> = Stall::ALL.into_iter().zip(moment.stalls_ns).collect();
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let percent = |ns: u64| ns as f64 * 100.0 / all as f64;
    let parts = parts.into_iter().filter(|(_, ns)| percent(*ns) >= SMALL);
    let parts: Vec<_> = parts.map(|(stall, ns)| format!("{} {:.0} %", stall.name(), percent(ns))).collect();
    let went = if parts.is_empty() { "nothing settled yet".into() } else { parts.join(", ") };
    let gate = if moment.gate_closed { ", gate closed" } else { "" };
    let beside = moment.beside.as_ref().map_or(String::new(), |(name, permille)| {
        format!("; beside {name} at {}", SmShare::permille(*permille))
    });
    let counted = counted(moment);
    format!(
        "{}  GPU {}: {:.0} s: {went}; granted {}{gate} ({} {}){beside}{counted}",
        clock(spell.begin_ms),
        gpu.index,
        moment.span_ns as f64 / 1e9,
        rate(moment.rate_ppm),
        moment.policy,
        moment.state
    )
}

/// What the gate and the memory limit did to its calls, as far as they did.
fn counted(moment: &Moment) -> String {
    let counts = [
        (moment.throttled, "launches waited at the gate"),
        (moment.forced, "launches were let through it"),
        (moment.refused, "allocations were refused"),
    ];
    let told = counts.into_iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("; {what}: {count}")).collect()
}

fn rate(ppm: u32) -> String {
    match Rate::ppm(ppm) {
        Rate::FULL => "the whole GPU".into(),
        rate => format!("{:.1} %", f64::from(rate.as_ppm()) / 10_000.0),
    }
}

/// What it comes to on one GPU, and what to do about it.
fn verdict(why: &Why, gpu: &WhyGpu) -> String {
    let sum = of_its_work(&gpu.moments);
    if why.processes_ever == 0 {
        return format!("GPU {}: no process has come under this budget yet", gpu.index);
    }
    if gpu.moments.is_empty() {
        return format!("GPU {}: nothing moved there of late", gpu.index);
    }
    let Some(cause) = cause(&sum) else {
        return format!("GPU {}: it hardly waited in the time that is kept{}", gpu.index, counted(&sum));
    };
    let waited = sum.stalls_ns[cause as usize];
    let (name, counted, help) = (cause.name(), counted(&sum), help(why, cause, &sum));
    format!("GPU {}: mostly {name}, {} in all{counted}\nhelp: {help}", gpu.index, Nanos(waited))
}

/// The time in which it had something for the GPU; all of it, if it never had. A program that rests between two jobs waits for
/// nobody, and its rest would hide what it waits for at work.
fn of_its_work(moments: &[Moment]) -> Moment {
    let mut sum = Moment::default();
    moments.iter().filter(|moment| had_work(moment)).for_each(|moment| add(&mut sum, moment));
    if sum.span_ns == 0 {
        moments.iter().for_each(|moment| add(&mut sum, moment));
    }
    sum
}

/// Whether more than a trace of a moment was work, or a wait to be let to it.
fn had_work(moment: &Moment) -> bool {
    let all = moment.stalls_ns.iter().fold(0u64, |sum, part| sum.saturating_add(*part));
    let host = moment.stalls_ns[Stall::Host as usize];
    all.saturating_sub(host) as f64 * 100.0 >= SMALL * all as f64 && all > host
}

/// What to do about a cause.
fn help(why: &Why, cause: Stall, sum: &Moment) -> String {
    let name = &why.tenant;
    match cause {
        Stall::Gate if why.class == ClassName::Filler => format!(
            "a filler waits at the gate while others want the GPU: let it have a part of its own (--class primary --request ...), \
             or lower theirs (weir set ...); {name} itself had work"
        ),
        Stall::Gate if sum.beside.is_none() => format!("raise its limit: weir set {name} --limit ..."),
        Stall::Gate => {
            format!("it asks for more than it is granted: weir set {name} --request ... --limit ...")
        }
        Stall::Neighbour => format!(
            "the GPU was a neighbour's: raise its request, or lower the neighbour's limit (weir set {name} ...)"
        ),
        Stall::Copies if why.budget.copy_limit.is_limited() => {
            format!("copies are limited: weir set {name} --copy-limit ...")
        }
        Stall::Copies => {
            "copies take as long as the bus takes: overlap them with kernels, or pin the memory".into()
        }
        Stall::Communication => "it waited for its other GPUs: look at its slowest rank".into(),
        Stall::Host | Stall::Compute => {
            "it had nothing queued on the GPU: the program's own CPU, input or network, not Weir".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at: u64, stalls_ms: [u64; 6]) -> Moment {
        Moment {
            time_unix_ms: 1_000 * (at + 1),
            span_ns: 1_000_000_000,
            stalls_ns: stalls_ms.map(|ms| ms * 1_000_000),
            rate_ppm: 300_000,
            policy: "static".into(),
            state: "STEADY".into(),
            beside: Some(("serve".into(), 650)),
            ..Moment::default()
        }
    }

    fn why(class: ClassName, moments: Vec<Moment>) -> Why {
        Why {
            class,
            tenant: "train".into(),
            processes_ever: 1,
            budget: crate::control::schema::Budget {
                request: SmShare::percent(30),
                limit: SmShare::FULL,
                memory: weir_protocol::units::Bytes::gib(1),
                copy_limit: weir_protocol::units::Bandwidth::UNLIMITED,
                slo: None,
            },
            events: Vec::new(),
            gpus: vec![WhyGpu { index: 0, moments }],
        }
    }

    #[test]
    fn like_seconds_are_one_line_and_another_cause_or_a_gap_begins_a_new_one() {
        let gate = [300, 0, 0, 0, 700, 0];
        let host = [300, 0, 0, 0, 0, 700];
        let moments = [second(0, gate), second(1, gate), second(2, host), second(9, host)];
        let lines: Vec<_> = spells(&moments)
            .iter()
            .map(|spell| spell_line(&WhyGpu { index: 0, moments: Vec::new() }, spell))
            .collect();
        assert_eq!(
            lines[0],
            "00:00:00.000Z  GPU 0: 2 s: gate 70 %, compute 30 %; granted 30.0 % (static STEADY); beside serve at 65 %"
        );
        assert!(lines[1].starts_with("00:00:02.000Z  GPU 0: 1 s: host 70 %, compute 30 %"), "{lines:?}");
        assert!(lines.len() == 3 && lines[2].starts_with("00:00:09.000Z"), "{lines:?}");
    }

    #[test]
    fn what_the_gate_and_the_memory_limit_did_is_counted_by_spell_and_in_all() {
        let gate = [300, 0, 0, 0, 700, 0];
        let busy = |at| Moment { throttled: 40, forced: 1, ..second(at, gate) };
        let full = Moment { refused: 3, ..second(2, [300, 0, 0, 0, 0, 700]) };
        let text = text(&why(ClassName::Primary, vec![busy(0), busy(1), full]));
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].ends_with("; launches waited at the gate: 80; launches were let through it: 2"),
            "{text}"
        );
        assert!(lines[1].ends_with("; allocations were refused: 3"), "{text}");
        let all = "1.40 s in all; launches waited at the gate: 80; launches were let through it: 2; allocations were refused: 3";
        assert!(lines[2].ends_with(all), "{text}");
    }

    #[test]
    fn who_rests_for_long_and_waits_at_the_gate_when_at_work_is_told_of_the_gate() {
        let rests = (0..50).map(|at| second(at, [0, 0, 0, 0, 0, 1_000]));
        let waits = (50..55).map(|at| Moment { throttled: 2, ..second(at, [30, 0, 0, 0, 960, 10]) });
        let moments: Vec<_> = rests.clone().chain(waits).collect();
        let last = |class, moments| {
            text(&why(class, moments)).lines().rev().take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let filler = last(ClassName::Filler, moments.clone());
        assert_eq!(filler[1], "GPU 0: mostly gate, 4.80 s in all; launches waited at the gate: 10");
        assert!(
            filler[0].starts_with("help: a filler waits at the gate while others want the GPU"),
            "{filler:?}"
        );
        let primary = last(ClassName::Primary, moments);
        assert!(primary[0].starts_with("help: it asks for more than it is granted"), "{primary:?}");
        let idle = last(ClassName::Filler, rests.collect());
        assert!(idle[0].starts_with("help: it had nothing queued on the GPU"), "{idle:?}");
    }

    #[test]
    fn work_is_no_cause() {
        assert_eq!(cause(&second(0, [1_000, 0, 0, 0, 10, 0])), None);
        assert_eq!(cause(&second(0, [900, 0, 0, 60, 40, 0])), Some(Stall::Neighbour));
    }
}
