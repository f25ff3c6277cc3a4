//! What the driver on this machine exports and our list of its functions lacks: those are called past every budget.

use std::path::Path;

use object::{Object, ObjectSymbol};

use crate::route::Missed;

/// The driver's functions that `weir-abi`'s table does not have, by name.
pub fn unlisted(driver: &Path) -> Result<Vec<String>, Missed> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", driver.display());
    let bytes = std::fs::read(driver).map_err(|error| failed(&error))?;
    let elf = object::File::parse(&*bytes).map_err(|error| failed(&error))?;
    let exported = elf.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let mut names: Vec<_> = exported
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .filter(|name| is_driver_function(name) && weir_abi::index_of(name).is_none())
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// `cu` and a capital letter: the driver's own helpers are spelt in other ways.
fn is_driver_function(name: &str) -> bool {
    name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
}
