//! `weir stats`: everything, as one document. Text would hide the half of it, so it is JSON with and without
//! `--json`.

use super::{Context, printer};
use crate::control::Client;
use crate::fault::Fault;

pub(super) fn run(context: &Context) -> Result<u8, Fault> {
    printer::json(&Client::connect(&context.place()?)?.stats()?);
    Ok(0)
}
