//! The side that is throttled: a process that runs the programs whose seeds it is told, one after the other.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use super::calls::Calls;
use super::execute::{FLAGS, Meeting, PLACES, Places, execute};
use super::generate;
use super::program::Op;
use crate::client::ClientError;

/// Meetings that fit one file; programs begin at its start again when it has been used up.
const MEETINGS: usize = 1 << 20;

/// Which process of a tenant it is.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// First or second of a pair.
    #[arg(long, default_value_t = 0)]
    rank: usize,
    /// Where the pair meets; alone without.
    #[arg(long)]
    meet: Option<PathBuf>,
}

/// Bytes of the file in which a pair meets.
pub const MEETING_BYTES: u64 = 2 * 4 * MEETINGS as u64;

/// Says one line.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// A call failed that fails in no program: the run of this process is over, whatever its other threads wait for.
pub fn fail(seed: u64, thread: usize, op: Op, error: &ClientError) -> ! {
    say(&format!("error {seed} T{thread} {op:?}: {error}"));
    std::process::exit(1)
}

/// Runs as a player: `run SEED` on stdin, `done SEED NANOSECONDS` on stdout.
pub fn run(options: &Options) -> ExitCode {
    match play(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error 0 {error}"));
            ExitCode::FAILURE
        }
    }
}

fn play(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let calls = Calls::open()?;
    let words = meeting_words(options.meet.as_deref())?;
    let base = calls.register(words, usize::try_from(MEETING_BYTES)?)?;
    let half = MEETING_BYTES / 2;
    let mine = base + half * options.rank as u64;
    let theirs = if options.meet.is_some() { base + half * (1 - options.rank as u64) } else { mine };
    let mut places = Places { flags: calls.words(FLAGS)?, meeting: Meeting { mine, theirs, before: 0 } };
    let (told, seeds) = channel();
    std::thread::spawn(move || listen(&told));
    say("ready");
    for seed in seeds {
        let program = generate::program(seed);
        let longest = execute(&calls, &program, places)?;
        places.meeting.before += program.counts.meetings;
        assert!(places.meeting.before + FLAGS < MEETINGS, "so many programs do not fit one process");
        say(&format!("done {seed} {longest}"));
    }
    Ok(())
}

/// Hears what to do, also while a program runs; ends with the parent.
fn listen(told: &Sender<u64>) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.strip_prefix("run ").map(str::parse) {
            Some(Ok(seed)) => drop(told.send(seed)),
            _ => say(&format!("where {:?}", PLACES.each_ref().map(|place| place.load(Ordering::Relaxed)))),
        }
    }
    std::process::exit(0)
}

/// Memory that both processes of a pair see.
fn meeting_words(file: Option<&Path>) -> std::io::Result<*mut c_void> {
    let bytes = usize::try_from(MEETING_BYTES).unwrap_or(0);
    let (flags, file) = match file {
        Some(path) => (libc::MAP_SHARED, Some(OpenOptions::new().read(true).write(true).open(path)?)),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None),
    };
    let descriptor = file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: a new mapping, which stays for as long as the process lives.
    let place = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, descriptor, 0)
    };
    if place == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(place) }
}
