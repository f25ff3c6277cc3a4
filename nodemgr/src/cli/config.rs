//! `weir config show`: every setting of the node manager, and where it comes from.

use std::path::PathBuf;

use super::{Context, printer};
use crate::config::{Config, Said};
use crate::control::Client;
use crate::control::schema::Budget;
use crate::fault::Fault;
use crate::journal;
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
    let place = match context.dir.as_deref().or(loaded.dir.as_deref()) {
        Some(dir) => Place::at(dir)?,
        None => Place::standard(),
    };
    let said = Said {
        dir: context.dir.as_deref(),
        policy: policy.as_deref(),
        standard_dir: Place::standard().base().to_path_buf(),
        dir_from_environment: std::env::var_os("WEIR_NODE_DIR").is_some_and(|dir| !dir.is_empty()),
        budgets: budgets(&place),
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

/// The budgets of the tenants that stand in the configuration, by it and now: as the manager of `place` has them, or as the
/// one before has left them to the next. Whoever may ask neither has those of the file.
fn budgets(place: &Place) -> Vec<(String, Budget, Budget)> {
    let asked = Client::connect(place).and_then(|mut manager| manager.overview());
    match asked {
        Ok(stats) => {
            let tenants = stats.tenants.into_iter();
            tenants.filter_map(|tenant| Some((tenant.name, tenant.configured?, tenant.budget))).collect()
        }
        Err(_) => {
            let left = journal::read(place).ok().flatten().unwrap_or_default().tenants.into_iter();
            left.filter_map(|tenant| Some((tenant.name, tenant.configured?, tenant.budget))).collect()
        }
    }
}
