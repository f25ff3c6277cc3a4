//! The ones in a word: of many places, those that are in use.

/// The positions of a word's ones, from the lowest.
#[derive(Clone, Debug)]
pub(crate) struct Ones(pub u64);

impl Iterator for Ones {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let lowest = self.0.trailing_zeros();
        self.0 &= self.0.checked_sub(1)?; // takes the lowest one out; of none there is nothing to take
        Some(lowest as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_one_is_told_once_the_lowest_first() {
        let of = |word| Ones(word).collect::<Vec<_>>();
        assert_eq!(of(0), []);
        assert_eq!(of(1 << 63 | 0b101), [0, 2, 63]);
        assert_eq!(of(u64::MAX), (0..64).collect::<Vec<_>>());
    }
}
