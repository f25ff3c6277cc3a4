//! Injected faults: a call that fails, hangs, or is the process's last, as the configuration says.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_abi::SYMBOLS;
use weir_abi::types::CUresult;
use weir_simgpu_link::config::{Config, Fault, FaultAction, When};

use crate::edge::Answer;

/// Whether any fault is configured: all that a call looks at otherwise.
static ARMED: AtomicBool = AtomicBool::new(false);
static FAULTS: OnceLock<Vec<Armed>> = OnceLock::new();

/// A fault and how often its calls were made.
struct Armed {
    fault: Fault,
    calls: AtomicU64,
}

/// Takes the configuration's faults over.
pub fn arm(config: &Config) {
    let armed = |fault: &Fault| Armed { fault: fault.clone(), calls: AtomicU64::new(0) };
    let faults = FAULTS.get_or_init(|| config.fault.iter().map(armed).collect());
    ARMED.store(!faults.is_empty(), Ordering::Release);
}

/// Lets a fault strike the call in progress, if one is due.
#[inline]
pub fn strike(index: usize) -> Answer {
    // Relaxed: faults hold from `cuInit` on; a call that races with it may miss them.
    if ARMED.load(Ordering::Relaxed) { strike_slow(SYMBOLS[index].name) } else { Ok(()) }
}

#[cold]
fn strike_slow(symbol: &str) -> Answer {
    let due = |armed: &&Armed| armed.fault.concerns(symbol) && armed.is_due();
    let struck = FAULTS.get().into_iter().flatten().find(due);
    match struck.map(|armed| armed.fault.action) {
        None => Ok(()),
        Some(FaultAction::Error(code)) => Err(CUresult(code)),
        Some(FaultAction::Hang) => loop {
            std::thread::park();
        },
        Some(FaultAction::Sigkill) => {
            // SAFETY: a signal to this process itself; it does not return from it.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            Ok(())
        }
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
    use super::uniform;

    #[test]
    fn the_same_seed_strikes_the_same_calls_and_about_as_often_as_asked() {
        let struck = |seed| (0..10_000).filter(|call| uniform(seed, *call) < 0.1).collect::<Vec<u64>>();
        assert_eq!(struck(7), struck(7));
        assert_ne!(struck(7), struck(8));
        assert!((900..1_100).contains(&struck(7).len()));
    }
}
