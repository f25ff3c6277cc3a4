//! Two processes that ask for the same bytes at the same moment, over and over. They meet in a file that the environment
//! names: `RACE_FILE`, of two words.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_tests::obeying::{Done, size};

use crate::{Client, device, pools, shares, tiles};

/// What both see.
#[repr(C)]
struct Meeting {
    come: AtomicU64,    // how often somebody has come to where both meet
    holders: AtomicU64, // who has the bytes just now
}

/// Bytes of a row, of what is made of rows: no pitch makes it longer.
const ROW: u64 = 64 << 10;

/// Who races.
const RACERS: u64 = 2;

/// One command, if it is of this subject: `race` for memory of a kind, so many bytes, so often. The answer: how often this
/// process got them, and how often the other one had them meanwhile.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    let kinds = ["allocate", "create", "pool_allocate", "managed", "rows", "array_flat"];
    let kind = match command {
        "race" => kinds.get(size(n(0)))?,
        _ => return None,
    };
    Some(race(client, kind, n(1), n(2)))
}

fn race(client: &mut Client, kind: &str, bytes: u64, rounds: u64) -> Done {
    let meeting = meeting();
    let (mut won, mut both) = (0, 0);
    for round in 0..rounds {
        meeting.meet(2 * round);
        let (result, values) = get(client, kind, bytes);
        if result == CUDA_SUCCESS {
            won += 1;
            both += meeting.holders.fetch_add(1, Ordering::SeqCst);
        } else if result != CUDA_ERROR_OUT_OF_MEMORY {
            return (result, Vec::new());
        }
        meeting.meet(2 * round + 1);
        if result == CUDA_SUCCESS {
            meeting.holders.fetch_sub(1, Ordering::SeqCst);
            let freed = give_back(client, kind, values[0]);
            if freed != CUDA_SUCCESS {
                return (freed, Vec::new());
            }
        }
    }
    meeting.meet(2 * rounds);
    (CUDA_SUCCESS, vec![won, both])
}

fn get(client: &mut Client, kind: &str, bytes: u64) -> Done {
    let width = match kind {
        "rows" => ROW,
        "array_flat" => ROW / 4, // elements
        _ => bytes,
    };
    let n = |at: usize| [width, if width == bytes { 0 } else { bytes / ROW }].get(at).copied().unwrap_or(0);
    let done = device::obey(client, kind, n).or_else(|| pools::obey(client, kind, n));
    let done = done.or_else(|| shares::obey(client, kind, n)).or_else(|| tiles::obey(client, kind, n));
    done.unwrap_or((CUDA_ERROR_NOT_FOUND, Vec::new()))
}

fn give_back(client: &mut Client, kind: &str, value: u64) -> CUresult {
    let none = (CUDA_ERROR_NOT_FOUND, Vec::new());
    match kind {
        "allocate" | "managed" | "rows" => device::obey(client, "free", |_| value).unwrap_or(none).0,
        "array_flat" => tiles::obey(client, "array_destroy", |_| value).unwrap_or(none).0,
        "create" => shares::obey(client, "release", |_| value).unwrap_or(none).0,
        _ => {
            pools::obey(client, "pool_free", |_| value);
            device::obey(client, "wait", |_| 0).unwrap_or(none).0 // a pool gives back when somebody waits
        }
    }
}

impl Meeting {
    /// Waits until both have come here; places are counted from 0.
    fn meet(&self, place: u64) {
        self.come.fetch_add(1, Ordering::SeqCst);
        while self.come.load(Ordering::SeqCst) < RACERS * (place + 1) {
            std::thread::yield_now();
        }
    }
}

fn meeting() -> &'static Meeting {
    let path = std::env::var_os("RACE_FILE").unwrap_or_default();
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap_or_else(|error| panic!("{error}"));
    let (bytes, access) = (size_of::<Meeting>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping of a file; it is checked below.
    let place = unsafe { libc::mmap(null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert!(place != libc::MAP_FAILED, "a mapping");
    // SAFETY: as long as the process, as large as the file, of atomics for which every value is valid.
    unsafe { &*place.cast() }
}
