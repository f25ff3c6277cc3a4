//! How long the control loop may rest: in how many ticks it has to run again.
//!
//! ```text
//!   1         a policy is asked in each tick; somebody is parked or on his way; somebody awake does nothing, and may begin
//!             at any moment; something has changed not long ago
//!   up to 4   all who are awake are at work, and it was so for long: until one of them may count as idle
//!   4         nobody is awake
//! ```
//!
//! Whoever sleeps, and begins work or waits, rings besides moving his word ([`Bell`](weir_protocol::pages::Bell)), and the
//! rest is over. What comes late is only that somebody who was at work has fallen idle, and that his share is lent: by three
//! ticks at most, and by no more than a small part of the time for which nothing had changed.

use weir_protocol::units::Nanos;

use super::Registry;

/// The longest rest, in ticks. Whoever cannot ring, since his connection is lost, is seen after so long.
const LONGEST: u64 = 4;

/// What comes late is no more than this part of the time for which nothing has changed.
const PART: u64 = 32;

impl Registry {
    /// Sets after how many ticks it has to run again, and says it.
    pub fn settle_pace(&mut self, now: Nanos) -> u64 {
        self.ticked_at = now;
        self.pace = if self.is_anyone_away() { 1 } else { self.longest_rest(now) };
        self.pace
    }

    fn longest_rest(&self, now: Nanos) -> u64 {
        let tick = self.tick_length.0.max(1);
        let most = (now.since(self.changed_at).0 / tick / PART).clamp(1, LONGEST);
        if most == 1 {
            return 1; // without a look at anybody
        }
        let due = self.rulers.iter().map(|ruler| ruler.due(now)).min().unwrap_or(now);
        due.since(now).0.div_ceil(tick).clamp(1, most)
    }

    /// After how many ticks it has to run again.
    pub fn pace(&self) -> u64 {
        self.pace
    }

    /// Ends a rest. Says when the next run may be, if there was one to end: no sooner than a tick after the last, so that
    /// whoever never stops ringing costs no more than that.
    pub fn end_rest(&mut self) -> Option<Nanos> {
        self.disturbed = true;
        let rested = std::mem::replace(&mut self.pace, 1) > 1;
        rested.then_some(Nanos(self.ticked_at.0 + self.tick_length.0))
    }

    /// Whether something has changed of which a run must not learn by and by.
    pub fn is_anew(&self) -> bool {
        self.anew
    }
}
