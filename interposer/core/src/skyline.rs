//! What a process's streams weigh together, moment by moment.
//!
//! Each stretch is laid over what the others had at that time. How the weights within two stretches come together only their
//! launches' order could tell: those that a thread hands out to several streams in turn are taken to run in step, all others
//! to have nothing to do with each other.

use std::collections::VecDeque;

use crate::overlap::Moments;

/// Steps kept: older ones are forgotten, and what comes later for such a time stands alone there.
const STEPS: usize = 128;

/// Some time, and what all stretches in it that are known weigh together: on average, and its square.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    from: f64,
    to: f64,
    weight: [f64; 2],
}

/// Weight over time, on the GPU's clock.
#[derive(Debug)]
pub struct Skyline(VecDeque<Step>);

impl Default for Skyline {
    /// With room for all that it ever holds, as a launch lays stretches: all steps, those that a stretch is cut out of, and
    /// one between any two.
    fn default() -> Self {
        Self(VecDeque::with_capacity(2 * STEPS + 5))
    }
}

impl Skyline {
    /// Lays a stretch over the others, with which it runs in step or not. Returns by how much the integrals of the weight of
    /// all, of its square and of its cube have grown.
    pub fn add(&mut self, (from, to): (f64, f64), weight: Moments, in_step: bool) -> Moments {
        self.split(from);
        self.split(to);
        let (mut grown, mut at) = (Moments::default(), from);
        let mut next = self.0.partition_point(|step| step.to <= from);
        while at < to {
            match self.0.get_mut(next) {
                Some(step) if step.from <= at => {
                    let more = step.rise(weight, in_step);
                    grown.iter_mut().zip(more).for_each(|(sum, more)| *sum += more * (step.to - at));
                    at = step.to;
                    next += 1;
                }
                later => {
                    let until = later.map_or(to, |step| step.from.min(to));
                    self.0.insert(next, Step { from: at, to: until, weight: [0.0; 2] });
                }
            }
        }
        let excess = self.0.len().saturating_sub(STEPS);
        self.0.drain(..excess);
        grown
    }

    /// Steps end at this moment, or begin there.
    fn split(&mut self, at: f64) {
        let first = self.0.partition_point(|step| step.to <= at);
        if let Some(step) = self.0.get_mut(first)
            && step.from < at
        {
            let after = Step { from: at, ..*step };
            step.to = at;
            self.0.insert(first + 1, after);
        }
    }
}

impl Step {
    /// One more stretch.
    fn rise(&mut self, [mean, square, cube]: Moments, in_step: bool) -> Moments {
        let [before, before_square] = self.weight;
        // What comes of the weight before times that of the stretch, of its square times that, and of it times the square.
        let [once, square_once, once_square] = if in_step {
            let times = before / mean; // as much more at each moment
            [times * square, times * times * cube, times * cube]
        } else {
            [before * mean, before_square * mean, before * square]
        };
        let more = [mean, 2.0 * once + square, 3.0 * square_once + 3.0 * once_square + cube];
        self.weight = [before + more[0], before_square + more[1]];
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Integrals of weight, square and cube after these stretches.
    fn laid(stretches: &[(f64, f64, f64)]) -> Moments {
        let mut skyline = Skyline::default();
        stretches.iter().fold(Moments::default(), |mut sums, (from, to, weight)| {
            let more = skyline.add((*from, *to), [*weight, weight * weight, weight * weight * weight], false);
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            sums
        })
    }

    #[test]
    fn weights_add_up_where_and_only_where_they_overlap() {
        assert_eq!(laid(&[(0.0, 10.0, 1.0)]), [10.0, 10.0, 10.0]);
        assert_eq!(laid(&[(0.0, 10.0, 1.0), (20.0, 30.0, 2.0)]), [30.0, 50.0, 90.0]);
        let half = [20.0, 5.0 + 5.0 * 4.0 + 5.0, 5.0 + 5.0 * 8.0 + 5.0];
        assert_eq!(laid(&[(0.0, 10.0, 1.0), (5.0, 15.0, 1.0)]), half);
    }

    #[test]
    fn stretches_come_in_any_order() {
        let stretches = [(0.0, 10.0, 1.0), (5.0, 15.0, 0.5), (12.0, 13.0, 2.0), (0.0, 20.0, 0.25)];
        for turn in 1..stretches.len() {
            let mut turned = stretches;
            turned.rotate_left(turn);
            let (one, other) = (laid(&stretches), laid(&turned));
            assert!(one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-9), "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_varies_within_a_stretch_has_nothing_to_do_with_the_others_or_runs_in_step() {
        let coin = [0.5, 0.5, 0.5]; // 0 or 1
        let two = |in_step| -> Moments {
            let mut skyline = Skyline::default();
            let sums = [skyline.add((0.0, 1.0), coin, in_step), skyline.add((0.0, 1.0), coin, in_step)];
            std::array::from_fn(|n| sums[0][n] + sums[1][n])
        };
        assert_eq!(two(false), [1.0, 1.5, 2.5], "0, 1, 1 or 2");
        assert_eq!(two(true), [1.0, 2.0, 4.0], "0 or 2");
    }

    #[test]
    fn it_forgets_what_is_old_and_never_wants_more_room() {
        let mut skyline = Skyline::default();
        let room = skyline.0.capacity();
        for n in 0..1_000u32 {
            skyline.add((f64::from(n) * 10.0, f64::from(n) * 10.0 + 5.0), [1.0; 3], false);
        }
        assert_eq!(skyline.0.len(), STEPS);
        assert_eq!(skyline.add((0.0, 5.0), [1.0; 3], false), [5.0, 5.0, 5.0]);
        skyline.add((-2.5, 10_002.5), [1.0; 3], false); // begins and ends within no step, and fills every gap
        assert_eq!((skyline.0.len(), skyline.0.capacity()), (STEPS, room));
    }
}
