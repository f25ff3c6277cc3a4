//! Where launches wait that may not go yet.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `gate` of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GatePlace {
    /// On the host: the call returns when the launch may go.
    Host,
    /// In the stream, behind a wait: the host goes on.
    Stream,
    /// In the stream on the simulated GPU, and on a card whose calibration says what such waits take; else on the host.
    #[default]
    Auto,
}

impl GatePlace {
    /// The same on cards whose waits were measured, and are short, or where that is not known.
    pub fn on(self, short_waits: bool) -> Self {
        if self == Self::Auto && short_waits { Self::Stream } else { self }
    }

    /// Whether launches wait in their streams on a GPU, which may be a simulated one.
    pub fn is_stream(self, simulated: bool) -> bool {
        self == Self::Stream || (self == Self::Auto && simulated)
    }

    /// Each of them.
    const ALL: [Self; 3] = [Self::Host, Self::Stream, Self::Auto];

    /// As the file spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Stream => "stream",
            Self::Auto => "auto",
        }
    }
}

impl FromStr for GatePlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|place| place.name() == text);
        known.ok_or_else(|| "choose host, stream or auto".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_itself_launches_wait_in_their_streams_where_that_is_known_to_work() {
        let places = ["host", "stream", "auto"].map(|text| text.parse::<GatePlace>().unwrap());
        let streams = |simulated| places.map(|place| place.is_stream(simulated));
        assert_eq!((streams(false), streams(true)), ([false, true, false], [false, true, true]));
        assert_eq!(places.map(|place| place.on(true).is_stream(false)), [false, true, true]);
        assert!("device".parse::<GatePlace>().is_err() && GatePlace::default() == GatePlace::Auto);
    }
}
