//! From C types to the Rust types of the table.

use std::collections::HashSet;
use std::fs;

use crate::scan::Headers;

const TYPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/types");

const SCALARS: &[(&str, &str)] = &[
    ("void", "c_void"),
    ("char", "c_char"),
    ("unsigned char", "c_uchar"),
    ("unsigned short", "c_ushort"),
    ("int", "c_int"),
    ("unsigned", "c_uint"),
    ("unsigned int", "c_uint"),
    ("unsigned long long", "c_ulonglong"),
    ("float", "c_float"),
    ("size_t", "usize"),
    ("cuuint32_t", "c_uint"),
    ("cuuint64_t", "c_ulonglong"),
    // Types of graphics headers that are not read.
    ("GLuint", "c_uint"),
    ("GLenum", "c_uint"),
    ("EGLint", "c_int"),
    ("VdpDevice", "c_uint"),
    ("VdpOutputSurface", "c_uint"),
    ("VdpVideoSurface", "c_uint"),
    ("CUoutput_mode", "c_uint"),
    ("EGLImageKHR", "*mut c_void"),
    ("EGLStreamKHR", "*mut c_void"),
    ("EGLSyncKHR", "*mut c_void"),
    ("VdpGetProcAddress", "*mut c_void"),
];

/// Names that `src/types` defines.
pub fn ours() -> HashSet<String> {
    let mut names = HashSet::new();
    for file in fs::read_dir(TYPES).expect("src/types is there") {
        let text = fs::read_to_string(file.expect("an entry").path()).expect("a readable file");
        for line in text.lines().map(str::trim) {
            let name =
                ["pub type ", "pub struct ", "pub union "].iter().find_map(|kind| line.strip_prefix(kind));
            names.extend(name.and_then(first_word));
            // The rows of the `handles!` and `enumerations!` macros.
            if let Some(row) = line.strip_suffix(';').or_else(|| line.split_once(" {").map(|(name, _)| name))
            {
                names.extend(first_word(row).filter(|name| name.len() == row.len()));
            }
        }
    }
    names
}

fn first_word(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0 && text.starts_with("CU")).then(|| text[..end].to_owned())
}

/// One argument: its C type without the name, and the name.
pub struct Argument {
    pub kind: String,
    pub name: String,
}

/// Splits the text between the parentheses. A missing name is left empty.
pub fn arguments(text: &str) -> Vec<Argument> {
    let text = text.replace("CUDAAPI", "").replace('*', " * ");
    text.split(',').map(str::trim).filter(|text| !text.is_empty() && *text != "void").map(argument).collect()
}

fn argument(text: &str) -> Argument {
    let array = text.ends_with("[]");
    let words: Vec<&str> = text.trim_end_matches("[]").split_whitespace().collect();
    let (name, kind) = words.split_last().expect("an argument has a word");
    let kind = kind.join(" ") + if array { " *" } else { "" };
    Argument { kind, name: (*name).to_owned() }
}

impl Headers {
    /// The Rust types of an argument list.
    pub fn kinds(&self, text: &str) -> Vec<String> {
        let ours = ours();
        arguments(text).iter().map(|argument| self.rust(&argument.kind, &ours)).collect()
    }

    /// The Rust type of one C type. What is unknown behind a pointer becomes `c_void`.
    pub fn rust(&self, kind: &str, ours: &HashSet<String>) -> String {
        let mut parts = kind.split('*').map(str::trim);
        let value = parts.next().unwrap_or("");
        let (mut constant, value) = match value.strip_prefix("const ") {
            Some(value) => (true, value.trim()),
            None => (false, value),
        };
        let stars: Vec<&str> = parts.collect();
        let mut rust = self.value(value, !stars.is_empty(), ours);
        for qualifier in stars {
            rust = format!("*{} {rust}", if constant { "const" } else { "mut" });
            constant = qualifier == "const";
        }
        rust
    }

    fn value(&self, name: &str, behind_pointer: bool, ours: &HashSet<String>) -> String {
        let name = name.trim_start_matches("struct ");
        let current = self.current.get(name).map_or(name, String::as_str);
        if ours.contains(current) {
            current.to_owned()
        } else if ours.contains(name) {
            name.to_owned()
        } else if let Some((_, rust)) = SCALARS.iter().find(|row| row.0 == name) {
            (*rust).to_owned()
        } else if self.enums.contains(name) {
            "c_uint".to_owned()
        } else if self.pointers.contains(name) {
            "*mut c_void".to_owned()
        } else if let Some(old) = self.aliases.get(name).filter(|old| *old != name) {
            self.value(old, behind_pointer, ours)
        } else if behind_pointer {
            "c_void".to_owned()
        } else {
            panic!("{name} is passed by value: define it in src/types")
        }
    }
}
