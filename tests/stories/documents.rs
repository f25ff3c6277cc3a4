//! The documents are true in what can be looked up: links lead to files, and the tests that they name are there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files below a directory whose names end so.
fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => files(&path, end),
        false => Vec::from_iter(path.to_string_lossy().ends_with(end).then_some(path)),
    });
    found.collect()
}

fn documents() -> Vec<(PathBuf, String)> {
    let mut paths = files(&root().join("docs"), ".md");
    paths.push(root().join("README.md"));
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("a document"))).collect()
}

/// Functions and modules of all Rust sources, by name.
fn names() -> BTreeSet<String> {
    let dirs = ["bench", "cluster-lite", "interposer", "nodemgr", "tests"]
        .map(|dir| files(&root().join(dir), ".rs"));
    let mut names = BTreeSet::new();
    for path in dirs.into_iter().flatten() {
        let text = std::fs::read_to_string(path).expect("a source");
        let words: Vec<&str> = text.split_whitespace().collect();
        let defined = words.windows(2).filter(|pair| ["fn", "mod"].contains(&pair[0]));
        let name = |word: &str| {
            word.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().map(str::to_owned)
        };
        names.extend(defined.filter_map(|pair| name(pair[1])));
    }
    names
}

#[test]
fn the_tests_that_documents_name_are_there() {
    let (names, mut named) = (names(), 0);
    for (path, text) in documents() {
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_name =
                |part: &str| part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            let parts: Vec<&str> = quoted.split("::").collect();
            if parts.len() > 1 && parts.iter().all(|part| is_name(part)) {
                named += 1;
                let last = parts[parts.len() - 1];
                assert!(names.contains(last), "{}: there is no `{quoted}`", path.display());
            }
        }
    }
    assert!(named > 50, "{named}");
}

#[test]
fn links_lead_to_files() {
    for (path, text) in documents() {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains("://")) {
            let to = path.parent().expect("a directory").join(link);
            assert!(to.exists(), "{}: there is no `{link}`", path.display());
        }
    }
}
