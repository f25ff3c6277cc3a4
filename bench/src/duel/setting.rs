//! Under what the programs of a row run, and what Weir is told of each.

use serde::Serialize;
use weir_nodemgr::control::schema::{ClassName, CreateTenant};
use weir_nodemgr::latency::{HINT, Source};
use weir_protocol::units::Bytes;

use super::pairs::{Kind, Pair};

/// What a server asks for, and a primary beside it, in percent.
const ONLINE: u16 = 40;
const BESIDE: u16 = 50;

/// Two tenants that do not count alike, in percent.
pub const UNEVEN: [u16; 2] = [70, 30];

/// What a server promises, ms of the card: 99 of 100 requests take less.
pub const PROMISED_MS: f64 = 6.0;

/// By this name a server tells its latencies.
const METRIC: &str = "request";

/// Memory of each tenant.
const MEMORY: Bytes = Bytes::gib(2);

/// One way of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// The driver's own slices.
    Plain,
    /// Primaries as the row says.
    Equal,
    /// Primaries, [`UNEVEN`].
    Uneven,
    /// The second fills.
    Filler,
    /// The second fills, and the first has promised something.
    Promise,
    /// The first serves, the second is a primary.
    Primary,
}

impl Setting {
    /// Those of a row, in the order in which they take turns.
    pub fn of(pair: &Pair) -> &'static [Self] {
        match pair.kind {
            Kind::Peers if pair.works.len() == UNEVEN.len() => &[Self::Plain, Self::Equal, Self::Uneven],
            Kind::Peers => &[Self::Plain, Self::Equal],
            Kind::Online if pair.is_dense() => &[Self::Plain, Self::Filler, Self::Promise, Self::Primary],
            // A request of eager steps takes longer than what is promised.
            Kind::Online => &[Self::Plain, Self::Filler, Self::Primary],
            Kind::Starts | Kind::Pauses => &[Self::Plain, Self::Filler],
            Kind::Room | Kind::Loops => &[Self::Plain, Self::Equal],
            Kind::Helpers => &[Self::Plain, Self::Filler, Self::Equal],
        }
    }

    /// The tenant for the program at this position; none without Weir.
    pub fn tenant(self, pair: &Pair, at: usize, slow: f64) -> Option<CreateTenant> {
        let first = match pair.kind {
            Kind::Online | Kind::Starts | Kind::Helpers => (ClassName::Latency, Some(ONLINE)),
            Kind::Peers | Kind::Pauses | Kind::Room | Kind::Loops => (ClassName::Primary, Some(BESIDE)),
        };
        let (class, request) = match (self, at) {
            (Self::Plain, _) => return None,
            (Self::Equal, _) => (ClassName::Primary, pair.requests.get(at).copied()),
            (Self::Uneven, _) => (ClassName::Primary, UNEVEN.get(at).copied()),
            (_, 0) => first,
            (Self::Filler | Self::Promise, _) => (ClassName::Filler, None),
            (Self::Primary, _) => (ClassName::Primary, Some(BESIDE)),
        };
        let promises = self == Self::Promise && at == 0;
        Some(CreateTenant {
            name: format!("duel{at}"),
            unique: true,
            request_permille: request.map(|percent| percent * 10),
            memory_bytes: Some(MEMORY.0),
            class,
            slo: promises.then(|| format!("p99 < {:.0}ms", PROMISED_MS * slow)),
            latency_from: promises.then(|| Source { url: HINT.into(), metric: METRIC.into() }),
            ..CreateTenant::default()
        })
    }
}
