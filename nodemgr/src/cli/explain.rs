//! `weir explain`: what an error code is about.

use serde_json::{Value, json};

use super::{Context, printer};
use crate::codes::{self, Row};
use crate::fault::Fault;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The code, such as W0107 [default: all of them]
    code: Option<String>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    match &args.code {
        Some(code) => explain(context, find(code)?),
        None => list(context),
    }
    Ok(0)
}

fn find(code: &str) -> Result<&'static Row, Fault> {
    codes::find(code).ok_or_else(|| {
        let known: Vec<_> = codes::TABLE.iter().map(|row| row.code).collect();
        let message = format!("there is no error code `{}`", code.escape_debug());
        Fault::new(&codes::USAGE, message, format!("the codes are: {}", known.join(" ")))
    })
}

fn explain(context: &Context, row: &Row) {
    if context.json {
        let mut document = value(row);
        document["schema"] = json!(1);
        return printer::json(&document);
    }
    printer::data(format_args!("{} (exit code {}): {}", row.code, row.exit, row.about));
}

/// The table is in order.
fn list(context: &Context) {
    if context.json {
        let codes: Vec<_> = codes::TABLE.iter().map(value).collect();
        return printer::json(&json!({"schema": 1, "codes": codes}));
    }
    let row = |row: &Row| vec![row.code.to_owned(), row.exit.to_string(), row.about.to_owned()];
    let rows: Vec<_> = codes::TABLE.iter().map(row).collect();
    printer::data(printer::table(&["CODE", "EXIT", "ABOUT"], &rows));
}

fn value(row: &Row) -> Value {
    json!({"code": row.code, "exit": row.exit, "about": row.about})
}
