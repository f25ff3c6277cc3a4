//! The side that is throttled: a process that runs the programs whose seeds it is told, one after the other.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use weir_abi::types::CUipcEventHandle;

use super::calls::Calls;
use super::execute::{EVENTS, FLAGS, Meeting, PLACES, Places, execute, word};
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
    /// What a pair meets in is known as a collective.
    #[arg(long)]
    collective: bool,
    /// Where the pair meets; alone without.
    #[arg(long)]
    meet: Option<PathBuf>,
}

/// Bytes of the words by which a pair meets.
const WORD_BYTES: u64 = 2 * 4 * MEETINGS as u64;

/// Bytes in which each process of it leaves what its events are opened by, and a word that says that it has.
const HANDLE_BYTES: u64 = (EVENTS * size_of::<CUipcEventHandle>()) as u64;
const LEFT_BYTES: u64 = HANDLE_BYTES + 8;

/// Real drivers register whole pages only.
const PAGE_BYTES: u64 = 4096;

/// Bytes of the file in which a pair meets.
pub const MEETING_BYTES: u64 = (WORD_BYTES + 2 * LEFT_BYTES).next_multiple_of(PAGE_BYTES);

/// Between two looks whether the other process has left its handles.
const LOOK: Duration = Duration::from_millis(1);

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
    let calls = Calls::open(options.collective)?;
    let words = meeting_words(options.meet.as_deref())?;
    let base = calls.register(words, usize::try_from(MEETING_BYTES)?)?;
    let (own, half) = (options.rank as u64, WORD_BYTES / 2);
    let other = if options.meet.is_some() { 1 - own } else { own };
    let left_by = |rank: u64| base + WORD_BYTES + LEFT_BYTES * rank;
    let events = events(&calls, left_by(own), left_by(other))?;
    let meeting = Meeting { events, mine: base + half * own, theirs: base + half * other, before: 0 };
    let mut places = Places { flags: calls.words(FLAGS)?, meeting };
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

/// Events of this process, and the other one's, which it opens; alone it has its own only.
fn events(calls: &Calls, own: u64, other: u64) -> Result<[[usize; EVENTS]; 2], ClientError> {
    let (mut mine, mut theirs) = ([0; EVENTS], [0; EVENTS]);
    for (mine, place) in mine.iter_mut().zip(handles(own)) {
        let (event, handle) = calls.shared_event()?;
        *mine = event.expose_provenance();
        // SAFETY: the place is of the mapping that the processes meet in, and its own to write.
        unsafe { place.write_unaligned(handle) };
    }
    if other == own {
        return Ok([mine, mine]);
    }
    word(own + HANDLE_BYTES).store(1, Ordering::Release);
    while word(other + HANDLE_BYTES).load(Ordering::Acquire) == 0 {
        std::thread::sleep(LOOK); // the other process is a real one
    }
    for (theirs, place) in theirs.iter_mut().zip(handles(other)) {
        // SAFETY: as above; the other process has written it before it said so.
        let handle = unsafe { place.read_unaligned() };
        *theirs = calls.open_event(handle)?.expose_provenance();
    }
    Ok([mine, theirs])
}

/// Where a process leaves its handles.
fn handles(place: u64) -> impl Iterator<Item = *mut CUipcEventHandle> {
    let first: *mut CUipcEventHandle =
        std::ptr::with_exposed_provenance_mut(usize::try_from(place).unwrap_or(0));
    (0..EVENTS).map(move |number| first.wrapping_add(number))
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
