//! How fast an instance is at a share of a GPU, between the points at which it was measured.

use weir_protocol::units::SmShare;

/// Why points are no speed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpeedError {
    /// There is none.
    #[error("no point was measured")]
    Empty,
    /// A time that no measurement gives.
    #[error("{latency} ms at {share} is no latency")]
    Latency {
        /// Where.
        share: SmShare,
        /// In milliseconds.
        latency: f64,
    },
    /// Shares that do not rise.
    #[error("the share {0} comes twice, or after a larger one, or is 0 %")]
    Order(SmShare),
}

/// Speed against share: 1 with the whole GPU, never falling, linear between points and in proportion below the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    points: Vec<(SmShare, f64)>,
}

impl Speed {
    /// From latencies in milliseconds at rising shares. A latency that rises with the share is noise of its measurement:
    /// the better one before it stands. If the whole GPU was not measured, it is as fast as the last point.
    ///
    /// # Errors
    /// If the points are none, out of order, or no latencies.
    pub fn from_latencies(points: &[(SmShare, f64)]) -> Result<Self, SpeedError> {
        let last = points.last().ok_or(SpeedError::Empty)?;
        let mut before = SmShare::ZERO;
        for &(share, latency) in points {
            if !latency.is_finite() || latency <= 0.0 {
                return Err(SpeedError::Latency { share, latency });
            }
            if share <= before {
                return Err(SpeedError::Order(share));
            }
            before = share;
        }
        let fastest = points.iter().map(|point| point.1).fold(last.1, f64::min);
        let mut best = f64::INFINITY;
        let mut speeds: Vec<_> = points
            .iter()
            .map(|&(share, latency)| {
                best = best.min(latency);
                (share, fastest / best)
            })
            .collect();
        if last.0 < SmShare::FULL {
            speeds.push((SmShare::FULL, 1.0));
        }
        Ok(Self { points: speeds })
    }

    /// In proportion to the share: what is assumed of a service that was not profiled.
    pub fn proportional() -> Self {
        Self { points: vec![(SmShare::FULL, 1.0)] }
    }

    /// Speed at a share.
    pub fn at(&self, share: SmShare) -> f64 {
        let wanted = f64::from(share.as_permille());
        let mut before = (0.0, 0.0);
        for &(point, speed) in &self.points {
            let here = (f64::from(point.as_permille()), speed);
            if wanted <= here.0 {
                return before.1 + (here.1 - before.1) * (wanted - before.0) / (here.0 - before.0);
            }
            before = here;
        }
        before.1
    }

    /// The least share with at least this speed; the whole GPU where none has it.
    pub fn least_share(&self, speed: f64) -> SmShare {
        // The speed never falls with the share, so that half of the rest can be left out each time.
        let (mut low, mut high) = (0u16, SmShare::FULL.as_permille());
        while low < high {
            let middle = low.midpoint(high);
            if self.at(SmShare::permille(middle)) + 1e-9 >= speed { high = middle } else { low = middle + 1 }
        }
        SmShare::permille(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama() -> Speed {
        let points = [(10, 159.2), (20, 78.3), (30, 52.3), (50, 41.7), (100, 35.3)];
        Speed::from_latencies(&points.map(|(share, ms)| (SmShare::percent(share), ms))).unwrap()
    }

    #[test]
    fn the_published_points_are_met_and_all_between_lies_between_papers_1_3() {
        let speed = llama();
        assert!((speed.at(SmShare::percent(30)) - 35.3 / 52.3).abs() < 1e-12);
        assert!((speed.at(SmShare::FULL) - 1.0).abs() < 1e-12);
        let between = speed.at(SmShare::percent(40));
        assert!(between > speed.at(SmShare::percent(30)) && between < speed.at(SmShare::percent(50)));
    }

    #[test]
    fn the_least_share_has_the_speed_and_one_permille_less_has_not() {
        let speed = llama();
        for wanted in [0.01, 0.2, 0.5, 0.7, 0.99, 1.0] {
            let share = speed.least_share(wanted);
            assert!(speed.at(share) + 1e-9 >= wanted);
            assert!(speed.at(SmShare::permille(share.as_permille() - 1)) < wanted);
        }
    }

    #[test]
    fn points_that_no_measurement_gives_are_refused() {
        let at = |share, ms| (SmShare::percent(share), ms);
        assert_eq!(Speed::from_latencies(&[]), Err(SpeedError::Empty));
        assert!(matches!(Speed::from_latencies(&[at(10, f64::NAN)]), Err(SpeedError::Latency { .. })));
        assert!(matches!(Speed::from_latencies(&[at(10, -1.0)]), Err(SpeedError::Latency { .. })));
        assert_eq!(
            Speed::from_latencies(&[at(20, 1.0), at(20, 2.0)]),
            Err(SpeedError::Order(SmShare::percent(20)))
        );
    }
}
