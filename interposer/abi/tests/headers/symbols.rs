//! From typedefs to exported symbols: which symbol a version of a function is.

use std::collections::{BTreeMap, BTreeSet};

use crate::scan::Headers;

/// One exported symbol.
pub struct Symbol {
    pub base: String,
    pub since: u32,
    pub per_thread: bool,
    /// The same function for the legacy default stream; of a plain symbol, its own name.
    pub plain: String,
    pub arguments: String,
}

/// Every symbol by name. The first version of a function is exported under its bare name, the second as
/// `_v2` and so on; a per-thread flavour adds its suffix to the symbol of the version it belongs to.
pub fn of(headers: &Headers) -> BTreeMap<String, Symbol> {
    let mut versions: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for typedef in headers.typedefs.iter().filter(|typedef| typedef.per_thread.is_none()) {
        versions.entry(&typedef.base).or_default().insert(typedef.since);
    }
    let symbol = |typedef: &crate::scan::Typedef| {
        // Per-thread streams came with 7000: that flavour belongs to the youngest version at the time.
        let place = versions[typedef.base.as_str()].range(..=typedef.since).count();
        let version = if place > 1 { format!("_v{place}") } else { String::new() };
        let plain = format!("{}{version}", typedef.base);
        let name = format!("{plain}{}", typedef.per_thread.unwrap_or(""));
        let (base, arguments) = (typedef.base.clone(), typedef.arguments.clone());
        let per_thread = typedef.per_thread.is_some();
        (name, Symbol { base, since: typedef.since, per_thread, plain, arguments })
    };
    headers.typedefs.iter().map(symbol).collect()
}
