//! `weir events`: what has happened on the node, and what happens.

use super::{Context, printer};
use crate::control::Client;
use crate::control::history::{AskEvents, Events};
use crate::fault::Fault;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let mut client = Client::connect(&context.place()?)?;
    let mut found = client.events(AskEvents::default())?;
    print(context, &found);
    if !args.follow && !context.json && found.events.is_empty() {
        printer::talk("nothing has happened yet");
    }
    while args.follow && printer::is_read() {
        found = client.events(AskEvents { after: found.last, wait: true })?;
        print(context, &found);
    }
    Ok(0)
}

/// With `--json` one document a line, so that a reader need not wait for the end.
fn print(context: &Context, found: &Events) {
    if found.missed > 0 {
        printer::talk(format_args!("weir: {} earlier events are no longer kept", found.missed));
    }
    for event in &found.events {
        match context.json {
            true => printer::line(event),
            false => printer::data(event),
        }
    }
}
