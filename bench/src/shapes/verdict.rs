//! Whether a simulated ratio has the published one's shape: who is better, and about by how much.

use serde::Serialize;

/// How many times larger or smaller an effect may be to be about the same. The effect is what the better one has more: of
/// 1.5 and of 2/3 it is a half.
const ABOUT: f64 = 2.0;

/// A published ratio.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Published {
    /// The best case that the authors saw.
    UpTo { ratio: f64 },
    /// One case, or the mean of several.
    About { ratio: f64 },
    /// The cases lie between these.
    Between { low: f64, high: f64 },
    /// Each case reaches this.
    AtLeast { ratio: f64 },
}

/// Whether a simulated ratio agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// The same one is better, by about as much.
    #[serde(rename = "agrees")]
    Agrees,
    /// The same one is better, by much more or much less.
    #[serde(rename = "only who is better agrees")]
    SideOnly,
    /// Another one is better, or what was to be kept is not.
    #[serde(rename = "does not agree")]
    No,
}

impl Verdict {
    /// As people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::SideOnly => "only who is better agrees",
            Self::No => "does not agree",
        }
    }
}

impl Published {
    /// The simulated ratio that is held against it: the best case, the worst one, or the geometric mean of all.
    pub fn pick(self, ratios: &[f64]) -> f64 {
        let most = || ratios.iter().copied().fold(0.0, f64::max);
        let least = || ratios.iter().copied().fold(f64::INFINITY, f64::min);
        match self {
            Self::UpTo { ratio } if ratio > 1.0 => most(),
            Self::UpTo { .. } | Self::AtLeast { .. } => least(),
            Self::About { .. } | Self::Between { .. } => {
                (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
            }
        }
    }

    /// Whether `simulated` has its shape.
    pub fn judge(self, simulated: f64) -> Verdict {
        let effect = |ratio: f64| ratio.max(1.0 / ratio) - 1.0;
        let about = |published: f64| {
            let side = if published > 1.0 { simulated > 1.0 } else { simulated < 1.0 };
            (side, (1.0 / ABOUT..=ABOUT).contains(&(effect(simulated) / effect(published))))
        };
        let (side, size) = match self {
            Self::UpTo { ratio } | Self::About { ratio } => about(ratio),
            Self::Between { low, high } => (about(low).0, (low..=high).contains(&simulated)),
            Self::AtLeast { ratio } => (simulated >= ratio, true),
        };
        match (side, size) {
            (true, true) => Verdict::Agrees,
            (true, false) => Verdict::SideOnly,
            (false, _) => Verdict::No,
        }
    }

    /// As people read it.
    pub fn text(self) -> String {
        match self {
            Self::UpTo { ratio } => format!("up to {ratio}"),
            Self::About { ratio } => format!("{ratio}"),
            Self::Between { low, high } => format!("{low} to {high}"),
            Self::AtLeast { ratio } => format!("at least {ratio}"),
        }
    }

    /// Its ends, for a picture.
    pub fn range(self) -> (f64, f64) {
        match self {
            Self::UpTo { ratio } | Self::About { ratio } | Self::AtLeast { ratio } => (ratio, ratio),
            Self::Between { low, high } => (low, high),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Published::{About, AtLeast, Between, UpTo};
    use super::Verdict::{Agrees, No, SideOnly};

    #[test]
    fn the_effect_is_about_the_same_between_half_and_double() {
        let up_to = |simulated| UpTo { ratio: 14.0 }.judge(simulated);
        assert_eq!([27.0, 7.5, 7.4, 27.1, 0.9].map(up_to), [Agrees, Agrees, SideOnly, SideOnly, No]);
        let about = |simulated| About { ratio: 0.5 }.judge(simulated);
        assert_eq!([0.34, 0.66, 0.33, 0.7, 1.1].map(about), [Agrees, Agrees, SideOnly, SideOnly, No]);
    }

    #[test]
    fn a_range_and_a_bound_are_taken_as_they_stand() {
        let range = Between { low: 0.29, high: 0.89 };
        assert_eq!([0.3, 0.2, 0.95, 1.2].map(|ratio| range.judge(ratio)), [Agrees, SideOnly, SideOnly, No]);
        assert_eq!([0.98, 0.96].map(|ratio| AtLeast { ratio: 0.97 }.judge(ratio)), [Agrees, No]);
    }

    #[test]
    fn the_best_case_is_on_the_published_side() {
        let ratios = [0.5, 2.0, 8.0];
        assert_eq!(UpTo { ratio: 3.0 }.pick(&ratios), 8.0);
        assert_eq!(UpTo { ratio: 0.3 }.pick(&ratios), 0.5);
        assert_eq!(AtLeast { ratio: 0.9 }.pick(&ratios), 0.5);
        assert!((About { ratio: 2.0 }.pick(&ratios) - 2.0).abs() < 1e-12);
    }
}
