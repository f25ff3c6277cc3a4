//! What outlives a SIGKILL: the instances, the drained nodes, the last decisions and what policies remember, in one file. All writes of a turn are one
//! transaction, on the disk before anything of it is carried out. Two controllers cannot have the file at once.
//!
//! Each record is JSON with the version of its form before it, so that a later build can tell what it reads.

use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::machine::{Kept, Write};
use super::model::Decision;
use crate::fault::Fault;

const INSTANCES: TableDefinition<u64, &str> = TableDefinition::new("instances");
const DECISIONS: TableDefinition<u64, &str> = TableDefinition::new("decisions");
const META: TableDefinition<&str, &str> = TableDefinition::new("meta");

/// Version of every record.
const VERSION: u32 = 1;

/// Decisions that are kept.
const DECISIONS_KEPT: u64 = 4096;

/// The file.
pub struct Store {
    database: Database,
    path: PathBuf,
}

impl Store {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// Another controller has it, or it is no store of ours.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let database = Database::create(path).map_err(|error| match error {
            redb::DatabaseError::DatabaseAlreadyOpen => {
                let message = format!("another controller has `{}`", path.display());
                Fault::new(message, "end it first, or give this one a `dir` of its own")
            }
            other => failed(path, &other),
        })?;
        Ok(Self { database, path: path.to_path_buf() })
    }

    /// All that the last controller left.
    ///
    /// # Errors
    /// The file cannot be read, or is of another version.
    pub fn read(&self) -> Result<Kept, Fault> {
        self.make_tables()?;
        let fail = |error: redb::Error| failed(&self.path, &error);
        let transaction = self.database.begin_read().map_err(|e| fail(e.into()))?;
        let table = transaction.open_table(INSTANCES).map_err(|e| fail(e.into()))?;
        let mut instances = Vec::new();
        for row in table.iter().map_err(|e| fail(e.into()))? {
            let (_, text) = row.map_err(|e| fail(e.into()))?;
            instances.push(self.decode(text.value())?);
        }
        let meta = transaction.open_table(META).map_err(|e| fail(e.into()))?;
        let text = |key| meta.get(key).map(|row| row.map(|row| row.value().to_owned()));
        let number = |key| -> Result<u64, Fault> {
            let text = text(key).map_err(|e| fail(e.into()))?;
            text.map_or(Ok(0), |text| self.decode(&text))
        };
        let drained = text("drained").map_err(|e| fail(e.into()))?;
        let drained = drained.map_or(Ok(Default::default()), |text| self.decode(&text))?;
        let (next_instance, next_decision) = (number("next_instance")?, number("next_decision")?);
        Ok(Kept { instances, drained, next_instance, next_decision })
    }

    /// What was remembered of this; nothing if nothing was, or nobody can read it any more: it is advice, and comes again.
    pub fn recall(&self, what: &str) -> Value {
        let read = || -> Result<Option<String>, redb::Error> {
            let meta = self.database.begin_read()?.open_table(META)?;
            Ok(meta.get(memory(what).as_str())?.map(|row| row.value().to_owned()))
        };
        let text = read().ok().flatten();
        text.and_then(|text| self.decode(&text).ok()).unwrap_or_default()
    }

    /// Remembers each of these.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn remember(&self, memories: &[(&str, Value)]) -> Result<(), Fault> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            {
                let mut meta = transaction.open_table(META)?;
                for (what, value) in memories {
                    meta.insert(memory(what).as_str(), encode(value).as_str())?;
                }
            }
            Ok(transaction.commit()?)
        };
        write().map_err(|error| failed(&self.path, &error))
    }

    /// The last decisions, the newest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn decisions(&self, most: usize) -> Result<Vec<Decision>, Fault> {
        let fail = |error: redb::Error| failed(&self.path, &error);
        let transaction = self.database.begin_read().map_err(|e| fail(e.into()))?;
        let table = transaction.open_table(DECISIONS).map_err(|e| fail(e.into()))?;
        let rows = table.iter().map_err(|e| fail(e.into()))?.rev().take(most);
        rows.map(|row| self.decode(row.map_err(|e| fail(e.into()))?.1.value())).collect()
    }

    /// Keeps all of them, or none; they are on the disk when this returns.
    ///
    /// # Errors
    /// They cannot be written: nothing of them may be carried out.
    pub fn write(&self, writes: &[Write]) -> Result<(), Fault> {
        if writes.is_empty() {
            return Ok(());
        }
        self.try_write(writes).map_err(|error| failed(&self.path, &error))
    }

    fn make_tables(&self) -> Result<(), Fault> {
        let make = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            transaction.open_table(INSTANCES)?;
            transaction.open_table(DECISIONS)?;
            transaction.open_table(META)?;
            Ok(transaction.commit()?)
        };
        make().map_err(|error| failed(&self.path, &error))
    }

    fn try_write(&self, writes: &[Write]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut instances = transaction.open_table(INSTANCES)?;
            let mut decisions = transaction.open_table(DECISIONS)?;
            let mut meta = transaction.open_table(META)?;
            for write in writes {
                match write {
                    Write::Instance(instance) => {
                        let id = instance.id.0;
                        instances.insert(id, encode(instance).as_str())?;
                        raise(&mut meta, "next_instance", id + 1)?;
                    }
                    Write::Forgotten(id) => {
                        instances.remove(id.0)?;
                    }
                    Write::Drained(nodes) => {
                        meta.insert("drained", encode(nodes).as_str())?;
                    }
                    Write::Decision(decision) => {
                        let id = decision.id.0;
                        decisions.insert(id, encode(decision).as_str())?;
                        decisions.remove(id.wrapping_sub(DECISIONS_KEPT))?;
                        raise(&mut meta, "next_decision", id + 1)?;
                    }
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn decode<T: DeserializeOwned>(&self, text: &str) -> Result<T, Fault> {
        let wrong = |why: String| {
            let message =
                format!("the store `{}` holds what this build cannot read: {why}", self.path.display());
            Fault::new(message, "use the `weir-cluster` that wrote it, or move the file away")
        };
        let (version, body) = text.split_once(' ').ok_or_else(|| wrong("a record without version".into()))?;
        if version.parse() != Ok(VERSION) {
            return Err(wrong(format!("a record of version {version}")));
        }
        serde_json::from_str(body).map_err(|error| wrong(error.to_string()))
    }
}

/// A counter never goes back: a number that was used once is never used again.
fn raise(meta: &mut redb::Table<'_, &str, &str>, key: &str, to: u64) -> Result<(), redb::Error> {
    let now = meta.get(key)?.and_then(|row| row.value().split_once(' ')?.1.parse().ok()).unwrap_or(0);
    meta.insert(key, encode(&to.max(now)).as_str())?;
    Ok(())
}

/// Where a memory stands among the rest.
fn memory(what: &str) -> String {
    format!("memory of {what}")
}

fn encode(record: &impl Serialize) -> String {
    // Our own types always have a form in JSON.
    format!("{VERSION} {}", serde_json::to_string(record).unwrap_or_default())
}

fn failed(path: &Path, error: &impl std::fmt::Display) -> Fault {
    let message = format!("the store `{}` cannot be used: {error}", path.display());
    Fault::new(message, "look at the disk and at who owns the file; a copy of it can be read elsewhere")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::model::*;
    use weir_protocol::units::Nanos;

    fn instance(id: u64) -> Instance {
        Instance {
            id: InstanceId(id),
            service: "web".into(),
            place: Place { node: "a".into(), gpu: 1 },
            port: 20_000,
            budget: Budget::default(),
            held: Budget::default(),
            state: State::Draining(Then::Park),
            since: Nanos(7),
            decision: DecisionId(9),
        }
    }

    fn decision(id: u64) -> Write {
        let (service, what, why) = ("web".into(), "placing".into(), "wanted".into());
        Write::Decision(Decision {
            id: DecisionId(id),
            at: Nanos(1),
            service,
            instance: InstanceId(3),
            what,
            why,
        })
    }

    #[test]
    fn what_was_written_is_there_after_the_store_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let store = Store::open(&path).unwrap();
        assert_eq!(store.read().unwrap(), Kept::default());
        let drained = Write::Drained(["b".to_owned()].into());
        store.write(&[Write::Instance(Box::new(instance(3))), decision(9), drained]).unwrap();
        store.write(&[Write::Instance(Box::new(instance(4))), Write::Forgotten(InstanceId(4))]).unwrap();
        drop(store);
        let store = Store::open(&path).unwrap();
        let kept = store.read().unwrap();
        assert_eq!(kept.instances, [instance(3)]);
        assert_eq!((kept.next_instance, kept.next_decision), (5, 10), "no number is used twice");
        assert_eq!(kept.drained, ["b".to_owned()].into());
        assert_eq!(store.decisions(8).unwrap().len(), 1);
    }

    #[test]
    fn two_controllers_cannot_have_one_store() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let _first = Store::open(&path).unwrap();
        let fault = Store::open(&path).err().unwrap();
        assert!(fault.message.contains("another controller"), "{fault}");
    }

    #[test]
    fn a_file_that_is_no_store_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        std::fs::write(&path, "something else, and longer than a header would be ".repeat(200)).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(Store::open(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn what_is_remembered_is_the_last_that_was_and_nothing_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let store = Store::open(&path).unwrap();
        store.read().unwrap();
        assert_eq!(store.recall("placing"), Value::Null);
        store.remember(&[("placing", 1.into()), ("scaling", "two".into())]).unwrap();
        store.remember(&[("placing", 3.into())]).unwrap();
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!((store.recall("placing"), store.recall("scaling")), (3.into(), "two".into()));
        assert_eq!(store.read().unwrap(), Kept::default(), "no instance is made of it");
    }

    #[test]
    fn old_decisions_make_room_for_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("state.redb")).unwrap();
        store.read().unwrap();
        let all: Vec<_> = (0..DECISIONS_KEPT + 10).map(decision).collect();
        store.write(&all).unwrap();
        let kept = store.decisions(usize::MAX).unwrap();
        assert_eq!(kept.len() as u64, DECISIONS_KEPT);
        assert_eq!(kept[0].id.0, DECISIONS_KEPT + 9);
    }
}
