//! A mix as a file: one CSV line an event, what an instance needs in the line of its arrival.
//!
//! ```text
//! at_ms,event,instance,work,model,gpus,request_permille,limit_permille,memory_mib
//! 0,arrive,0,llm,LLaMA2-7B,1,500,600,28672
//! 61250,leave,0,,,,,,
//! ```

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};
use weir_protocol::units::{Bytes, SmShare};

use super::{Event, Instance, Mix, Work};
use crate::fault::Fault;

const HELP: &str = "write it as `at_ms,event,instance,work,model,gpus,request_permille,limit_permille,memory_mib`, in order of time";
/// GPUs of one instance at most.
const MOST_GPUS: usize = 64;
/// Device memory of one instance at most, in MiB: 1 TiB.
const MOST_MEMORY_MIB: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    at_ms: u64,
    event: String,
    instance: usize,
    work: Option<String>,
    model: Option<String>,
    gpus: Option<usize>,
    request_permille: Option<u16>,
    limit_permille: Option<u16>,
    memory_mib: Option<u64>,
}

impl Mix {
    /// Writes it.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write(&self, to: impl Write) -> Result<(), csv::Error> {
        let mut file = csv::Writer::from_writer(to);
        for event in &self.events {
            file.serialize(row(event, event.arrives.then(|| &self.instances[event.instance])))?;
        }
        Ok(file.flush()?)
    }

    /// Reads it from `file`'s bytes.
    ///
    /// # Errors
    /// With file and line: a column that is missing or unknown, a value that cannot be, time that runs backwards, an instance
    /// that comes twice or leaves before it came.
    pub fn read(from: impl Read, file: &str) -> Result<Self, Fault> {
        let mut mix = Self::default();
        let mut present = Vec::new();
        let mut lines = csv::Reader::from_reader(from);
        let mut record = csv::StringRecord::new();
        let head = lines.headers().map_err(|error| broken(file, &error))?.clone();
        while lines.read_record(&mut record).map_err(|error| broken(file, &error))? {
            let line = record.position().map_or(0, csv::Position::line);
            let refuse = |message: String| Fault::input(file, line, message, HELP);
            let row: Row = record.deserialize(Some(&head)).map_err(|error| refuse(told(&error)))?;
            mix.take(&row, &mut present).map_err(refuse)?;
        }
        if mix.events.is_empty() {
            return Err(Fault::input(file, 1, "the file holds no event", HELP));
        }
        Ok(mix)
    }

    fn take(&mut self, row: &Row, present: &mut Vec<bool>) -> Result<(), String> {
        if let Some(last) = self.events.last().filter(|last| last.at_ms > row.at_ms) {
            return Err(format!("time runs backwards: {} ms after {} ms", row.at_ms, last.at_ms));
        }
        let arrives = match row.event.as_str() {
            "arrive" => true,
            "leave" => false,
            other => return Err(format!("`{other}` is no event: arrive or leave")),
        };
        if arrives {
            if row.instance != self.instances.len() {
                return Err(format!(
                    "instance {} arrives where {} is next",
                    row.instance,
                    self.instances.len()
                ));
            }
            self.instances.push(needs(row)?);
            present.push(true);
        } else {
            let there = present.get_mut(row.instance).filter(|there| **there);
            *there.ok_or_else(|| format!("instance {} leaves and is not there", row.instance))? = false;
        }
        self.events.push(Event { at_ms: row.at_ms, instance: row.instance, arrives });
        Ok(())
    }
}

fn row(event: &Event, instance: Option<&Instance>) -> Row {
    Row {
        at_ms: event.at_ms,
        event: if event.arrives { "arrive" } else { "leave" }.into(),
        instance: event.instance,
        work: instance.map(|instance| instance.work.to_string()),
        model: instance.map(|instance| instance.model.clone()),
        gpus: instance.map(|instance| instance.gpus),
        request_permille: instance.map(|instance| instance.request.as_permille()),
        limit_permille: instance.map(|instance| instance.limit.as_permille()),
        memory_mib: instance.map(|instance| instance.memory.0 >> 20),
    }
}

fn needs(row: &Row) -> Result<Instance, String> {
    let missing = |what: &str| format!("an arrival needs `{what}`");
    let work = row.work.as_deref().ok_or_else(|| missing("work"))?;
    let known = Work::ALL.iter().find(|(name, _)| *name == work);
    let work = known.ok_or_else(|| format!("`{work}` is no work: inference, llm or training"))?.1;
    let share = |value: Option<u16>, name: &str| match value.ok_or_else(|| missing(name))? {
        permille @ 0..=1_000 => Ok(SmShare::permille(permille)),
        permille => Err(format!("{name} {permille} is over 1000")),
    };
    let (request, limit) =
        (share(row.request_permille, "request_permille")?, share(row.limit_permille, "limit_permille")?);
    if limit < request {
        return Err(format!("the limit {limit} is below the request {request}"));
    }
    let gpus = row.gpus.ok_or_else(|| missing("gpus"))?;
    let memory_mib = row.memory_mib.ok_or_else(|| missing("memory_mib"))?;
    if !(1..=MOST_GPUS).contains(&gpus) || memory_mib > MOST_MEMORY_MIB {
        return Err(format!(
            "{gpus} GPUs with {memory_mib} MiB each cannot be: 1 to {MOST_GPUS}, at most {MOST_MEMORY_MIB} MiB"
        ));
    }
    let model = row.model.clone().ok_or_else(|| missing("model"))?;
    Ok(Instance { work, model, gpus, request, limit, memory: Bytes::mib(memory_mib) })
}

fn broken(file: &str, error: &csv::Error) -> Fault {
    let line = error.position().map_or(1, csv::Position::line);
    Fault::input(file, line, told(error), HELP)
}

/// The error without the position, which we print in our own way.
fn told(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
        _ => error.to_string(),
    }
}
