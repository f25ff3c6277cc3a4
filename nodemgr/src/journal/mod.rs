//! The journal: what a manager that starts where one died must know to take over (`takeover`).
//!
//! ```text
//!   <base>/node.journal      <checksum> {"is":"begin","version":1,"boot":...,"devices":[...]}
//!                            <checksum> {"is":"tenant","id":1,"name":"train",...}
//!                            <checksum> {"is":"process","tenant":1,"id":4,"pid":812,"birth":5521,"slot":0,...}
//!                            ...
//! ```
//!
//! One line for each change, appended before the change is made: a line costs one write, where a file that is replaced
//! would cost all tenants' lines at each process that registers, and a thousand may register at once. When the file has
//! grown to several times what it says, it is replaced by a short one, atomically. Nothing is synced: what is written
//! outlives the process, and after a crash of the machine there is nobody to take over.
//!
//! A journal that cannot be written stops nobody: the manager says so, shows itself as degraded, and tries again. What is
//! read is believed whole or not at all; only the last line may be cut short, by the death of whoever wrote it.

mod record;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub use record::{CellRow, Hold, PolicyRow, ProcessRow, Record, Remembered, TenantRow};

use crate::codes;
use crate::fault::Fault;
use crate::place::{Place, own_uid};

/// Version of the format and of what the records mean.
pub const VERSION: u32 = 1;

/// Lines beyond those needed after which the file is replaced, and so many times the needed ones at least.
const SLACK: usize = 4_096;

/// Longest journal that is read: a thousand times that of a full node.
const MAX_BYTES: u64 = 256 << 20;

/// How a journal is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody asked for one: the manager's tenants end with it.
    Off,
    /// It says what is.
    Kept,
    /// It could not be written: a manager that starts after this one takes over what was written last.
    Degraded,
}

impl State {
    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Kept => "kept",
            Self::Degraded => "degraded",
        }
    }
}

/// A journal that is written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Option<File>,
    state: State,
    lines: usize,
    needed: usize,
}

impl Journal {
    /// None is kept.
    pub const fn off() -> Self {
        Self { path: PathBuf::new(), file: None, state: State::Off, lines: 0, needed: 0 }
    }

    /// Begins one at `place` with what there is, in the place of whatever was there.
    ///
    /// # Errors
    /// [`codes::PLACE`]: it cannot be written.
    pub fn begin(place: &Place, records: &[Record]) -> Result<Self, Fault> {
        let mut journal = Self { path: place.journal(), state: State::Kept, ..Self::off() };
        journal.replace(records).map_err(|error| {
            let what = format!("write `{}`", journal.path.display());
            Fault::system(&codes::PLACE, what, error, "make room there, or name another directory with --dir")
        })?;
        Ok(journal)
    }

    /// How it is doing.
    pub fn state(&self) -> State {
        self.state
    }

    /// Notes a change that is about to be made.
    pub fn note(&mut self, record: &Record) {
        if self.state != State::Kept {
            return; // the next replacement will say it all
        }
        let written = line(record).and_then(|line| match &mut self.file {
            Some(file) => file.write_all(&line),
            None => Err(io::ErrorKind::NotFound.into()),
        });
        self.lines += 1;
        if let Err(error) = written {
            self.degrade(&error);
        }
    }

    /// Whether it should be replaced: it has grown long, or is not what it should be.
    pub fn is_due(&self) -> bool {
        self.state == State::Degraded || self.lines > SLACK + 4 * self.needed
    }

    /// Replaces it by `records`, if that can be done now.
    pub fn renew(&mut self, records: &[Record]) {
        if self.state == State::Off {
            return;
        }
        match self.replace(records) {
            Ok(()) if self.state == State::Degraded => {
                self.state = State::Kept;
                tracing::info!(path = %self.path.display(), "the journal is kept again");
            }
            Ok(()) => {}
            Err(error) => self.degrade(&error),
        }
    }

    fn degrade(&mut self, error: &io::Error) {
        if self.state == State::Kept {
            tracing::warn!(
                path = %self.path.display(), %error,
                "the journal cannot be written: a node manager that starts after this one will not know of all tenants and \
                 processes. Everything else goes on. help: make room there"
            );
        }
        self.state = State::Degraded;
        self.file = None;
    }

    fn replace(&mut self, records: &[Record]) -> io::Result<()> {
        let fresh = self.path.with_extension("journal-new");
        let mut text = Vec::new();
        for record in records {
            text.extend(line(record)?);
        }
        let _ = fs::remove_file(&fresh);
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(&text)?;
        fs::rename(&fresh, &self.path)?;
        (self.file, self.lines, self.needed) = (Some(file), records.len(), records.len());
        Ok(())
    }
}

/// A record as it stands in the file.
fn line(record: &Record) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(record)?;
    let mut line = format!("{:016x} ", checksum(&json)).into_bytes();
    line.extend(json);
    line.push(b'\n');
    Ok(line)
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo): finds what an accident did to a line. Against somebody who may write the file no
/// sum would help.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// What the journal at `place` says; nothing if there is none, or none of this boot. The reason why it is not believed is
/// an error for people to read.
///
/// # Errors
/// What is wrong with it.
pub fn read(place: &Place) -> Result<Option<Remembered>, String> {
    let path = place.journal();
    let text = match load(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    Remembered::of(records(&text)?, &boot())
}

fn load(path: &Path) -> io::Result<Vec<u8>> {
    let meta = fs::symlink_metadata(path)?;
    let ours = meta.is_file() && meta.uid() == own_uid() && meta.mode() & 0o022 == 0;
    if !ours {
        return Err(io::Error::other("it is not a file that only this user may write"));
    }
    if meta.len() > MAX_BYTES {
        return Err(io::Error::other("it is longer than any journal"));
    }
    fs::read(path)
}

fn records(text: &[u8]) -> Result<Vec<Record>, String> {
    // What follows the last end of a line was cut short: its change was never made.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .enumerate()
        .map(|(at, line)| record(line).ok_or_else(|| format!("line {} is damaged", at + 1)))
        .collect()
}

fn record(line: &[u8]) -> Option<Record> {
    let (sum, json) = line.split_at_checked(17)?;
    let sum = u64::from_str_radix(std::str::from_utf8(sum.strip_suffix(b" ")?).ok()?, 16).ok()?;
    if sum == checksum(json) { serde_json::from_slice(json).ok() } else { None }
}

/// What tells this boot of the machine from others: after another one, process ids and inodes mean nothing.
pub fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place() -> (tempfile::TempDir, Place) {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::at(dir.path()).unwrap();
        (dir, place)
    }

    fn begin() -> Record {
        Record::begin(&[])
    }

    fn release(holder: u64) -> Record {
        Record::Release { holder }
    }

    #[test]
    fn what_is_noted_is_read_back() {
        let (_dir, place) = place();
        assert_eq!(read(&place), Ok(None));
        let mut journal = Journal::begin(&place, &[begin()]).unwrap();
        journal.note(&release(7));
        let text = load(&place.journal()).unwrap();
        assert_eq!(records(&text).unwrap(), [begin(), release(7)]);
        assert!(read(&place).unwrap().is_some());
    }

    #[test]
    fn a_line_that_was_cut_short_is_no_damage_and_one_that_was_changed_is() {
        let (_dir, place) = place();
        let mut journal = Journal::begin(&place, &[begin()]).unwrap();
        journal.note(&release(7));
        let text = load(&place.journal()).unwrap();
        assert_eq!(records(&text[..text.len() - 1]).unwrap(), [begin()]);
        let mut changed = text.clone();
        let at = text.len() - 3;
        changed[at] ^= 1;
        assert_eq!(records(&changed), Err("line 2 is damaged".to_owned()));
    }

    #[test]
    fn a_journal_that_others_may_write_is_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, place) = place();
        Journal::begin(&place, &[begin()]).unwrap();
        fs::set_permissions(place.journal(), fs::Permissions::from_mode(0o622)).unwrap();
        assert!(read(&place).unwrap_err().contains("only this user"));
    }

    #[test]
    fn a_journal_that_cannot_be_written_is_said_and_kept_again_when_it_can() {
        let (dir, place) = place();
        let mut journal = Journal::begin(&place, &[begin()]).unwrap();
        fs::remove_file(place.journal()).unwrap();
        journal.file = Some(File::open("/dev/null").unwrap()); // not for writing
        journal.note(&release(7));
        assert_eq!((journal.state(), journal.is_due()), (State::Degraded, true));
        journal.path = dir.path().join("not-there/node.journal");
        journal.renew(&[begin()]);
        assert_eq!(journal.state(), State::Degraded);
        journal.path = place.journal();
        journal.renew(&[begin(), release(7)]);
        assert_eq!((journal.state(), journal.is_due()), (State::Kept, false));
        assert!(read(&place).unwrap().is_some());
    }

    #[test]
    fn a_journal_that_has_grown_long_is_due() {
        let (_dir, place) = place();
        let mut journal = Journal::begin(&place, &[begin()]).unwrap();
        (0..=SLACK as u64 + 4).for_each(|holder| journal.note(&release(holder)));
        assert!(journal.is_due());
        journal.renew(&[begin()]);
        assert!(!journal.is_due());
        assert_eq!(records(&load(&place.journal()).unwrap()).unwrap(), [begin()]);
    }

    proptest! {
        #[test]
        fn no_bytes_harm_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = records(&bytes);
        }

        #[test]
        fn no_json_harms_the_reader(json in r#"\{"is":"(begin|tenant|process|buried|hold)"[\[\]{}",:a-z0-9.eE+-]{0,80}\}"#) {
            let line = format!("{:016x} {json}\n", checksum(json.as_bytes()));
            let _ = records(line.as_bytes()).map(|records| Remembered::of(records, &boot()));
        }
    }
}
