//! Injected faults of NVML's calls: see `weir_simgpu_link::fault`. They hold once the session is open.

use std::cell::Cell;

use weir_simgpu_link::config::{Config, Lie};
use weir_simgpu_link::fault::{Faults, Struck};

use crate::edge::Answer;

static FAULTS: Faults = Faults::new();

thread_local! {
    /// What the call in progress on this thread is to say instead of the truth.
    static LIE: Cell<Option<Lie>> = const { Cell::new(None) };
}

/// Takes the configuration's faults over.
pub fn arm(config: &Config) {
    FAULTS.arm(config);
}

/// Lets a fault strike the call in progress, if one is due.
pub fn strike(symbol: &str) -> Answer {
    let struck = FAULTS.strike(symbol);
    LIE.set(if let Struck::Lie(lie) = struck { Some(lie) } else { None });
    match struck {
        Struck::Error(code) => Err(code),
        // The last and the sticky are matters of the driver's calls.
        Struck::Not | Struck::Lie(_) | Struck::Last | Struck::Sticky(_) => Ok(()),
    }
}

/// More than any card has, and no process's number.
pub const NONSENSE: u64 = u64::MAX / 2;

/// A figure, or nonsense.
pub fn figure(truth: u64) -> u64 {
    if LIE.get() == Some(Lie::Nonsense) { NONSENSE } else { truth }
}

/// Whether the dead are to be listed.
pub fn lingers() -> bool {
    LIE.get() == Some(Lie::Linger)
}

/// A list, or its first half.
pub fn list<T>(mut truth: Vec<T>) -> Vec<T> {
    if LIE.get() == Some(Lie::Truncate) {
        truth.truncate(truth.len() / 2);
    }
    truth
}
