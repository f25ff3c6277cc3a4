//! `weir set`: another budget for a running tenant.

use std::fmt::Display;

use weir_protocol::units::Bytes;

use super::{Context, printer};
use crate::control::Client;
use crate::control::schema::{Budget, SetBudget, SetDone};
use crate::fault::Fault;
use crate::typed::{bandwidth, share, size};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The tenant
    tenant: String,
    /// Share that is guaranteed
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    request: Option<String>,
    /// Share that is never exceeded
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    limit: Option<String>,
    /// Memory on each of its GPUs
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Option<String>,
    /// What may be copied between host and device on each of its GPUs, such as 4GiB/s, or unlimited
    #[arg(long, value_name = "BANDWIDTH", allow_hyphen_values = true)]
    copy_limit: Option<String>,
    /// What it promises its users, such as 'p95 < 200ms'; for a tenant that was made with one
    #[arg(long, value_name = "SLO")]
    slo: Option<String>,
    /// Only say what would happen
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let change = SetBudget {
        tenant: args.tenant.clone(),
        request_permille: share("--request", args.request.as_deref())?,
        limit_permille: share("--limit", args.limit.as_deref())?,
        memory_bytes: size("--memory", args.memory.as_deref())?,
        copy_limit_bytes_per_s: bandwidth("--copy-limit", args.copy_limit.as_deref())?,
        slo: args.slo.clone(),
        dry_run: args.dry_run,
    };
    let done = Client::connect(&context.place()?)?.set(change.clone())?;
    if context.json {
        printer::json(&done);
    } else {
        printer::data(text(&change, &done));
    }
    Ok(0)
}

/// One line for each value that was asked for, then when it came into effect.
fn text(change: &SetBudget, done: &SetDone) -> String {
    let (old, new) = (&done.old, &done.new);
    let lines = [
        change.request_permille.map(|_| line(done, "request", &old.request, &new.request)),
        change.limit_permille.map(|_| line(done, "limit", &old.limit, &new.limit)),
        change.memory_bytes.map(|_| line(done, "memory", &old.memory, &new.memory)),
        change.copy_limit_bytes_per_s.map(|_| line(done, "copy limit", &old.copy_limit, &new.copy_limit)),
        change.slo.as_ref().map(|_| line(done, "slo", &promise(old), &promise(new))),
    ];
    let mut lines: Vec<_> = lines.into_iter().flatten().collect();
    if done.over_limit_bytes > 0 {
        let (holds, over) = (if done.dry_run { "would hold" } else { "holds" }, Bytes(done.over_limit_bytes));
        lines.push(format!(
            "{holds} {over} more than its limit: they stay, and nothing new is allocated until they are freed"
        ));
    }
    lines.extend(effect(done));
    lines.join("\n")
}

fn promise(budget: &Budget) -> String {
    budget.slo.map_or_else(|| "none".into(), |slo| slo.to_string())
}

fn line<T: PartialEq + Display>(done: &SetDone, what: &str, old: &T, new: &T) -> String {
    let tenant = &done.tenant;
    match (old == new, done.dry_run) {
        (true, _) => format!("{tenant}: {what} {old}, unchanged"),
        (false, true) => format!("{tenant}: would change {what} {old} -> {new}"),
        (false, false) => format!("{tenant}: {what} {old} -> {new}"),
    }
}

fn effect(done: &SetDone) -> Option<String> {
    match (done.dry_run, done.first_launch_us) {
        (true, _) => Some("dry run: nothing was changed".into()),
        (false, _) if done.old == done.new => None,
        (false, Some(us)) => Some(format!("in effect; the first launch under it came after {us:.0} us")),
        (false, None) => Some("in effect; no launch under a new grant was seen yet".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_protocol::units::{Bandwidth, SmShare};

    fn done(dry_run: bool) -> SetDone {
        let (request, copy_limit) = (SmShare::percent(30), Bandwidth::UNLIMITED);
        let old = Budget { request, limit: SmShare::FULL, memory: Bytes::gib(2), copy_limit, slo: None };
        let new = Budget { memory: Bytes::gib(1), ..old };
        SetDone { tenant: "a".into(), old, new, dry_run, first_launch_us: None, over_limit_bytes: 0 }
    }

    fn asked() -> SetBudget {
        SetBudget { request_permille: Some(300), memory_bytes: Some(1 << 30), ..SetBudget::default() }
    }

    #[test]
    fn what_stays_is_said_to_be_unchanged() {
        let told = text(&asked(), &done(false));
        assert_eq!(
            told,
            "a: request 30 %, unchanged\na: memory 2 GiB -> 1 GiB\n\
             in effect; no launch under a new grant was seen yet"
        );
        let same = SetDone { new: done(false).old, ..done(false) };
        assert_eq!(text(&asked(), &same), "a: request 30 %, unchanged\na: memory 2 GiB, unchanged");
    }

    #[test]
    fn a_dry_run_says_what_would_change() {
        let told = text(&asked(), &done(true));
        assert!(told.contains("a: would change memory 2 GiB -> 1 GiB\n"), "{told}");
    }
}
