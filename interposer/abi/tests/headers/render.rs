//! Writes `src/table.rs`.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::ctypes;
use crate::scan::Headers;
use crate::symbols::Symbol;

const HEAD: &str = "//! Every symbol that the drivers of CUDA 12 and 13 export: name, base name, version, stream flavour, plain symbol,
//! class, arguments.
//!
//! Written by `WEIR_UPDATE=1 cargo test -p weir-abi --test headers`, and held against NVIDIA's headers by the
//! same test. One row is one symbol; all of them return `CUresult`. The class is ours (`weir_abi::Class`): a new symbol
//! is written as `Unclassified`, which does not build until somebody has looked at it.

/// Calls the macro of the given name once, with every row of the table:
/// `symbol \"base\" version flavour plain class (argument: type, ...);`, where `plain` is the symbol of the same
/// function for the legacy default stream. The types are those of `weir_abi::types` and
/// `std::ffi`, which the caller brings into scope.
#[macro_export]
macro_rules! for_each_symbol {
    ($callback:ident) => {
        $callback! {
";

const TAIL: &str = "        }
    };
}
";

/// The whole file.
pub fn table(symbols: &BTreeMap<String, Symbol>, headers: &Headers) -> String {
    let ours = ctypes::ours();
    let mut text = HEAD.to_owned();
    for (name, symbol) in symbols {
        let flavour = if symbol.per_thread { "PerThread" } else { "Legacy" };
        let arguments: Vec<String> = ctypes::arguments(&symbol.arguments)
            .iter()
            .map(|argument| format!("{}: {}", snake(&argument.name), headers.rust(&argument.kind, &ours)))
            .collect();
        let (base, since, plain, class) = (&symbol.base, symbol.since, &symbol.plain, class(name));
        let arguments = arguments.join(", ");
        writeln!(text, "            {name} \"{base}\" {since} {flavour} {plain} {class} ({arguments});")
            .expect("writing to a string");
    }
    text + TAIL
}

/// The class that somebody gave the symbol.
fn class(name: &str) -> String {
    weir_abi::index_of(name)
        .map_or_else(|| "Unclassified".to_owned(), |at| format!("{:?}", weir_abi::SYMBOLS[at].class))
}

/// `hStream` to `h_stream`, `ByteCount` to `byte_count`, `WidthInBytes` to `width_in_bytes`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut previous = '_';
    for c in name.chars() {
        if c.is_uppercase() && (previous.is_lowercase() || previous.is_ascii_digit()) {
            out.push('_');
        }
        out.extend(c.to_lowercase());
        previous = c;
    }
    match out.as_str() {
        "type" => "kind".to_owned(),
        "fn" => "function".to_owned(),
        "mod" => "module".to_owned(),
        _ => out,
    }
}
