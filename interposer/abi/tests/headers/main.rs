//! The table is what NVIDIA's headers say, no more and no less.
//!
//! `WEIR_CUDA_HEADERS` names directories with headers (several CUDA versions, separated by `:`;
//! `interposer/abi/fetch-headers DIR` fetches two), `WEIR_NEWER_CUDA_HEADERS` those of later ones. With `WEIR_UPDATE=1` the table is rewritten instead.

mod ctypes;
mod render;
mod scan;
mod symbols;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{env, fs};

use scan::Headers;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/table.rs");

/// The directories that a variable names.
fn directories(variable: &str) -> Vec<PathBuf> {
    let paths = env::var_os(variable).unwrap_or_default();
    env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The headers, or `None` with a visible word when the test is not asked for.
fn headers() -> Option<Headers> {
    let directories = directories("WEIR_CUDA_HEADERS");
    if directories.is_empty() {
        eprintln!("SKIPPED: set WEIR_CUDA_HEADERS, see interposer/abi/fetch-headers");
        return None;
    }
    Some(Headers::read(&directories))
}

#[test]
fn the_table_says_what_the_headers_say() {
    let Some(headers) = headers() else { return };
    let wanted = render::table(&symbols::of(&headers), &headers);
    if env::var_os("WEIR_UPDATE").is_some() {
        fs::write(TABLE, &wanted).expect("the table can be written");
        return;
    }
    let have = fs::read_to_string(TABLE).expect("the table is there");
    let missing: Vec<_> = wanted.lines().filter(|line| !have.contains(line)).collect();
    let stale: Vec<_> = have.lines().filter(|line| !wanted.contains(line)).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "the headers have:\n{}\nthe table has:\n{}\nhelp: WEIR_UPDATE=1 rewrites it; then each `Unclassified` row wants a class of weir_abi::Class",
        missing.join("\n"),
        stale.join("\n")
    );
}

#[test]
fn every_function_that_a_header_declares_is_in_the_table_with_its_signature() {
    let Some(headers) = headers() else { return };
    let table = symbols::of(&headers);
    let wrong: Vec<_> = headers
        .declared
        .iter()
        .filter_map(|(name, arguments)| match table.get(name) {
            None => Some(format!("{name}: declared, but no version is known for it")),
            Some(symbol) => {
                let (ours, theirs) = (headers.kinds(&symbol.arguments), headers.kinds(arguments));
                (ours != theirs).then(|| format!("{name}: {ours:?} in the table, {theirs:?} declared"))
            }
        })
        .collect();
    assert!(headers.declared.len() > 500, "only {} declarations were read", headers.declared.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The name of a symbol may be told by the older ones alone: a `_v2` is one since there was another before it.
#[test]
fn a_release_that_came_since_has_no_symbol_that_the_table_lacks() {
    let [known, newer] = ["WEIR_CUDA_HEADERS", "WEIR_NEWER_CUDA_HEADERS"].map(directories);
    if newer.is_empty() {
        return eprintln!(
            "SKIPPED: WEIR_NEWER_CUDA_HEADERS names none, see interposer/abi/fetch-headers --newer"
        );
    }
    let headers = Headers::read(&[known, newer.clone()].concat());
    let names = symbols::of(&headers).into_keys().chain(headers.declared.into_keys());
    let known: BTreeSet<&str> = weir_abi::SYMBOLS.iter().map(|symbol| symbol.name).collect();
    let new: BTreeSet<String> = names.filter(|name| !known.contains(name.as_str())).collect();
    assert!(
        new.is_empty(),
        "{newer:?} has, and the table has not: {new:?}\nhelp: name that version in interposer/abi/fetch-headers, then WEIR_UPDATE=1 cargo test -p weir-abi --test headers; each `Unclassified` row wants a class"
    );
}
