//! What the driver on this machine exports and our list of its functions lacks: those are called past every budget.

use std::path::Path;

use weir_tests::exports;

use crate::route::Missed;

/// The driver's functions that `weir-abi`'s table does not have, by name.
pub fn unlisted(driver: &Path) -> Result<Vec<String>, Missed> {
    let unlisted = |name: &String| exports::is_driver_function(name) && weir_abi::index_of(name).is_none();
    Ok(exports::of(driver)?.into_iter().filter(unlisted).collect())
}
