//! Injected faults at work: a call that fails, takes its time, hangs, lies, or is the process's last, as the configuration
//! says. Both libraries, the driver and NVML, count their own calls.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

use crate::config::{Config, Fault, FaultAction, Lie, When};

/// A library's faults.
pub struct Faults {
    armed: AtomicBool, // whether there are any: all that a call looks at otherwise
    rows: OnceLock<Vec<Armed>>,
}

/// A fault and how often its calls were made.
struct Armed {
    fault: Fault,
    calls: AtomicU64,
}

/// What becomes of the call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Struck {
    /// Nothing: it goes on.
    Not,
    /// It answers this code.
    Error(u32),
    /// It answers this code, and the thread's context is broken.
    Sticky(u32),
    /// It goes on, and lies.
    Lie(Lie),
    /// It goes on, and if it succeeds the process dies of [`die`] before anybody hears of it.
    Last,
}

/// The end of this process, as nothing in it can prevent.
pub fn die() {
    // It does not return from it.
    let _ = kill_process(getpid(), Signal::KILL);
}

impl Faults {
    /// None until [`Self::arm`].
    pub const fn new() -> Self {
        Self { armed: AtomicBool::new(false), rows: OnceLock::new() }
    }

    /// Takes over the faults that the configuration has for this process.
    pub fn arm(&self, config: &Config) {
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let ours = config.fault.iter().filter(|fault| fault.is_for(name.trim_end()));
        let armed = |fault: &Fault| Armed { fault: fault.clone(), calls: AtomicU64::new(0) };
        let rows = self.rows.get_or_init(|| ours.map(armed).collect());
        self.armed.store(!rows.is_empty(), Ordering::Release);
    }

    /// Lets a fault strike the call in progress, if one is due.
    #[inline]
    pub fn strike(&self, symbol: &str) -> Struck {
        // Relaxed: faults hold from the library's start on; a call that races with it may miss them.
        if self.armed.load(Ordering::Relaxed) { self.strike_slow(symbol) } else { Struck::Not }
    }

    #[cold]
    fn strike_slow(&self, symbol: &str) -> Struck {
        let due = |armed: &&Armed| armed.fault.concerns(symbol) && armed.is_due();
        match self.rows.get().into_iter().flatten().find(due).map(|armed| armed.fault.action) {
            None => Struck::Not,
            Some(FaultAction::Error(code)) => Struck::Error(code),
            Some(FaultAction::Sticky(code)) => Struck::Sticky(code),
            Some(FaultAction::Lie(lie)) => Struck::Lie(lie),
            Some(FaultAction::SigkillAfter) => Struck::Last,
            Some(FaultAction::Delay(time)) => {
                std::thread::sleep(time); // being slow is what it is for
                Struck::Not
            }
            Some(FaultAction::Hang) => loop {
                std::thread::park();
            },
            Some(FaultAction::Sigkill) => {
                die();
                Struck::Not
            }
        }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::new()
    }
}

impl Armed {
    fn is_due(&self) -> bool {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        match self.fault.when {
            When::Nth(nth) => call == nth,
            When::Every(every) => call.is_multiple_of(every),
            When::Probability { probability, seed } => uniform(seed, call) < probability,
        }
    }
}

/// A number in [0, 1) that depends on seed and call alone (splitmix64).
fn uniform(seed: u64, call: u64) -> f64 {
    let mut z = seed.wrapping_add(call.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    // 53 bits: as many as an f64 holds exactly.
    ((z ^ z >> 31) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_strikes_the_same_calls_and_about_as_often_as_asked() {
        let struck = |seed| (0..10_000).filter(|call| uniform(seed, *call) < 0.1).collect::<Vec<u64>>();
        assert_eq!(struck(7), struck(7));
        assert_ne!(struck(7), struck(8));
        assert!((900..1_100).contains(&struck(7).len()));
    }

    #[test]
    fn a_fault_strikes_its_call_in_its_process_and_no_other() {
        let name = std::fs::read_to_string("/proc/self/comm").unwrap();
        let row = |process: &str| {
            format!("[[fault]]\ncall = 'nvmlA'\nprocess = '{process}'\nnth = 2\naction = 'error:9'\n")
        };
        let struck = |text: &str| {
            let faults = Faults::new();
            faults.arm(&toml::from_str(text).unwrap());
            ["nvmlA", "nvmlB", "nvmlA", "nvmlA"].map(|symbol| faults.strike(symbol))
        };
        use Struck::{Error, Not};
        assert_eq!(struck(&row(name.trim_end())), [Not, Not, Error(9), Not]);
        assert_eq!(struck(&row("somebody-else")), [Not; 4]);
    }
}
