//! Slowdown from solo profiles alone: tenants are customers of a closed queueing network.
//!
//! Alone a tenant spends parts of its time on the SMs, on the copy engine of each direction, and elsewhere (host, network).
//! Beside others it meets them at the shared *stations*, which divide themselves fairly among those present. Mean-value
//! analysis is exact for such a network (Reiser and Lavenberg, 1980): who arrives finds the queue as it would be without
//! himself. So two that are always on the SMs run at half speed, three at a third, and two that are there a third of their
//! time lose a ninth each. With more than [`EXACT`] others the same is solved by Schweitzer's approximation.

/// Shared stations: SMs, copies to the device, copies to the host.
const STATIONS: usize = 3;
/// Most tenants for which all subsets are gone through.
const EXACT: usize = 8;
/// Rounds of the approximation; each halves its error at least.
const ROUNDS: usize = 60;

/// Parts of a tenant's time alone in which it is at each shared station, each 0 to 1, together at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uses {
    parts: [f64; STATIONS],
}

impl Default for Uses {
    /// Nothing is known: always on the SMs.
    fn default() -> Self {
        Self { parts: [1.0, 0.0, 0.0] }
    }
}

impl Uses {
    /// A tenant that is on the SMs for this part of its time, copies to the device for that and to the host for that. Parts
    /// that are no parts of one are cut to it; if they pass one together (they overlap) all are reduced alike.
    pub fn new(sm: f64, to_device: f64, to_host: f64) -> Self {
        let parts =
            [sm, to_device, to_host].map(|part| if part.is_finite() { part.clamp(0.0, 1.0) } else { 1.0 });
        let sum = parts.iter().sum::<f64>().max(1.0);
        Self { parts: parts.map(|part| part / sum) }
    }

    /// Part of its time on the SMs.
    pub const fn sm(&self) -> f64 {
        self.parts[0]
    }

    /// Parts on the copy engines: to the device, to the host.
    pub const fn copies(&self) -> (f64, f64) {
        (self.parts[1], self.parts[2])
    }

    fn elsewhere(&self) -> f64 {
        (1.0 - self.parts.iter().sum::<f64>()).max(0.0)
    }
}

/// How many times slower `victim` runs beside all of `others`.
pub fn slowdown(victim: Uses, others: &[Uses]) -> f64 {
    let queues = if others.len() <= EXACT { exact(others) } else { approximate(others) };
    round(&victim, &queues)
}

/// Time of one round of a tenant that finds these queues, against its time alone.
fn round(tenant: &Uses, queues: &[f64; STATIONS]) -> f64 {
    let stations = tenant.parts.iter().zip(queues);
    tenant.elsewhere() + stations.map(|(part, queue)| part * (1.0 + queue)).sum::<f64>()
}

/// Mean number at each station when all of `tenants` are there: from the empty set upwards over all subsets.
fn exact(tenants: &[Uses]) -> [f64; STATIONS] {
    let mut queues = vec![[0.0; STATIONS]; 1 << tenants.len()];
    for set in 1..queues.len() {
        let mut sum = [0.0; STATIONS];
        for (at, tenant) in tenants.iter().enumerate().filter(|(at, _)| set & 1 << at != 0) {
            add(&mut sum, tenant, &queues[set & !(1 << at)]);
        }
        queues[set] = sum;
    }
    queues.pop().unwrap_or_default()
}

/// Adds the tenant's own part of each queue: the time it is there in a round over the round.
fn add(sum: &mut [f64; STATIONS], tenant: &Uses, others: &[f64; STATIONS]) {
    let round = round(tenant, others);
    for station in 0..STATIONS {
        sum[station] += tenant.parts[station] * (1.0 + others[station]) / round;
    }
}

/// The same with each tenant's own part of the queues taken as it stands when all are there.
fn approximate(tenants: &[Uses]) -> [f64; STATIONS] {
    let mut own = vec![[0.0; STATIONS]; tenants.len()];
    let total = |own: &[[f64; STATIONS]]| {
        let sum = |station| own.iter().map(|queues| queues[station]).sum::<f64>();
        std::array::from_fn::<f64, STATIONS, _>(sum)
    };
    for _ in 0..ROUNDS {
        let all = total(&own);
        for (tenant, queues) in tenants.iter().zip(&mut own) {
            let others = std::array::from_fn(|station| (all[station] - queues[station]).max(0.0));
            *queues = [0.0; STATIONS];
            add(queues, tenant, &others);
        }
    }
    total(&own)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Uses = Uses { parts: [1.0, 0.0, 0.0] };

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn k_tenants_that_are_always_busy_run_k_times_slower() {
        for others in 0..=EXACT {
            let slower = slowdown(BUSY, &vec![BUSY; others]);
            assert!(near(slower, 1.0 + others as f64), "{slower} beside {others}");
        }
        assert!((slowdown(BUSY, &[BUSY; 20]) - 21.0).abs() < 0.01, "beyond the exact ones, too");
    }

    #[test]
    fn tenants_at_different_stations_do_not_meet() {
        let copies = Uses::new(0.0, 1.0, 0.0);
        assert!(near(slowdown(BUSY, &[copies]), 1.0));
        assert!(near(slowdown(copies, &[copies]), 2.0));
        assert!(near(slowdown(Uses::new(0.0, 0.0, 0.0), &[BUSY, BUSY]), 1.0), "the host is nobody's station");
    }

    #[test]
    fn two_that_are_rarely_there_rarely_meet() {
        let third = Uses::new(1.0 / 3.0, 0.0, 0.0);
        assert!(near(slowdown(third, &[third]), 1.0 + 1.0 / 9.0));
    }

    #[test]
    fn another_neighbour_never_speeds_a_tenant_up() {
        let some = [
            Uses::new(0.5, 0.2, 0.0),
            Uses::new(0.9, 0.0, 0.1),
            Uses::new(0.1, 0.0, 0.0),
            Uses::new(0.4, 0.3, 0.3),
        ];
        for count in 0..some.len() {
            for victim in some {
                assert!(slowdown(victim, &some[..count]) <= slowdown(victim, &some[..=count]));
            }
        }
    }

    #[test]
    fn the_approximation_comes_within_a_tenth_of_the_exact_queues() {
        let some: Vec<_> = (0..8).map(|at| Uses::new(0.1 + 0.1 * f64::from(at), 0.1, 0.0)).collect();
        let (exact, approximate) = (exact(&some), approximate(&some));
        assert!((exact[0] - approximate[0]).abs() < 0.1 * exact[0], "{exact:?} {approximate:?}");
    }

    #[test]
    fn parts_that_cannot_be_are_cut_to_what_can() {
        assert_eq!(Uses::new(f64::NAN, 0.0, 0.0), BUSY);
        assert_eq!(Uses::new(7.0, -1.0, 0.0), BUSY);
        assert!(near(Uses::new(0.9, 0.9, 0.2).elsewhere(), 0.0));
    }
}
