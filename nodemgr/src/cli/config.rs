//! `weir config show`: every setting of the node manager, and where it comes from.

use std::path::PathBuf;

use super::{Context, printer};
use crate::config::{Config, Said};
use crate::fault::Fault;
use crate::place::Place;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Print every setting that `weir node` would have with these flags, and where it comes from
    Show {
        /// Configuration file [default: /etc/weir/weir.toml if it is there]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Policy, as for `weir node`
        #[arg(long, value_name = "NAME")]
        policy: Option<String>,
    },
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let What::Show { config, policy } = &args.what;
    let loaded = Config::load(config.as_deref())?;
    policy.as_deref().map(crate::registry::find_policy).transpose()?;
    context.dir.as_deref().map(Place::at).transpose()?;
    let said = Said {
        dir: context.dir.as_deref(),
        policy: policy.as_deref(),
        standard_dir: Place::standard().base().to_path_buf(),
        dir_from_environment: std::env::var_os("WEIR_NODE_DIR").is_some_and(|dir| !dir.is_empty()),
    };
    let settings = loaded.settings(&said);
    if context.json {
        printer::json(&serde_json::json!({"schema": 1, "settings": settings}));
        return Ok(0);
    }
    let rows: Vec<_> = settings
        .into_iter()
        .map(|setting| vec![setting.key, setting.value, setting.from.to_string()])
        .collect();
    printer::data(printer::table(&["SETTING", "VALUE", "FROM"], &rows));
    Ok(0)
}
