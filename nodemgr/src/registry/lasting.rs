//! States of policies as events: told when they last.

use weir_protocol::units::Nanos;

/// A policy's state is told once it has lasted so long: some policies go back and forth ten times a second.
const LASTING: Nanos = Nanos::from_secs(1);

/// A state that is told when it lasts.
#[derive(Debug, Default)]
pub(super) struct Lasting {
    told: &'static str,
    changes: u32,
    since: Nanos,
}

impl Lasting {
    /// Notes how often it has changed since the last look. The change to tell, once the state has lasted: from which, after how many
    /// changes. The first state is told by nobody, and neither is one that was left and has come back.
    pub(super) fn look(
        &mut self,
        state: &'static str,
        changes: u32,
        now: Nanos,
    ) -> Option<(&'static str, u32)> {
        if self.told.is_empty() {
            self.told = state;
            return None;
        }
        if changes > 0 {
            self.changes = self.changes.saturating_add(changes);
            self.since = now;
        }
        if self.changes == 0 || now.since(self.since) < LASTING {
            return None;
        }
        let changes = std::mem::take(&mut self.changes);
        let old = std::mem::replace(&mut self.told, state);
        (old != state).then_some((old, changes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of states that are looked at ten times a second: each with how often it changed before.
    fn told(looks: &[(&'static str, u32)]) -> Vec<(&'static str, u32)> {
        let mut state = Lasting::default();
        let look = |(n, (name, changes)): (usize, &(&'static str, u32))| {
            state.look(name, *changes, Nanos::from_millis(100 * n as u64))
        };
        looks.iter().enumerate().filter_map(look).collect()
    }

    #[test]
    fn a_state_is_told_once_it_has_lasted() {
        let mut looks = vec![("OPEN", 0), ("BUSY", 1)];
        looks.extend([("BUSY", 0); 9]);
        assert_eq!(told(&looks), [], "nine tenths of a second");
        looks.extend([("BUSY", 0); 20]);
        assert_eq!(told(&looks), [("OPEN", 1)], "once, and from what it was");
    }

    #[test]
    fn what_goes_back_and_forth_is_told_of_when_it_comes_to_rest() {
        let mut looks = vec![("OPEN", 0)];
        looks.extend([("BUSY", 9), ("CAPPED", 10)].repeat(50));
        assert_eq!(told(&looks), [], "ten seconds of it");
        looks.extend([("CAPPED", 0); 10]);
        assert_eq!(told(&looks), [("OPEN", 950)]);
    }

    #[test]
    fn a_state_that_is_left_and_comes_back_is_no_news() {
        let mut looks = vec![("OPEN", 0), ("BUSY", 1), ("OPEN", 1)];
        looks.extend([("OPEN", 0); 20]);
        assert_eq!(told(&looks), []);
    }
}
