//! The table is what NVIDIA's headers say, no more and no less.
//!
//! `WEIR_CUDA_HEADERS` names directories with headers (several CUDA versions, separated by `:`;
//! `interposer/abi/fetch-headers DIR` fetches two). With `WEIR_UPDATE=1` the table is rewritten instead.

mod ctypes;
mod render;
mod scan;
mod symbols;

use std::path::PathBuf;
use std::{env, fs};

use scan::Headers;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/table.rs");

/// The headers, or `None` with a visible word when the test is not asked for.
fn headers() -> Option<Headers> {
    let Some(directories) = env::var_os("WEIR_CUDA_HEADERS") else {
        eprintln!("SKIPPED: set WEIR_CUDA_HEADERS, see interposer/abi/fetch-headers");
        return None;
    };
    Some(Headers::read(&env::split_paths(&directories).collect::<Vec<PathBuf>>()))
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
