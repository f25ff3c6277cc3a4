//! Stories for tests: tenants on one GPU in simulated time, which see each decision a tick later.

use weir_protocol::units::{Bytes, Nanos, SmShare};

use crate::{Class, Sample, Work};

/// A primary that requested nothing and works.
pub fn tenant() -> Sample {
    Sample {
        tenant: 0,
        class: Class::Primary,
        request: SmShare::ZERO,
        limit: SmShare::FULL,
        memory_limit: Bytes::gib(1),
        memory_held: Bytes(0),
        outstanding: Nanos(0),
        idle_for: Nanos(0),
        work: Work::default(),
        slo: None,
    }
}
