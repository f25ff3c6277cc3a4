//! The shape of a JSON document: which names it has, and of which types their values are; not the values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Fields whose keys are data, such as the names of calls: one entry stands for all.
const MAPS: [&str; 6] = ["calls", "memory_calls", "graphs", "copies", "memory_by_kind_bytes", "stalls_ns"];

/// Fields whose places mean something: how many there are belongs to the shape.
const TUPLES: [&str; 2] = ["stalls_ns", "beside"];

/// Paths and the types that were met there; of several documents what any of them has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape(BTreeMap<String, BTreeSet<&'static str>>);

impl Shape {
    pub fn of<'a>(documents: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut shape = Self::default();
        documents.into_iter().for_each(|document| shape.add("", document));
        shape
    }

    /// What is in this one and not in `other`.
    pub fn beyond(&self, other: &Self) -> Vec<String> {
        let unknown = |(path, types): (&String, &BTreeSet<_>)| {
            other
                .0
                .get(path)
                .is_none_or(|known| !types.is_subset(known))
                .then(|| format!("{path}: {types:?}"))
        };
        self.0.iter().filter_map(unknown).collect()
    }

    fn add(&mut self, path: &str, value: &Value) {
        let last = path.rsplit(['.', ']']).next().unwrap_or(path);
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(number) if number.is_f64() => "float",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(values) => {
                let is_tuple = TUPLES.contains(&last);
                for (at, value) in values.iter().enumerate() {
                    let place = if is_tuple { format!("{path}[{at}]") } else { format!("{path}[]") };
                    self.add(&place, value);
                }
                "array"
            }
            Value::Object(fields) => {
                let is_map = MAPS.contains(&last);
                for (name, value) in fields {
                    let name = if is_map { "*" } else { name };
                    let dot = if path.is_empty() { "" } else { "." };
                    self.add(&format!("{path}{dot}{name}"), value);
                }
                "object"
            }
        };
        if !path.is_empty() {
            self.0.entry(path.to_owned()).or_default().insert(kind);
        }
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (path, types) in &self.0 {
            let types: Vec<_> = types.iter().copied().collect();
            writeln!(f, "{path}: {}", types.join(" or "))?;
        }
        Ok(())
    }
}
