//! `weir off` and `weir on`: the kill switch.

use super::{Context, printer};
use crate::control::Client;
use crate::control::switch::Switched;
use crate::fault::Fault;

/// What to say wherever the node is switched off.
pub const OFF: &str =
    "WEIR IS OFF: shares, turns and copy limits are NOT ENFORCED, memory limits hold; back on with: weir on";

pub(super) fn run(context: &Context, off: bool) -> Result<u8, Fault> {
    let switched = Client::connect(&context.place()?)?.switch(off)?;
    if context.json {
        printer::json(&switched);
    } else {
        printer::data(text(switched));
    }
    if off {
        printer::talk(OFF);
    }
    Ok(0)
}

fn text(Switched { off, was_off, tenants }: Switched) -> String {
    let now = match (off, was_off) {
        (true, true) => "off, as before",
        (true, false) => "off",
        (false, true) => "on again: budgets are enforced",
        (false, false) => "on, as before",
    };
    format!("{now}; tenants: {tenants}")
}
