//! What a library exports, as its file says.

use std::collections::BTreeSet;
use std::path::Path;

use object::{Object, ObjectSymbol};

/// The names of all symbols that the library defines for others.
///
/// # Errors
/// If it cannot be read, or is no ELF file; with its name.
pub fn of(library: &Path) -> Result<BTreeSet<String>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", library.display());
    let bytes = std::fs::read(library).map_err(|error| failed(&error))?;
    let elf = object::File::parse(&*bytes).map_err(|error| failed(&error))?;
    let defined = elf.dynamic_symbols().filter(|symbol| symbol.is_definition());
    Ok(defined.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect())
}

/// `cu` and a capital letter: the driver's own helpers are spelt in other ways.
pub fn is_driver_function(name: &str) -> bool {
    name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
}
