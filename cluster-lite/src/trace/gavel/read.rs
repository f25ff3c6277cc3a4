//! From the document to tables: first its shape, with line and column, then what it says, with the place in the table.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::{JobType, Table};
use crate::fault::{CONFIG, Fault};

const HELP: &str = "take simulation_throughputs.json as Gavel publishes it";

/// The key under which a job's throughput alone stands.
const ALONE: &str = "null";

pub(super) fn tables(text: &str, file: &str) -> Result<Vec<Table>, Fault> {
    let document: Entries<Entries<Entries<Rates>>> =
        serde_json::from_str(text).map_err(|error| shape(file, &error))?;
    if document.0.is_empty() {
        return Err(Fault::input(file, 1, "the document holds no table", HELP));
    }
    document
        .0
        .into_iter()
        .map(|(device, rows)| table(device, rows).map_err(|fault| within(file, fault)))
        .collect()
}

fn shape(file: &str, error: &serde_json::Error) -> Fault {
    let told = error.to_string();
    // serde_json ends its words with the position, which we print in our own way.
    let message = told.rsplit_once(" at line ").map_or(told.as_str(), |(message, _)| message);
    let place = format!("{file}:{}:{}", error.line(), error.column());
    Fault::new(message, HELP).at(place).exit(CONFIG)
}

fn within(file: &str, fault: Fault) -> Fault {
    let place = fault.at.clone().unwrap_or_default();
    fault.at(format!("{file}: {place}")).exit(CONFIG)
}

fn table(device: String, rows: Entries<Entries<Rates>>) -> Result<Table, Fault> {
    let jobs = rows.0.iter().map(|(name, _)| job(name).map_err(|told| told.at(device.clone())));
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    let index: HashMap<_, _> = rows.0.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
    let mut table =
        Table { alone: vec![0.0; jobs.len()], beside: vec![0.0; jobs.len() * jobs.len()], jobs, device };
    let mut partners = vec![0.0; table.beside.len()];
    for (row, (name, entries)) in rows.0.iter().enumerate() {
        fill(&mut table, &mut partners, row, name, entries, &index)?;
    }
    agree(&table, &partners)?;
    Ok(table)
}

fn fill(
    table: &mut Table,
    partners: &mut [f64],
    row: usize,
    name: &str,
    entries: &Entries<Rates>,
    index: &HashMap<String, usize>,
) -> Result<(), Fault> {
    let here = |key: &str| format!("{} / {name} / {key}", table.device);
    let mut alone = None;
    for (key, rates) in &entries.0 {
        match (key.as_str(), rates) {
            (ALONE, Rates::Alone(rate)) => alone = Some(*rate),
            (ALONE, Rates::Pair(..)) => {
                return Err(Fault::new("a job alone has one throughput", HELP).at(here(key)));
            }
            (_, Rates::Alone(_)) => return Err(Fault::new("a pair has two throughputs", HELP).at(here(key))),
            (partner, Rates::Pair(own, other)) => {
                let Some(column) = index.get(partner) else {
                    return Err(Fault::new(format!("the partner {partner} has no row of its own"), HELP)
                        .at(here(key)));
                };
                if (*own > 0.0) != (*other > 0.0) {
                    let told = format!("only one of two jobs ran: [{own}, {other}]");
                    return Err(Fault::new(told, HELP).at(here(key)));
                }
                let cell = row * table.jobs.len() + column;
                (table.beside[cell], partners[cell]) = (*own, *other);
            }
        }
    }
    table.alone[row] =
        alone.ok_or_else(|| Fault::new("its throughput alone is missing", HELP).at(here(ALONE)))?;
    Ok(())
}

/// What a row says of its partner is what the partner's row says of itself.
fn agree(table: &Table, partners: &[f64]) -> Result<(), Fault> {
    let count = table.jobs.len();
    let cells = (0..count).flat_map(|row| (0..count).map(move |column| (row, column)));
    for (row, column) in cells {
        let (told, own) = (partners[row * count + column], table.beside[column * count + row]);
        if (told - own).abs() > 1e-6 * told.max(own) {
            let (one, other) = (&table.jobs[row], &table.jobs[column]);
            let message = format!("the two rows of a pair differ: {told} and {own} steps/s of {other}");
            return Err(Fault::new(message, HELP).at(format!("{} / {one} / {other}", table.device)));
        }
    }
    Ok(())
}

/// `('ResNet-18 (batch size 16)', 1)`.
fn job(name: &str) -> Result<JobType, Fault> {
    let parts = || {
        let (quoted, workers) = name.strip_prefix("('")?.strip_suffix(')')?.rsplit_once("', ")?;
        let workers = workers.parse().ok().filter(|count| *count > 0)?;
        let Some((model, batch)) = quoted.split_once(" (batch size ") else {
            return (!quoted.is_empty()).then(|| JobType { model: quoted.into(), batch: None, workers });
        };
        let batch = batch.strip_suffix(')')?.parse().ok().filter(|size| *size > 0)?;
        Some(JobType { model: model.into(), batch: Some(batch), workers })
    };
    parts().ok_or_else(|| {
        Fault::new(format!("`{name}` is no job"), "write it as ('MODEL (batch size N)', WORKERS)")
    })
}

/// The entries of a JSON object in their order, each key once.
struct Entries<V>(Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each<V>(std::marker::PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Each<V> {
            type Value = Entries<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                let mut known = std::collections::HashSet::new();
                while let Some(key) = map.next_key::<String>()? {
                    if !known.insert(key.clone()) {
                        return Err(de::Error::custom(format!("{key} stands there twice")));
                    }
                    entries.push((key, map.next_value()?));
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_map(Each(std::marker::PhantomData))
    }
}

/// What stands beside a key: one throughput or two.
enum Rates {
    Alone(f64),
    Pair(f64, f64),
}

impl<'de> Deserialize<'de> for Rates {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrTwo;
        impl<'de> Visitor<'de> for OneOrTwo {
            type Value = Rates;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a throughput or two of them")
            }
            fn visit_f64<E: de::Error>(self, rate: f64) -> Result<Rates, E> {
                possible(rate).map(Rates::Alone)
            }
            #[allow(clippy::cast_precision_loss, reason = "a throughput far below 2^52")]
            fn visit_u64<E: de::Error>(self, rate: u64) -> Result<Rates, E> {
                possible(rate as f64).map(Rates::Alone)
            }
            fn visit_i64<E: de::Error>(self, rate: i64) -> Result<Rates, E> {
                Err(E::custom(format!("{rate} is no throughput: it is below zero")))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Rates, A::Error> {
                let mut next =
                    |at| list.next_element::<f64>()?.ok_or_else(|| de::Error::invalid_length(at, &self));
                let (own, other) = (possible(next(0)?)?, possible(next(1)?)?);
                match list.next_element::<f64>()? {
                    None => Ok(Rates::Pair(own, other)),
                    Some(_) => Err(de::Error::invalid_length(3, &self)),
                }
            }
        }
        from.deserialize_any(OneOrTwo)
    }
}

/// Steps a second between none and the most that any program makes.
fn possible<E: de::Error>(rate: f64) -> Result<f64, E> {
    const MOST: f64 = 1e9;
    match rate {
        rate if (0.0..=MOST).contains(&rate) => Ok(rate),
        rate => Err(E::custom(format!("{rate} is no throughput: 0 to {MOST:e} steps/s can be"))),
    }
}
