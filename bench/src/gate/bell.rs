//! A filler that sees nothing but its grant page: it registers as `libweir.so` does, and then only looks whether its gate is
//! open, and shows that it waits while it is not. It launches nothing, so what it sees is the manager's doing. It looks
//! from each processor, and there gives way to everybody, the manager too.
//!
//! Beside it stands a *bare bell*, what the machine can do: the latency tenant's process sends a byte over a socket, half
//! its sleep before each wake, to a thread in the manager's place that does nothing else.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_protocol::mapping::{Access, Mapped};
use weir_protocol::pages::{Gate, GrantPage, ProcessSlot, UsagePage};

use super::cores::{self, Cores};
use super::player::Part;
use super::{Closing, Scene, Wake, now, told};
use crate::registrant;

/// A launch that waits asks again so often, ns.
const ASKS: u64 = 1_000_000;

/// A look-out that has not looked for so long was not let, ns.
const BLIND: u64 = 100_000;

/// What came of the latency tenant's wakes.
pub struct Rung {
    pub wakes: Vec<Wake>,
    pub closings: Vec<Closing>,
    /// When the look-out on the manager's processor did not run, from and to: somebody else had it, or the machine.
    pub away: Vec<(u64, u64)>,
    /// How long each bare bell took, ns.
    pub bare: Vec<u64>,
}

/// The filler's pages, and whether the latency tenant has ended.
struct LookOut<'a> {
    page: &'a GrantPage,
    slot: &'a ProcessSlot,
    over: &'a AtomicBool,
}

/// Runs the latency tenant, and looks.
pub fn beside(cores: Cores) -> io::Result<Rung> {
    let scene = cores.apart(Scene::new)?;
    let (_socket, slot, pages) = registrant::register(&scene.offline)?;
    let [page, _, usage, ..] = pages.as_slice() else { return Err(io::ErrorKind::NotFound.into()) };
    let page = Mapped::<GrantPage>::open(page, Access::ReadOnly).map_err(io::Error::other)?;
    let usage = Mapped::<UsagePage>::open(usage, Access::ReadWrite).map_err(io::Error::other)?;
    let slot = usage.slots.get(slot).ok_or(io::ErrorKind::NotFound)?;
    let over = AtomicBool::new(false);
    let look_out = LookOut { page: &page, slot, over: &over };
    let (ours, theirs) = UnixStream::pair()?;
    std::thread::scope(|scope| {
        let look_out = &look_out;
        let looks = cores.each().into_iter().map(|core| scope.spawn(move || look_out.runs_on(core)));
        let looks: Vec<_> = looks.collect();
        let bare = scope.spawn(|| cores.apart(|| listen(ours)));
        let wakes = scene.start_with(Part::Ringer, &scene.online, cores, Stdio::from(OwnedFd::from(theirs)));
        let wakes = wakes.and_then(told);
        over.store(true, Ordering::Relaxed);
        let mut gates = Gates::new();
        let mut away = Vec::new(); // of the last one, which is on the manager's
        for look in looks {
            let seen = look.join().map_err(|_| io::Error::other("the look-out has died"))??;
            away = seen.blind;
            for (generation, (gate, at)) in seen.gates {
                let first = gates.entry(generation).or_insert((gate, at));
                first.1 = first.1.min(at);
            }
        }
        let bare = bare.join().map_err(|_| io::Error::other("the bare bell has died"))??;
        Ok(Rung { wakes: wakes?, closings: closings(&gates), away, bare })
    })
}

/// Hears bare bells, each of which says when it was rung, until there is nobody to ring.
fn listen(mut bell: UnixStream) -> io::Result<Vec<u64>> {
    let (mut took, mut rung) = (Vec::new(), [0; 8]);
    while bell.read_exact(&mut rung).is_ok() {
        took.push(now().saturating_sub(u64::from_ne_bytes(rung)));
    }
    Ok(took)
}

/// What the gate was in each grant, by its generation, and when that was seen first. A look-out that is not let misses some.
type Gates = BTreeMap<u32, (Gate, u64)>;

/// What a look-out has seen.
#[derive(Default)]
struct Seen {
    gates: Gates,
    blind: Vec<(u64, u64)>,
}

/// Each time from an open gate to the next closed one.
fn closings(gates: &Gates) -> Vec<Closing> {
    let (mut opened, mut closings) = (None, Vec::new());
    for (gate, at) in gates.values() {
        match (gate, opened) {
            (Gate::Open, None) => opened = Some(*at),
            (Gate::Closed, Some(open)) => {
                closings.push(Closing { open, closed: *at });
                opened = None;
            }
            _ => {}
        }
    }
    closings
}

impl LookOut<'_> {
    fn runs_on(&self, core: Option<usize>) -> io::Result<Seen> {
        if let Some(core) = core {
            cores::run_on(core)?;
            cores::give_way()?;
        }
        Ok(self.look())
    }

    fn look(&self) -> Seen {
        let mut seen = Seen::default();
        let (mut gate, mut generation, mut asked, mut looked) = (Gate::Closed, 0, 0, now());
        while !self.over.load(Ordering::Relaxed) {
            let before = std::mem::replace(&mut looked, now());
            if looked - before > BLIND {
                seen.blind.push((before, looked));
            }
            if self.page.generation() == generation {
                if gate == Gate::Closed && looked > asked + ASKS {
                    self.slot.put_off.fetch_add(1, Ordering::Relaxed);
                    asked = looked;
                }
                std::hint::spin_loop();
                continue;
            }
            let grant = self.page.read();
            (gate, generation) = (grant.gate, grant.generation);
            seen.gates.insert(generation, (gate, now()));
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_is_closed_once_however_many_grants_say_so() {
        let gates = [(3, Gate::Closed, 5), (4, Gate::Open, 10), (6, Gate::Open, 20), (7, Gate::Closed, 30)];
        let gates = gates.into_iter().chain([(9, Gate::Closed, 40), (12, Gate::Open, 50)]);
        let gates = gates.map(|(generation, gate, at)| (generation, (gate, at))).collect();
        let seen: Vec<_> = closings(&gates).iter().map(|closing| (closing.open, closing.closed)).collect();
        assert_eq!(seen, [(10, 30)]);
    }
}
