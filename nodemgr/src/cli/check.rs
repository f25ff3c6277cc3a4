//! `weir check`: whether a configuration file would be used as it is.

use std::path::PathBuf;

use super::{Context, printer};
use crate::config::Config;
use crate::fault::Fault;
use crate::place::Place;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The file
    file: PathBuf,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let config = Config::load(Some(&args.file))?;
    config.dir.as_deref().map(Place::at).transpose()?;
    let shown = args.file.display().to_string();
    if context.json {
        printer::json(
            &serde_json::json!({"schema": 1, "file": shown, "ok": true, "prices": config.price.len(), "tenants": config.tenants.len(), "signals": config.signals.len()}),
        );
    } else {
        let (prices, tenants, signals) = (config.price.len(), config.tenants.len(), config.signals.len());
        printer::data(format_args!("{shown}: ok; tenants {tenants}, signals {signals}, price rows {prices}"));
    }
    Ok(0)
}
