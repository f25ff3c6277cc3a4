//! So many of the last seconds: what the lazy rule remembers.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Whether something held, in each of the last seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lately {
    length: usize,
    held: VecDeque<bool>,
    count: usize,
}

impl Lately {
    /// A memory of `length` seconds, empty.
    pub fn new(length: usize) -> Self {
        Self { length: length.max(1), held: VecDeque::with_capacity(length), count: 0 }
    }

    /// One more second; how many of those remembered held.
    pub fn push(&mut self, held: bool) -> usize {
        if self.held.len() == self.length && self.held.pop_front() == Some(true) {
            self.count -= 1;
        }
        self.held.push_back(held);
        self.count += usize::from(held);
        self.count
    }

    /// Forgets all: after an action, so that the next one waits for its effect.
    pub fn clear(&mut self) {
        self.held.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_history_counts_no_more() {
        let mut lately = Lately::new(3);
        let counts: Vec<_> = [true, true, false, false, true].iter().map(|held| lately.push(*held)).collect();
        assert_eq!(counts, [1, 2, 2, 1, 1]);
        lately.clear();
        assert_eq!(lately.push(false), 0);
    }
}
