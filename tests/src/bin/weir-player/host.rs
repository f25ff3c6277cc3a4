//! The host's time between two launches. It is slept through where a sleep is short beside it, since the processors are
//! for the simulated GPU and the other programs; a shorter one is spun through, since a sleep would be several times as
//! long. By how much a sleep was too long, what follows is shorter: so a program has the pace of its host in the mean.

use std::time::{Duration, Instant};

/// A sleep is about so much longer than asked for; anything shorter is spun through. Source: timers of a virtual machine,
/// 50 to 70 us late without slack.
const SHORTEST_SLEEP: Duration = Duration::from_micros(60);

/// What a launch call takes on the card, us. Source: an H200, 4.1 to 4.5; a call that takes longer has been held up,
/// and nothing of that is the program's own time.
const CALL_US: f64 = 4.3;

/// A program that was kept from its processor for longer than this does not make up for the rest.
const MOST_OWED: Duration = Duration::from_millis(20);

/// The host of one program.
pub struct Host {
    slow: f64,
    overslept: Duration,
}

impl Host {
    /// One that is slower than the card's by this factor.
    pub fn slower(slow: f64) -> Self {
        // So that sleeps end when they are to.
        // SAFETY: the call takes a number and touches no memory.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        Self { slow, overslept: Duration::ZERO }
    }

    /// So much of the card's time, here.
    pub fn time(&self, us: f64) -> Duration {
        Duration::from_secs_f64(us.max(0.0) * self.slow / 1e6)
    }

    /// The factor.
    pub fn slow(&self) -> f64 {
        self.slow
    }

    /// The time of a launch whose call began then: what is left of it.
    pub fn spend_on_launch(&mut self, us: f64, began: Instant) {
        let call = began.elapsed().min(self.time(CALL_US));
        self.spend(self.time(us).saturating_sub(call));
    }

    /// So much time, less what earlier sleeps took too much.
    pub fn spend(&mut self, span: Duration) {
        let wanted = span.saturating_sub(self.overslept);
        self.overslept -= span - wanted;
        let until = Instant::now() + wanted;
        if wanted > SHORTEST_SLEEP {
            std::thread::sleep(wanted);
        }
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        self.overslept = (self.overslept + until.elapsed()).min(MOST_OWED);
    }
}
