//! Channels: where several streams of a context share one, commands go through it in the order in which they were given.
//! One that is held there, a wait that nobody has ended say, holds up all that were given after it.

use crate::device::{Device, StreamId, lookup};
use crate::stream::State;

impl Device {
    /// Whether a stream's first command, given as the `order`th, stands behind one that is held in its channel.
    pub(crate) fn is_behind_another(&self, id: StreamId, order: u64) -> bool {
        if self.spec.channel_streams <= 1 {
            return false;
        }
        self.sharers(id).filter_map(|sharer| lookup(&self.streams, sharer)).any(|sharer| {
            sharer.state == State::Stalled && sharer.queue.front().is_some_and(|first| first.order < order)
        })
    }

    /// A stream is held no longer: those behind it go on.
    pub(crate) fn let_sharers_go(&mut self, id: StreamId) {
        if self.spec.channel_streams > 1 {
            let sharers: Vec<_> = self.sharers(id).collect();
            self.pumps.extend(sharers);
        }
    }

    fn sharers(&self, id: StreamId) -> impl Iterator<Item = StreamId> + '_ {
        let own = lookup(&self.streams, id);
        let context = own.and_then(|own| self.contexts[own.context].as_ref());
        let channel = own.map(|own| own.channel);
        let all = context.into_iter().flat_map(|context| &context.streams).copied();
        all.filter(move |other| {
            *other != id && lookup(&self.streams, *other).map(|stream| stream.channel) == channel
        })
    }
}
