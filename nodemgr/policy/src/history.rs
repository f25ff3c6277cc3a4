//! The last few values of something.

use weir_protocol::units::Nanos;

/// The last `N` times that were noted.
#[derive(Clone, Debug)]
pub struct History<const N: usize> {
    values: [Nanos; N],
    count: usize,
}

impl<const N: usize> Default for History<N> {
    fn default() -> Self {
        Self { values: [Nanos(0); N], count: 0 }
    }
}

impl<const N: usize> History<N> {
    /// Notes one more and forgets the oldest.
    pub fn push(&mut self, value: Nanos) {
        self.values.rotate_right(1);
        self.values[0] = value;
        self.count = (self.count + 1).min(N);
    }

    /// The values, the newest first.
    pub fn newest_first(&self) -> &[Nanos] {
        &self.values[..self.count]
    }

    /// The least of them.
    pub fn least(&self) -> Option<Nanos> {
        self.newest_first().iter().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut history = History::<3>::default();
        assert_eq!(history.least(), None);
        for n in 1..=4 {
            history.push(Nanos(n));
        }
        assert_eq!(history.newest_first(), [Nanos(4), Nanos(3), Nanos(2)]);
        assert_eq!(history.least(), Some(Nanos(2)));
    }
}
