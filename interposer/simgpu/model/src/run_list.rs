//! Turns: whose kernels run. Under time-slicing the front end goes round the contexts that have kernels: each
//! has the device for a slice, keeps it if nobody else wants it, loses it early when it is drained. A context
//! that arrives waits for the rest of the slice. What runs at the end of a slice is preempted, and goes on in
//! its next one. A slice is counted from the switch; a context that rests while nobody else wants the device goes on
//! with what is left of its slice. Under MPS all contexts have the turn, always.

use crate::Nanos;
use crate::concurrency::{MOST_RESIDENT, Resident};
use crate::device::{Device, StreamId, lookup};
use crate::spec::{Kernel, Mode};
use crate::stream::{State, Work};

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nobody's.
    Idle,
    /// State of one context is saved and another's loaded.
    Switching { to: usize, until: Nanos },
    /// A context's.
    Running { context: usize, ends: Nanos },
}

impl Turn {
    /// When it ends by itself.
    pub fn ends(self) -> Option<Nanos> {
        match self {
            Turn::Idle => None,
            Turn::Switching { until, .. } => Some(until),
            Turn::Running { ends, .. } => Some(ends),
        }
    }
}

impl Device {
    /// A stream's first command is a kernel: it runs if its context has the turn and there is a place.
    pub(crate) fn make_ready(&mut self, id: StreamId, context: usize) {
        let Some(owner) = self.contexts[context].as_mut() else { return };
        owner.ready.push_back(id);
        let running = matches!(self.turn, Turn::Running { context: holder, .. } if holder == context);
        if self.spec.mode == Mode::Mps || running {
            self.admit(context);
        } else if !std::mem::replace(&mut owner.listed, true) {
            self.run_list.push_back(context);
            if self.turn == Turn::Idle {
                self.next_turn(0);
            }
        }
    }

    /// Gives places to a context's next kernels.
    pub(crate) fn admit(&mut self, context: usize) {
        let Some(owner) = self.contexts[context].as_mut() else { return };
        while owner.resident < MOST_RESIDENT
            && let Some(id) = owner.ready.pop_front()
        {
            let Some(stream) = self.streams[id.index as usize].stream.as_mut() else { continue };
            let Some(work) = stream.queue.front().map(|queued| queued.work) else { continue };
            let Some(kernel) = self.spec.demand(work) else { continue };
            stream.state = State::Resident;
            owner.resident += 1;
            let mut resident = Resident::new(id, context, stream.priority, kernel, &self.spec);
            resident.is_mark = matches!(work, Work::Mark(_) | Work::Record(..));
            self.resident.push(resident);
            self.stale = true;
        }
    }

    /// The turn goes to the next context that waits for one, after a switch that takes `beyond` more than one after a drain.
    fn next_turn(&mut self, beyond: Nanos) {
        self.turn = Turn::Idle;
        let Some(next) = self.run_list.pop_front() else { return };
        if self.loaded.is_none_or(|loaded| loaded == next) {
            return self.run(next);
        }
        if let Some(owner) = self.contexts[next].as_mut() {
            owner.switches += 1;
        }
        self.turn = Turn::Switching { to: next, until: self.now + self.spec.switch + beyond };
    }

    fn run(&mut self, context: usize) {
        let switched = self.loaded.replace(context) != Some(context);
        if switched || self.slice_ends <= self.now {
            self.slice_ends = self.now + self.spec.slice;
        }
        self.turn = Turn::Running { context, ends: self.slice_ends };
        if let Some(owner) = self.contexts[context].as_mut() {
            self.resident = std::mem::take(&mut owner.parked);
        }
        self.stale = true;
        self.admit(context);
    }

    /// A switch or a slice that has come to its end.
    pub(crate) fn turn_over(&mut self) {
        match self.turn {
            Turn::Switching { to, until } if until <= self.now => self.run(to),
            Turn::Running { context, ends } if ends <= self.now => self.slice_over(context),
            _ => {}
        }
    }

    fn slice_over(&mut self, context: usize) {
        if self.is_drained(context) {
            return; // its last kernel ended with its slice: `settle` passes the turn on, and it has no further one
        }
        if self.run_list.is_empty() {
            self.slice_ends = self.now + self.spec.slice;
            self.turn = Turn::Running { context, ends: self.slice_ends };
            return;
        }
        let beyond = self.cut();
        if let Some(owner) = self.contexts[context].as_mut() {
            owner.parked = std::mem::take(&mut self.resident);
            self.run_list.push_back(context);
        }
        self.stale = true;
        self.next_turn(beyond);
    }

    /// What it costs to cut off what is resident: the more, the more of the SMs are full.
    fn cut(&self) -> Nanos {
        let held = self.resident.iter().map(Resident::sms).sum::<u64>().min(1000);
        let [least, most] = self.spec.cut;
        least + most.saturating_sub(least) * held / 1000
    }

    /// Ends the turn of a context that is drained, or gone.
    pub(crate) fn settle(&mut self) {
        while let Turn::Running { context, ends } = self.turn {
            let keeps = !self.spec.yields_drained && ends > self.now && self.contexts[context].is_some();
            if !self.is_drained(context) || keeps {
                return;
            }
            if let Some(owner) = self.contexts[context].as_mut() {
                owner.listed = false;
            }
            self.next_turn(0);
        }
    }

    /// Whether the context that has the turn has no kernel left, or is gone.
    fn is_drained(&self, context: usize) -> bool {
        let owner = self.contexts[context].as_ref();
        owner.is_none_or(|owner| self.resident.is_empty() && owner.ready.is_empty())
    }

    /// A kernel that spins has seen its flag: it ends within a nanosecond of running.
    pub(crate) fn release_spinner(&mut self, id: StreamId) {
        let Some(context) = lookup(&self.streams, id).map(|stream| stream.context) else { return };
        let parked = self.contexts[context].as_mut().map(|owner| &mut owner.parked);
        let kernels = self.resident.iter_mut().chain(parked.into_iter().flatten());
        if let Some(kernel) = kernels.into_iter().find(|kernel| kernel.stream == id) {
            let done = Kernel { solo: 1, blocks: 1, bandwidth_permille: 0, spins: false };
            *kernel = Resident::new(id, context, kernel.priority, done, &self.spec);
        }
        self.stale = true;
    }
}
