//! Reads C headers just well enough: no preprocessor, no grammar, only the shapes that these headers have.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

/// The headers that describe driver functions; those that a version lacks are skipped.
const FILES: &[&str] = &[
    "cuda.h",
    "cudaGL.h",
    "cudaEGL.h",
    "cudaVDPAU.h",
    "cudaTypedefs.h",
    "cudaGLTypedefs.h",
    "cudaEGLTypedefs.h",
    "cudaVDPAUTypedefs.h",
    "cudaProfilerTypedefs.h",
];

/// One `PFN_cuName_vVERSION` of the typedef headers.
pub struct Typedef {
    pub base: String,
    pub since: u32,
    pub per_thread: Option<&'static str>,
    pub arguments: String,
}

/// Everything of use in all the headers given.
#[derive(Default)]
pub struct Headers {
    pub typedefs: Vec<Typedef>,
    /// Exported symbol to the text of its arguments.
    pub declared: BTreeMap<String, String>,
    /// `typedef OLD NEW`, by the new name.
    pub aliases: HashMap<String, String>,
    /// Versioned names that stand for the current type: `CUdeviceptr_v2` for `CUdeviceptr`.
    pub current: HashMap<String, String>,
    pub enums: HashSet<String>,
    /// Types that are pointers already: handles and callbacks.
    pub pointers: HashSet<String>,
    pub structs: BTreeSet<String>,
}

impl Headers {
    pub fn read(directories: &[PathBuf]) -> Headers {
        let mut headers = Headers::default();
        for directory in directories {
            let before = headers.typedefs.len();
            for file in FILES {
                if let Ok(text) = fs::read_to_string(directory.join(file)) {
                    headers.scan(&text);
                }
            }
            assert!(headers.typedefs.len() > before, "no driver headers in {}", directory.display());
        }
        headers
    }

    fn scan(&mut self, text: &str) {
        let mut renamed = HashMap::new();
        let mut statement = String::new();
        for line in without_windows(&without_comments(text)) {
            match line.trim_start().strip_prefix('#') {
                Some(directive) => note_rename(directive.trim_start(), &mut renamed),
                None => {
                    statement.push_str(line);
                    statement.push(' ');
                    while let Some(end) = statement.find(';') {
                        self.take(statement[..end].trim(), &renamed);
                        statement.drain(..=end);
                    }
                }
            }
        }
    }

    /// Sorts one statement (as far as its semicolon) into what it says.
    fn take(&mut self, statement: &str, renamed: &HashMap<String, String>) {
        if let Some(at) = statement.find("PFN_cu") {
            self.typedefs.extend(typedef(&statement[at + 4..]));
        } else if let Some(at) = statement.find("CUresult CUDAAPI cu") {
            if let Some((name, arguments)) = call(&statement[at + "CUresult CUDAAPI ".len()..]) {
                let name = renamed.get(name).map_or(name, String::as_str);
                self.declared.insert(name.to_owned(), arguments.to_owned());
            }
        } else if let Some((body, name)) = statement.rsplit_once('}') {
            let kind =
                if body.contains("typedef enum") { &mut self.enums } else { return self.take_struct(name) };
            kind.insert(name.trim().to_owned());
        } else if let Some(at) = statement.find("typedef ") {
            self.take_typedef(&statement[at + "typedef ".len()..]);
        }
    }

    fn take_struct(&mut self, name: &str) {
        let name = name.trim();
        if !name.is_empty() && !name.contains(' ') {
            self.structs.insert(name.to_owned());
        }
    }

    /// `struct X *HANDLE`, `RESULT (*CALLBACK)(...)` or `OLD NEW`.
    fn take_typedef(&mut self, text: &str) {
        if let Some((_, rest)) = text.split_once('(') {
            let name = rest.split(')').next().unwrap_or("").rsplit(['*', ' ']).next().unwrap_or("");
            self.pointers.insert(name.to_owned());
        } else if let Some((_, handle)) = text.split_once('*') {
            self.pointers.insert(handle.trim().to_owned());
        } else if let Some((old, new)) = text.rsplit_once(' ') {
            let old = old.trim().trim_start_matches("struct ").to_owned();
            if old.strip_prefix(new).is_some_and(|rest| rest.starts_with("_v")) {
                self.current.insert(old.clone(), new.to_owned());
            }
            self.aliases.insert(new.to_owned(), old);
        }
    }
}

/// `cuMemAlloc_v3020)(CUdeviceptr_v1 *dptr, ...)`.
fn typedef(text: &str) -> Option<Typedef> {
    let (name, arguments) = text.split_once(")(")?;
    let (name, per_thread) = match name.rsplit_once('_')? {
        (name, "ptsz") => (name, Some("_ptsz")),
        (name, "ptds") => (name, Some("_ptds")),
        _ => (name, None),
    };
    let (base, since) = name.rsplit_once("_v")?;
    let arguments = arguments.trim_end().trim_end_matches(')').to_owned();
    Some(Typedef { base: base.to_owned(), since: since.parse().ok()?, per_thread, arguments })
}

/// `cuMemAlloc(CUdeviceptr *dptr, size_t bytesize)`.
fn call(text: &str) -> Option<(&str, &str)> {
    let (name, arguments) = text.split_once('(')?;
    Some((name.trim(), arguments.trim_end().strip_suffix(')')?))
}

/// `define cuMemAlloc cuMemAlloc_v2` sends the declarations that follow to another symbol, `undef` ends it.
fn note_rename(directive: &str, renamed: &mut HashMap<String, String>) {
    let mut words = directive.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("define"), Some(name), Some(symbol)) if name.starts_with("cu") && !name.contains('(') => {
            let symbol = symbol.split(['(', ')']).find(|part| part.starts_with("cu"));
            if let Some(symbol) = symbol.filter(|symbol| *symbol != name) {
                renamed.insert(name.to_owned(), symbol.to_owned());
            }
        }
        (Some("undef"), Some(name), _) => {
            renamed.remove(name);
        }
        _ => {}
    }
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("/*") {
        out.push_str(&rest[..start]);
        rest = rest[start..].split_once("*/").map_or("", |(_, after)| after);
    }
    out + rest
}

/// The lines that hold on Linux. Only `_WIN32` decides; of all other conditions both branches are read.
fn without_windows(text: &str) -> impl Iterator<Item = &str> {
    let mut conditions: Vec<bool> = Vec::new();
    text.lines().map(|line| line.split("//").next().unwrap_or("")).filter(move |line| {
        let directive = line.trim_start().strip_prefix('#').map_or("", str::trim_start);
        match directive {
            d if d.starts_with("if") => conditions.push(!d.contains("_WIN32") || d.starts_with("ifndef")),
            d if d.starts_with("else") => {
                if let Some(last) = conditions.last_mut() {
                    *last = true;
                }
            }
            d if d.starts_with("endif") => drop(conditions.pop()),
            _ => {}
        }
        conditions.iter().all(|holds| *holds)
    })
}
