//! The making of a context: the driver sets it up on the device, in many small steps, each of which interrupts whoever
//! runs there. Beside nobody it is not felt.

use std::cmp::Reverse;

use crate::Nanos;
use crate::device::{ContextId, Device};
use crate::run_list::Turn;
use crate::spec::Mode;
use crate::stream::{Queued, State, StreamKind, Work};

/// Between two steps, ns. Source: an H200, 30 interruptions over 165 ms.
const EVERY: Nanos = 5_500_000;
/// What a step takes itself, ns. Source: the same; with two switches the interrupted one stands still for 0.3 ms.
const STEP: Nanos = 10_000;
/// The longest one, ns, and how many come before it. Source: the same; 1.4 ms with two switches.
const LONGEST: Nanos = 1_065_000;
const BEFORE_LONGEST: u32 = 15;

/// A step that is to come: when, of which context, how long.
pub(crate) type Step = Reverse<(Nanos, usize, Nanos)>;

impl Device {
    /// A context was made: its steps follow.
    pub(crate) fn expect_birth(&mut self, context: ContextId) {
        let steps = (0..self.spec.births).map(|nth| {
            let takes = if nth == BEFORE_LONGEST { LONGEST } else { STEP };
            Reverse((self.now + EVERY * u64::from(nth + 1), context.0, takes))
        });
        self.births.extend(steps);
        self.next = None;
        let stream = (self.spec.births > 0).then(|| self.open_stream(context, StreamKind::NonBlocking, 0, 0));
        if let Some(owner) = self.contexts[context.0].as_mut() {
            owner.birth = stream.flatten();
        }
    }

    /// Begins the steps that are due.
    pub(crate) fn take_birth_steps(&mut self) {
        while let Some(Reverse((at, context, takes))) = self.births.peek().copied()
            && at <= self.now
        {
            self.births.pop();
            if self.is_beside_another(context) {
                self.begin_birth_step(context, takes);
            }
        }
    }

    fn is_beside_another(&self, context: usize) -> bool {
        let others = match self.turn {
            Turn::Idle => false,
            Turn::Switching { .. } => true,
            Turn::Running { context: holder, .. } => holder != context,
        };
        self.spec.mode == Mode::TimeSlice && others
    }

    fn begin_birth_step(&mut self, context: usize, takes: Nanos) {
        let Some(owner) = self.contexts[context].as_mut() else { return };
        let Some(id) = owner.birth else { return };
        owner.backlog.add(self.now);
        let order = self.next_order();
        let Some(stream) = self.stream_mut(id) else { return };
        let work = Work::Mark(takes);
        stream.queue.push_back(Queued { sequence: 0, order, work, after: 0, solo_sum: 0 });
        if stream.state == State::Empty {
            self.pumps.push_back(id);
        }
    }
}
