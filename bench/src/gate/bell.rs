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
const BLIND: u64 = 2_000_000;

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
        let mut closings = BTreeMap::new();
        let mut away = Vec::new(); // of the last one, which is on the manager's
        for look in looks {
            let seen = look.join().map_err(|_| io::Error::other("the look-out has died"))??;
            away = seen.blind;
            for (generation, closing) in seen.closings {
                let first = closings.entry(generation).or_insert(closing);
                first.closed = first.closed.min(closing.closed);
            }
        }
        let bare = bare.join().map_err(|_| io::Error::other("the bare bell has died"))??;
        Ok(Rung { wakes: wakes?, closings: closings.into_values().collect(), away, bare })
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

/// What a look-out has seen.
#[derive(Default)]
struct Seen {
    closings: BTreeMap<u32, Closing>, // by the generation of the grant that closed
    blind: Vec<(u64, u64)>,
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
        let (mut opened, mut generation, mut asked, mut looked) = (None, 0, 0, now());
        while !self.over.load(Ordering::Relaxed) {
            let before = std::mem::replace(&mut looked, now());
            if looked - before > BLIND {
                seen.blind.push((before, looked));
            }
            if self.page.generation() == generation {
                if opened.is_none() && looked > asked + ASKS {
                    self.slot.put_off.fetch_add(1, Ordering::Relaxed);
                    asked = looked;
                }
                std::hint::spin_loop();
                continue;
            }
            let grant = self.page.read();
            generation = grant.generation;
            match (grant.gate, opened) {
                (Gate::Open, None) => opened = Some(now()),
                (Gate::Closed, Some(open)) => {
                    seen.closings.insert(generation, Closing { open, closed: now() });
                    opened = None;
                }
                _ => {}
            }
        }
        seen
    }
}
