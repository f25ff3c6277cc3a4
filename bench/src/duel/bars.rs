//! What the rows are held to. A figure is a program's *progress*: its units a second by those that it has alone.

use super::measure::{Got, Measured, Together};
use super::pairs::{Card, Kind};
use super::setting::{PROMISED_MS, Setting, UNEVEN};
use crate::report::Bar;
use crate::sample::{least, most};

/// A switch in mid-kernel, a piece of a dense tenant's work beside a server, and how long before the end of one the next is
/// let go, us of the card.
const SWITCH_US: f64 = 195.0;
const PIECE_US: f64 = 500.0;
const LEAD_US: f64 = 100.0;

/// A switch after a drain, us of the card; and what may come on top of it before a request begins.
const DRAINED_US: f64 = weir_simgpu_link::config::SWITCH_US as f64;
const START_US: f64 = 100.0;

/// What a filler may lose because nobody says that the primary's work has ended, in pauses of so long at least, us of the card.
const UNSEEN_PERCENT: f64 = 5.0;
const LONG_PAUSE_US: f64 = 20_000.0;

/// A bar of all rows that have something to do with it: each tenant's figures, the worst of them.
struct Row {
    name: &'static str,
    at_most: bool,
    limit: f64,
    figures: fn(&Measured) -> Vec<f64>,
}

const ROWS: [Row; 17] = [
    Row { name: "duel.model_error_percent", at_most: true, limit: 10.0, figures: |row| model(row, true) },
    Row {
        name: "duel.model_host_error_percent",
        at_most: true,
        limit: 25.0,
        figures: |row| model(row, false),
    },
    Row { name: "duel.against_slicing_percent", at_most: false, limit: 93.0, figures: against_slicing },
    Row { name: "duel.entitled_percent", at_most: false, limit: 92.0, figures: |row| entitled(row, true) },
    Row {
        name: "duel.entitled_host_percent",
        at_most: false,
        limit: 80.0,
        figures: |row| entitled(row, false),
    },
    Row { name: "duel.latency_ratio", at_most: true, limit: 1.4, figures: latency },
    Row { name: "duel.beside_percent", at_most: false, limit: 85.0, figures: beside },
    Row { name: "duel.promise_percent", at_most: false, limit: 85.0, figures: promise },
    Row { name: "duel.filled_percent", at_most: false, limit: 70.0, figures: filled },
    Row { name: "duel.filled_loss_percent", at_most: true, limit: 4.0, figures: filled_loss },
    Row { name: "gate.start_p99_us", at_most: true, limit: START_US, figures: starts },
    Row { name: "gate.start_filled_percent", at_most: false, limit: 60.0, figures: start_filled },
    Row { name: "room.percent", at_most: false, limit: 97.0, figures: |row| against_bare(row, Kind::Room) },
    Row { name: "room.loops_percent", at_most: false, limit: 95.0, figures: sum_against_bare },
    Row {
        name: "room.lesser_loop_percent",
        at_most: false,
        limit: 85.0,
        figures: |row| against_bare(row, Kind::Loops),
    },
    Row {
        name: "helper.steps_core_percent",
        at_most: true,
        limit: 1.0,
        figures: |row| helper(row, Setting::Equal, 0),
    },
    Row {
        name: "helper.pieces_core_percent",
        at_most: true,
        limit: 5.0,
        figures: |row| helper(row, Setting::Filler, 1),
    },
];

/// All bars that these rows have figures for.
pub fn judge(rows: &[Measured]) -> Vec<Bar> {
    let bar = |row: &Row| {
        let figures: Vec<f64> = rows.iter().flat_map(row.figures).collect();
        let unit = row.name.rsplit(['_', '.']).next().unwrap_or_default(); // its name ends with it
        match (figures.is_empty(), row.at_most) {
            (true, _) => None,
            (_, true) => Some(Bar::at_most(row.name, most(figures.into_iter()), unit, row.limit)),
            (_, false) => Some(Bar::at_least(row.name, least(figures.into_iter()), unit, row.limit)),
        }
    };
    let is_long = |row: &&Measured| row.pair.works.first().is_some_and(|work| work.pause_us >= LONG_PAUSE_US);
    let unseen: Vec<f64> = rows.iter().filter(is_long).filter_map(|row| unseen(row, rows)).collect();
    let of_unseen =
        || Bar::at_most("bubble.unseen_percent", most(unseen.iter().copied()), "percent", UNSEEN_PERCENT);
    let unseen = (!unseen.is_empty()).then(of_unseen);
    ROWS.iter().filter_map(bar).chain(unseen).collect()
}

/// By how much less a filler does beside a primary that makes no call in its pauses than beside one that waits for its work first: a row
/// `unseen-20+..` against the row `seen-20+..`.
pub fn unseen(row: &Measured, rows: &[Measured]) -> Option<f64> {
    let twin = row.name.strip_prefix("un").filter(|name| name.starts_with("seen"))?;
    let twin = rows.iter().find(|row| row.name == twin)?;
    let fills = |row: &Measured| Some(progress(row, pauses(row).next()?, 1));
    Some(100.0 * (1.0 - fills(row)? / fills(twin)?))
}

/// What each bar has of one row, by name: what the worst is the worst of.
pub fn of_row(row: &Measured) -> std::collections::BTreeMap<&'static str, Vec<f64>> {
    let all = ROWS.iter().map(|bar| (bar.name, (bar.figures)(row)));
    all.filter(|(_, figures)| !figures.is_empty()).collect()
}

/// By how much plain slicing is off the card's figures, percent; of rows that the GPU bounds, or of the others.
fn model(row: &Measured, dense: bool) -> Vec<f64> {
    let Some(plain) = row.settings.get(&Setting::Plain) else { return Vec::new() };
    let off = |card: &Card| {
        let (at, wanted, field): (_, _, fn(&Got) -> Option<f64>) = match *card {
            Card::PerS(at, wanted) => (at, wanted, |got| got.per_s),
            Card::P50(at, wanted) => (at, wanted, |got| got.p50_ms),
            Card::P99(at, wanted) => (at, wanted, |got| got.p99_ms),
        };
        let got = plain.tenants.get(at).and_then(field).unwrap_or(f64::NAN);
        100.0 * (got / wanted - 1.0).abs()
    };
    if row.pair.is_dense() == dense { row.pair.card.iter().map(off).collect() } else { Vec::new() }
}

/// Of the program at this position, as a part of what it has alone.
fn progress(row: &Measured, together: &Together, at: usize) -> f64 {
    let per_s = |got: Option<&Got>| got.and_then(|got| got.per_s).unwrap_or(f64::NAN);
    per_s(together.tenants.get(at)) / per_s(row.alone.get(at))
}

/// Each tenant's progress against the lesser of what plain slicing gives it and its share.
fn against_slicing(row: &Measured) -> Vec<f64> {
    let (Some(plain), Some(weir)) = (row.settings.get(&Setting::Plain), row.settings.get(&Setting::Equal))
    else {
        return Vec::new();
    };
    let requests = row.pair.requests.iter().enumerate();
    let of = |(at, request): (usize, &u16)| {
        let share = f64::from(*request) / 100.0;
        100.0 * progress(row, weir, at) / progress(row, plain, at).min(share)
    };
    requests.map(of).collect()
}

/// At 70/30: against the greater of its share and what the others and switches leave it.
fn entitled(row: &Measured, dense: bool) -> Vec<f64> {
    let Some(weir) = row.settings.get(&Setting::Uneven) else { return Vec::new() };
    let of = |(at, request): (usize, u16)| {
        let others = (0..weir.tenants.len()).filter(|other| *other != at);
        let taken: f64 =
            others.map(|other| taken(row, weir, other)).sum::<f64>() + weir.switch_percent / 100.0;
        let entitled = (f64::from(request) / 100.0).max(1.0 - taken).min(1.0);
        100.0 * progress(row, weir, at) / entitled
    };
    let each = UNEVEN.into_iter().enumerate();
    each.filter(|(at, _)| row.pair.works.get(*at).is_some_and(|work| work.dense == dense)).map(of).collect()
}

/// The part of the time that the program at this position leaves to no other: what it uses, and of one that the GPU bounds also its pauses,
/// which are shorter than two switches.
fn taken(row: &Measured, together: &Together, at: usize) -> f64 {
    let used = || together.tenants.get(at).map_or(f64::NAN, |got| got.used_percent / 100.0);
    let is_dense = row.pair.works.get(at).is_some_and(|work| work.dense);
    if is_dense { progress(row, together, at) } else { used() }
}

/// A server's p99 against what it has alone and what can lie in its way.
fn latency(row: &Measured) -> Vec<f64> {
    let p99_ms = |got: Option<&Got>| got.and_then(|got| got.p99_ms).unwrap_or(f64::NAN);
    let unit_us = row.pair.works.get(1).map_or(f64::NAN, |work| work.unit_us);
    let beyond_ms = (unit_us.max(PIECE_US) + LEAD_US + 2.0 * SWITCH_US) / 1e3;
    let ratio = |weir: &Together| p99_ms(weir.tenants.first()) / (p99_ms(row.alone.first()) + beyond_ms);
    served(row, &[Setting::Filler, Setting::Primary]).map(ratio).collect()
}

/// What the other does then, against the time in which the server alone has nothing to do.
fn beside(row: &Measured) -> Vec<f64> {
    served(row, &[Setting::Filler, Setting::Primary]).map(|weir| of_rest(row, weir)).collect()
}

/// The same under a promise; nothing where it is broken.
fn promise(row: &Measured) -> Vec<f64> {
    let of = |weir: &Together| match weir.tenants.first().and_then(|got| got.p99_ms) {
        Some(p99_ms) if p99_ms < PROMISED_MS => of_rest(row, weir),
        _ => 0.0,
    };
    served(row, &[Setting::Promise]).map(of).collect()
}

fn of_rest(row: &Measured, weir: &Together) -> f64 {
    let busy = row.alone.first().and_then(|got| got.undrained_percent).unwrap_or(f64::NAN);
    100.0 * progress(row, weir, 1) / (1.0 - busy / 100.0)
}

/// A row with a server, under these settings.
fn served<'a>(row: &'a Measured, settings: &'a [Setting]) -> impl Iterator<Item = &'a Together> {
    let online = row.pair.kind == Kind::Online;
    settings.iter().filter(move |_| online).filter_map(|setting| row.settings.get(setting))
}

/// By how much more than the filler's unit or piece and a switch a request of one kernel takes beside it than alone, at p99.
fn starts(row: &Measured) -> Vec<f64> {
    let p99_us = |got: Option<&Got>| got.and_then(|got| got.p99_ms).unwrap_or(f64::NAN) * 1e3;
    let unit_us = row.pair.works.get(1).map_or(f64::NAN, |work| work.unit_us);
    let in_the_way_us = unit_us.max(PIECE_US) + DRAINED_US;
    let beyond = |weir: &Together| p99_us(weir.tenants.first()) - p99_us(row.alone.first()) - in_the_way_us;
    started(row).map(beyond).collect()
}

/// What the filler does then.
fn start_filled(row: &Measured) -> Vec<f64> {
    started(row).map(|weir| of_rest(row, weir)).collect()
}

fn started(row: &Measured) -> impl Iterator<Item = &Together> {
    row.settings.get(&Setting::Filler).filter(|_| row.pair.kind == Kind::Starts).into_iter()
}

/// A filler's work against the pauses, less two switches and one of its units in each.
fn filled(row: &Measured) -> Vec<f64> {
    let [primary, filler] = row.pair.works else { return Vec::new() };
    let cycle_us = 1e6 / row.alone.first().and_then(|got| got.per_s).unwrap_or(f64::NAN);
    let rest = (primary.pause_us - 2.0 * SWITCH_US - filler.unit_us) / cycle_us;
    pauses(row).map(|weir| 100.0 * progress(row, weir, 1) / rest).collect()
}

/// What that costs the primary.
fn filled_loss(row: &Measured) -> Vec<f64> {
    pauses(row).map(|weir| 100.0 * (1.0 - progress(row, weir, 0))).collect()
}

/// Each one's progress against the same programs' without Weir, in rows of this kind.
fn against_bare(row: &Measured, kind: Kind) -> Vec<f64> {
    let all = bare(row, kind).flat_map(|(plain, weir)| plain.tenants.iter().zip(&weir.tenants));
    let of = |(plain, weir): (&Got, &Got)| percent_of(weir.per_s, plain.per_s);
    all.map(of).collect()
}

/// What two loops do together, against the same.
fn sum_against_bare(row: &Measured) -> Vec<f64> {
    let sum = |together: &Together| together.tenants.iter().map(|got| got.per_s).sum::<Option<f64>>();
    bare(row, Kind::Loops).map(|(plain, weir)| percent_of(sum(weir), sum(plain))).collect()
}

/// A row of this kind, without Weir and under it.
fn bare(row: &Measured, kind: Kind) -> impl Iterator<Item = (&Together, &Together)> {
    let settings = row.settings.get(&Setting::Plain).zip(row.settings.get(&Setting::Equal));
    settings.filter(|_| row.pair.kind == kind).into_iter()
}

fn percent_of(figure: Option<f64>, whole: Option<f64>) -> f64 {
    100.0 * figure.unwrap_or(f64::NAN) / whole.unwrap_or(f64::NAN)
}

/// What the helper of the program at this position takes of a core.
fn helper(row: &Measured, setting: Setting, at: usize) -> Vec<f64> {
    let together = row.settings.get(&setting).filter(|_| row.pair.kind == Kind::Helpers);
    together.and_then(|together| together.tenants.get(at)?.helper_core_percent).into_iter().collect()
}

fn pauses(row: &Measured) -> impl Iterator<Item = &Together> {
    row.settings.get(&Setting::Filler).filter(|_| row.pair.kind == Kind::Pauses).into_iter()
}
