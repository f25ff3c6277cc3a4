//! `weir explain`: what an error code is about.

use super::{Context, printer};
use crate::codes;
use crate::fault::Fault;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The code, such as W0107
    code: String,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let Some(row) = codes::find(&args.code) else {
        let known: Vec<_> = codes::TABLE.iter().map(|row| row.code).collect();
        let message = format!("there is no error code `{}`", args.code.escape_debug());
        return Err(Fault::new(&codes::USAGE, message, format!("the codes are: {}", known.join(" "))));
    };
    if context.json {
        printer::json(
            &serde_json::json!({"schema": 1, "code": row.code, "exit": row.exit, "about": row.about}),
        );
    } else {
        printer::data(format_args!("{} (exit code {}): {}", row.code, row.exit, row.about));
    }
    Ok(0)
}
