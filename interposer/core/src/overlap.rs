//! Which part of a nanosecond is whose when tenants overlap (MPS): it is divided among those who have kernels on the GPU,
//! by the kernels' weight (design 5, gpu-truths rule 12).
//!
//! Each process publishes for how long it had kernels there, and with what weight, as ever-growing sums. Whoever wants to
//! know what it shared its own time with looks at them now and then: what a sum has grown by since the last look is that
//! neighbour's part of the time in between. What a neighbour has not published yet is taken to be busy as long as its
//! word says so; what that was wrong by is made good at the next look.

use weir_protocol::pages::Occupancy;
use weir_protocol::units::Nanos;

/// Neighbours whose presence is combined exactly. More of them count as one.
const EXACT: usize = 6;

/// What a process remembers of one neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub struct Presence {
    seen: Occupancy,
    since: Nanos, // what it has published is so old
    counted: f64, // of its time, ns
    part: f64,    // of the time between the last two looks
    weight: f64,
}

impl Presence {
    /// Looks at what the neighbour has published. The last look was `before`.
    pub fn look(&mut self, now: Occupancy, before: Nanos, at: Nanos) {
        let published = now.busy_ns.wrapping_sub(self.seen.busy_ns);
        if before == Nanos(0) || published > at.since(before).0.saturating_mul(1_000) {
            *self = Self { seen: now, since: at, counted: 0.0, part: 0.0, weight: 1.0 }; // the first look, or nonsense
            return;
        }
        if published > 0 {
            let weighted = now.weighted_ns.wrapping_sub(self.seen.weighted_ns);
            self.weight = (weighted as f64 / published as f64).clamp(0.001, 100.0);
            self.counted -= published as f64;
        }
        if published > 0 || !self.seen.is_busy {
            self.since = at;
        }
        self.seen = now;
        let open = if now.is_busy { at.since(self.since).0 as f64 } else { 0.0 };
        let passed = at.since(before).0 as f64;
        let more = (open - self.counted).clamp(0.0, passed);
        self.counted += more;
        self.part = if passed > 0.0 { more / passed } else { 0.0 };
    }
}

/// The part of its own time that belongs to a tenant of weight `own`, on average, beside these neighbours.
pub fn part(own: f64, neighbours: &[Presence]) -> f64 {
    let (first, rest) = neighbours.split_at(neighbours.len().min(EXACT));
    let weight = rest.iter().map(|neighbour| neighbour.part * neighbour.weight).sum();
    expected(own.max(0.001), weight, first)
}

/// Each neighbour is there for its part of the time, whoever else is.
fn expected(own: f64, others: f64, neighbours: &[Presence]) -> f64 {
    let Some((one, rest)) = neighbours.split_first() else { return own / (own + others) };
    let away = if one.part < 1.0 { (1.0 - one.part) * expected(own, others, rest) } else { 0.0 };
    let there = if one.part > 0.0 { one.part * expected(own, others + one.weight, rest) } else { 0.0 };
    away + there
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(part: f64, weight: f64) -> Presence {
        Presence { part, weight, ..Presence::default() }
    }

    #[test]
    fn a_nanosecond_is_divided_by_weight() {
        assert_eq!(part(1.0, &[]), 1.0);
        assert_eq!(part(1.0, &[neighbour(1.0, 1.0)]), 0.5);
        assert_eq!(part(0.1, &[neighbour(1.0, 0.3)]), 0.25);
        assert_eq!(part(1.0, &[neighbour(0.5, 1.0)]), 0.75);
        assert_eq!(part(1.0, &[neighbour(1.0, 1.0); 9]), 0.1);
    }

    /// A neighbour that is busy for `busy_us` of each millisecond and publishes every `every_ms`, looked at each
    /// 700 us.
    fn mean_part(busy_us: u64, every_ms: u64, weight_permille: u64) -> (f64, f64) {
        let (mut presence, mut before, mut sum, mut looks) = (Presence::default(), Nanos(0), 0.0, 0.0);
        for at_us in (700..2_000_000u64).step_by(700) {
            let published_ms = at_us / 1_000 / every_ms * every_ms;
            let busy_ns = published_ms * busy_us * 1_000;
            let is_busy = at_us % 1_000 < busy_us;
            let weighted_ns = busy_ns / 1_000 * weight_permille;
            let at = Nanos(at_us * 1_000);
            presence.look(Occupancy { busy_ns, weighted_ns, is_busy }, before, at);
            if at_us > 100_000 {
                (sum, looks) = (sum + presence.part, looks + 1.0);
            }
            before = at;
        }
        (sum / looks, presence.weight)
    }

    #[test]
    fn a_neighbours_part_of_the_time_is_what_it_publishes_however_seldom() {
        for (busy_us, every_ms) in [(1_000, 1), (1_000, 5), (1_000, 50), (400, 1), (250, 3)] {
            let (part, weight) = mean_part(busy_us, every_ms, 300);
            let off = part - busy_us as f64 / 1_000.0;
            assert!(off.abs() < 0.03, "{busy_us} us of each ms, published every {every_ms} ms: {part}");
            assert!((weight - 0.3).abs() < 0.001, "{weight}");
        }
    }

    #[test]
    fn nonsense_on_a_neighbours_page_is_not_believed() {
        let mut presence = Presence::default();
        presence.look(Occupancy::default(), Nanos(0), Nanos(1));
        let wild = Occupancy { busy_ns: u64::MAX / 2, weighted_ns: u64::MAX, is_busy: false };
        presence.look(wild, Nanos(1), Nanos(1_000_000));
        assert_eq!(part(1.0, &[presence]), 1.0);
    }
}
